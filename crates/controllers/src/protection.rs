//! The protection controllers: claims, volumes and attribute classes that are deleted go only when nobody uses them
//! any more. Each has a finalizer, which admission sets; what lacks it is given it here.

use crate::client::{Client, unless_ending};
use crate::control_loop::{self, ControlLoop};
use crate::queue::Queue;
use keelson_meta::{Failure, Object, Str, Value};
use keelson_registry::{Entry, InformerEvent, Kind, Part, Registry, Target, Wanted};
use std::sync::Arc;
use std::time::Duration;

/// Runs the loop of claims until it is dropped.
pub(crate) async fn claims(registry: Arc<Registry>) {
    let client = Client::new(&registry, "pvc-protection-controller");
    control_loop::run(&registry, Claims(Protection::new(client, CLAIMS))).await;
}

/// Runs the loop of volumes until it is dropped.
pub(crate) async fn volumes(registry: Arc<Registry>) {
    let client = Client::new(&registry, "pv-protection-controller");
    control_loop::run(&registry, Volumes(Protection::new(client, VOLUMES))).await;
}

/// Runs the loop of attribute classes until it is dropped.
pub(crate) async fn classes(registry: Arc<Registry>) {
    let client = Client::new(&registry, "volumeattributesclass-protection-controller");
    control_loop::run(&registry, Classes(Protection::new(client, CLASSES))).await;
}

const CLAIMS: Protected = Protected {
    group: "",
    resource: "persistentvolumeclaims",
    finalizer: "kubernetes.io/pvc-protection",
    is_used: is_claim_used,
};
const VOLUMES: Protected = Protected {
    group: "",
    resource: "persistentvolumes",
    finalizer: "kubernetes.io/pv-protection",
    is_used: |_, volume| volume.str_at(&["status", "phase"]) == "Bound",
};
const CLASSES: Protected = Protected {
    group: "storage.k8s.io",
    resource: "volumeattributesclasses",
    finalizer: "kubernetes.io/vac-protection",
    is_used: is_class_used,
};

struct Claims(Protection);
struct Volumes(Protection);
struct Classes(Protection);

/// Namespace, or empty, and name.
type Key = (Str, Str);

impl ControlLoop for Claims {
    type Key = Key;
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const WANTED: Wanted = Wanted::Only(&[("", "persistentvolumeclaims"), ("", "pods")]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                // A pod that is gone uses its claims no longer.
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
    const WANTED: Wanted = Wanted::Only(&[("", "persistentvolumes")]);
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
    const WANTED: Wanted = Wanted::Only(&[
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
            // What was used may be used no longer.
            if kind.gvr.group.is_empty()
                && memchr::memmem::find(before.json_slice(), b"olumeAttributesClassName").is_some()
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

/// What is protected, and from what.
#[derive(Clone, Copy)]
struct Protected {
    group: &'static str,
    resource: &'static str,
    finalizer: &'static str,
    /// Whether an object is in use.
    is_used: fn(&Registry, &Object) -> bool,
}

/// Takes care of the finalizer of one kind.
struct Protection {
    client: Client,
    of: Protected,
}

impl Protection {
    fn new(client: Client, of: Protected) -> Protection {
        Protection { client, of }
    }

    fn observe(&self, event: &InformerEvent, queue: &mut Queue<Key>) {
        let is_own =
            |kind: &Kind| kind.gvr.resource == self.of.resource && kind.gvr.group == self.of.group;
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
        let Some(kind) = self.client.kind(self.of.group, self.of.resource) else { return Ok(None) };
        let registry = &self.client.registry;
        let Some(entry) = registry.cached(&kind, &namespace, &name) else { return Ok(None) };
        let mut object = kind.decode(&entry)?;
        let has_finalizer = object.finalizers().any(|name| name == self.of.finalizer);
        let is_deleting = object.deletion_timestamp().is_some();
        let mut finalizers = object.array_at(&["metadata", "finalizers"]).to_vec();
        match (is_deleting, has_finalizer) {
            (true, true) if !(self.of.is_used)(registry, &object) => {
                finalizers.retain(|name| name.as_str() != Some(self.of.finalizer));
            }
            (false, false) => finalizers.push(self.of.finalizer.into()),
            _ => return Ok(None),
        }
        if finalizers.is_empty() {
            object.metadata_mut().remove("finalizers");
        } else {
            object.metadata_mut().insert("finalizers", finalizers);
        }
        let target = Target::of(&kind, &namespace, &name);
        unless_ending(self.client.update(&target, Part::Main, object).await)?;
        Ok(None)
    }
}

/// Whether a pod that has its node uses a claim: one without could not be started any more.
fn is_claim_used(registry: &Registry, claim: &Object) -> bool {
    let Some(kind) = registry.kind("", "pods") else { return true };
    let prefix = format!("{}/", claim.namespace());
    let pods = registry.cached_all(&kind);
    // Of a claim for a pod's own volume the pod is the owner.
    let owner = claim.controller().and_then(|owner| owner.str_at(&["uid"]));
    pods.range(&prefix, "").filter(|pod| pod.has_text("\"volumes\"")).any(|pod| {
        let Ok(pod) = kind.decode(pod) else { return true };
        let is_own = owner.is_none_or(|owner| owner == pod.uid());
        let has_ended = matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded");
        let uses = |volume: &Value| {
            let name = claim.name();
            volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(name)
                || (!has_ended && is_own && own_claim(&pod, volume).as_deref() == Some(name))
        };
        !pod.str_at(&["spec", "nodeName"]).is_empty()
            && pod.array_at(&["spec", "volumes"]).iter().any(uses)
    })
}

/// The name of the claim that is made for a volume of a pod.
fn own_claim(pod: &Object, volume: &Value) -> Option<String> {
    volume.get("ephemeral")?;
    Some(format!("{}-{}", pod.name(), volume.str_at(&["name"])?))
}

/// The claims that a pod names.
fn claims_of(pod: &Object) -> Vec<Str> {
    let volumes = pod.array_at(&["spec", "volumes"]).iter();
    let claim = |volume: &Value| {
        let named = volume.str_at(&["persistentVolumeClaim", "claimName"]).map(Str::new);
        named.or_else(|| own_claim(pod, volume).map(Str::from))
    };
    volumes.filter_map(claim).collect()
}

/// Whether a claim or a volume has an attribute class, or is about to.
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
    let places: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    places.iter().map(|place| object.str_at(place)).filter(|name| !name.is_empty()).collect()
}
