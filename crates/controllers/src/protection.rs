//! The protection controllers: PersistentVolumeClaims, PersistentVolumes and
//! VolumeAttributesClasses are deleted only when they are not in use. Admission sets their
//! finalizer; this loop adds a missing one.

use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use keelson_resources::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Runs the loop for PersistentVolumeClaims until it is dropped.
pub(crate) async fn claims(registry: Arc<Registry>) {
    let client = Client::new(&registry, "pvc-protection-controller");
    control_loop::run(&registry, Claims(Protection::new(client, CLAIMS))).await;
}

/// Runs the loop for PersistentVolumes until it is dropped.
pub(crate) async fn volumes(registry: Arc<Registry>) {
    let client = Client::new(&registry, "pv-protection-controller");
    control_loop::run(&registry, Volumes(Protection::new(client, VOLUMES))).await;
}

/// Runs the loop for VolumeAttributesClasses until it is dropped.
pub(crate) async fn classes(registry: Arc<Registry>) {
    let client = Client::new(&registry, "volumeattributesclass-protection-controller");
    control_loop::run(&registry, Classes(Protection::new(client, CLASSES))).await;
}

const CLAIMS: ProtectedKind = ProtectedKind {
    group: "",
    resource: "persistentvolumeclaims",
    finalizer: "kubernetes.io/pvc-protection",
    is_used: is_claim_used,
};
const VOLUMES: ProtectedKind = ProtectedKind {
    group: "",
    resource: "persistentvolumes",
    finalizer: "kubernetes.io/pv-protection",
    is_used: |_, volume| volume.str_at(&["status", "phase"]) == "Bound",
};
const CLASSES: ProtectedKind = ProtectedKind {
    group: "storage.k8s.io",
    resource: "volumeattributesclasses",
    finalizer: "kubernetes.io/vac-protection",
    is_used: is_class_used,
};

struct Claims(Protection);
struct Volumes(Protection);
struct Classes(Protection);

/// Namespace (empty for cluster-scoped kinds) and name.
type Key = (Str, Str);

impl ControlLoop for Claims {
    type Key = Key;
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("", "persistentvolumeclaims"), ("", "pods")]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                // A deleted pod no longer uses its claims.
                InformerEvent::Deleted { kind, entry } if kind.gvr.resource == "pods" => {
                    let pod = kind.decode(entry).unwrap_or_default();
                    let claims = claims_of(&pod).into_iter();
                    queue.extend(claims.map(|claim| (entry.namespace().into(), claim)));
                }
                event => self.0.observe(event, queue),
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        self.0.sync(key).await
    }
}

impl ControlLoop for Volumes {
    type Key = Key;
    const NAME: &'static str = "persistentvolume-protection-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "persistentvolumes")]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        events.iter().for_each(|event| self.0.observe(event, queue));
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        self.0.sync(key).await
    }
}

impl ControlLoop for Classes {
    type Key = Key;
    const NAME: &'static str = "volumeattributesclass-protection-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("storage.k8s.io", "volumeattributesclasses"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
    ]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            self.0.observe(event, queue);
            let (kind, before) = match event {
                InformerEvent::Put { kind, previous: Some(previous), .. } => (kind, previous),
                InformerEvent::Deleted { kind, entry } => (kind, entry),
                _ => continue,
            };
            // A class that was used may not be used any more.
            if kind.gvr.group.is_empty()
                && memchr::memmem::find(&before.json_slice(), b"olumeAttributesClassName").is_some()
            {
                let before = kind.decode(before).unwrap_or_default();
                let classes = classes_of(&before).into_iter();
                queue.extend(classes.map(|class| (Str::default(), class.into())));
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        self.0.sync(key).await
    }
}

/// A protected resource.
#[derive(Clone, Copy)]
struct ProtectedKind {
    group: &'static str,
    resource: &'static str,
    finalizer: &'static str,
    /// Whether an object is in use.
    is_used: fn(&Registry, &Object) -> bool,
}

/// Adds and removes the finalizer of one resource.
struct Protection {
    client: Client,
    kind: ProtectedKind,
}

impl Protection {
    fn new(client: Client, kind: ProtectedKind) -> Protection {
        Protection { client, kind }
    }

    fn observe(&self, event: &InformerEvent, queue: &mut Queue<Key>) {
        let is_own = |kind: &Kind| {
            kind.gvr.resource == self.kind.resource && kind.gvr.group == self.kind.group
        };
        let key = |entry: &Entry| (entry.namespace().into(), entry.name().into());
        match event {
            InformerEvent::Listed(kind, all) if is_own(kind) => {
                all.range("", "").for_each(|entry| queue.add(key(entry)));
            }
            InformerEvent::Put { kind, entry, .. } if is_own(kind) => queue.add(key(entry)),
            _ => {}
        }
    }

    async fn sync(&self, (namespace, name): Key) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(self.kind.group, self.kind.resource) else {
            return Ok(None);
        };
        let registry = &self.client.registry;
        let Some(entry) = registry.cached(&kind, &namespace, &name) else { return Ok(None) };
        let mut object = kind.decode(&entry)?;
        let has_finalizer = object.finalizers().any(|name| name == self.kind.finalizer);
        let is_deleting = object.deletion_timestamp().is_some();
        let mut finalizers = object.array_at(&["metadata", "finalizers"]).to_vec();
        match (is_deleting, has_finalizer) {
            (true, true) if !(self.kind.is_used)(registry, &object) => {
                finalizers.retain(|name| name.as_str() != Some(self.kind.finalizer));
            }
            (false, false) => finalizers.push(self.kind.finalizer.into()),
            _ => return Ok(None),
        }
        if finalizers.is_empty() {
            object.metadata_mut().remove("finalizers");
        } else {
            object.metadata_mut().insert("finalizers", finalizers);
        }
        let target = Target::of(&kind, &namespace, &name);
        ignore_terminating(self.client.update(&target, Subresource::None, object).await)?;
        Ok(None)
    }
}

/// Whether a scheduled pod uses a claim. Pods without a node do not count: they cannot start any
/// more.
fn is_claim_used(registry: &Registry, claim: &Object) -> bool {
    let Some(kind) = registry.kind("", "pods") else { return true };
    let prefix = format!("{}/", claim.namespace());
    let pods = registry.cached_all(&kind);
    // The pod is the owner of the claim for its ephemeral volume.
    let owner = claim.controller().and_then(|owner| owner.str_at(&["uid"]));
    pods.range(&prefix, "").filter(|pod| pod.has_text("\"volumes\"")).any(|pod| {
        let Ok(pod) = kind.decode(pod) else { return true };
        let is_own = owner.is_none_or(|owner| owner == pod.uid());
        let has_ended = matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded");
        let uses = |volume: &Value| {
            let name = claim.name();
            volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(name)
                || (!has_ended && is_own && ephemeral_claim(&pod, volume).as_deref() == Some(name))
        };
        !pod.str_at(&["spec", "nodeName"]).is_empty()
            && pod.array_at(&["spec", "volumes"]).iter().any(uses)
    })
}

/// Returns the name of the claim for an ephemeral volume.
fn ephemeral_claim(pod: &Object, volume: &Value) -> Option<String> {
    volume.get("ephemeral")?;
    Some(format!("{}-{}", pod.name(), volume.str_at(&["name"])?))
}

/// Returns the claims that a pod uses.
fn claims_of(pod: &Object) -> Vec<Str> {
    let volumes = pod.array_at(&["spec", "volumes"]).iter();
    let claim = |volume: &Value| {
        let named = volume.str_at(&["persistentVolumeClaim", "claimName"]).map(Str::new);
        named.or_else(|| ephemeral_claim(pod, volume).map(Str::from))
    };
    volumes.filter_map(claim).collect()
}

/// Whether a claim or a volume uses a class, or is being changed to it.
fn is_class_used(registry: &Registry, class: &Object) -> bool {
    ["persistentvolumeclaims", "persistentvolumes"].iter().any(|resource| {
        let Some(kind) = registry.kind("", resource) else { return false };
        let all = registry.cached_all(&kind);
        all.range("", "").filter(|entry| entry.has_text(class.name())).any(|entry| {
            let Ok(object) = kind.decode(entry) else { return true };
            classes_of(&object).contains(&class.name())
        })
    })
}

fn classes_of(object: &Object) -> Vec<&str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.iter().map(|path| object.str_at(path)).filter(|name| !name.is_empty()).collect()
}
