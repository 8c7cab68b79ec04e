//! The persistent volume binder: binds claims to volumes, both ways, and decides what becomes of
//! volumes whose claim is gone.

mod claims;
pub(crate) mod matching;

use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Value};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use keelson_resources::Kind;
use matching::{BIND_COMPLETED, PROVISIONED_BY};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The source component of its events.
const COMPONENT: &str = "persistentvolume-controller";
const WARNING: &str = "Warning";
/// The finalizer of volumes that this loop deletes itself.
const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "persistent-volume-binder");
    let events = Recorder::new(&client, COMPONENT);
    let volumes = Volumes { client, events, waiting: Mutex::default() };
    control_loop::run(&context.registry, volumes).await;
}

struct Volumes {
    client: Client,
    events: Recorder,
    /// Claims that have no volume yet, with their class.
    waiting: Mutex<BTreeMap<(Str, Str), Str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    /// Namespace and name.
    Claim(Str, Str),
    Volume(Str),
}

impl ControlLoop for Volumes {
    type Key = Key;
    const NAME: &'static str = "persistentvolume-binder-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("storage.k8s.io", "storageclasses"),
    ]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => {
                    let all = all.range("", "");
                    match kind.gvr.resource.as_str() {
                        "persistentvolumeclaims" => {
                            all.for_each(|entry| self.observe_claim(kind, entry, false, queue));
                        }
                        "persistentvolumes" => {
                            queue.extend(all.map(|entry| Key::Volume(entry.name().into())));
                        }
                        _ => {}
                    }
                }
                InformerEvent::Put { kind, entry, .. } => self.observe_put(kind, entry, queue),
                InformerEvent::Deleted { kind, entry } => match kind.gvr.resource.as_str() {
                    "persistentvolumeclaims" => self.observe_claim(kind, entry, true, queue),
                    "persistentvolumes" => {
                        let volume = kind.decode(entry).unwrap_or_default();
                        queue.extend(claim_key(&volume));
                    }
                    _ => {}
                },
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        match key {
            Key::Claim(namespace, name) => self.sync_claim(&namespace, &name).await?,
            Key::Volume(name) => self.sync_volume(&name).await?,
        }
        Ok(None)
    }
}

/// Returns the claim that a volume is reserved for.
fn claim_key(volume: &Object) -> Option<Key> {
    let text = |name: &str| volume.str_at(&["spec", "claimRef", name]);
    (!text("name").is_empty()).then(|| Key::Claim(text("namespace").into(), text("name").into()))
}

impl Volumes {
    fn observe_claim(&self, kind: &Kind, entry: &Entry, is_gone: bool, queue: &mut Queue<Key>) {
        let claim = kind.decode(entry).unwrap_or_default();
        let key = (Str::new(entry.namespace()), Str::new(entry.name()));
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if is_gone || claim.annotation(BIND_COMPLETED).is_some() {
                waiting.remove(&key);
            } else {
                waiting.insert(key.clone(), matching::class_of(&claim).into());
            }
        }
        let volume = claim.str_at(&["spec", "volumeName"]);
        if !volume.is_empty() {
            queue.add(Key::Volume(volume.into()));
        }
        if !is_gone {
            queue.add(Key::Claim(key.0, key.1));
        }
    }

    fn observe_put(&self, kind: &Kind, entry: &Entry, queue: &mut Queue<Key>) {
        let class: Str = match kind.gvr.resource.as_str() {
            "persistentvolumeclaims" => return self.observe_claim(kind, entry, false, queue),
            "persistentvolumes" => {
                let volume = kind.decode(entry).unwrap_or_default();
                queue.add(Key::Volume(entry.name().into()));
                match claim_key(&volume) {
                    Some(claim) => return queue.add(claim),
                    None if volume.deletion_timestamp().is_some() => return,
                    None => matching::class_of(&volume).into(),
                }
            }
            _ => entry.name().into(),
        };
        // A claim without a class may get the default class.
        let is_class = kind.gvr.resource == "storageclasses";
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting =
            waiting.iter().filter(|(_, one)| **one == class || is_class && one.is_empty());
        queue.extend(
            fitting.map(|((namespace, name), _)| Key::Claim(namespace.clone(), name.clone())),
        );
    }

    fn event(&self, object: &Object, kind: &'static str, reason: &str, message: &str) {
        self.events.about(&self.client, object, kind, (reason, message));
    }

    fn decode_all(&self, group: &str, resource: &str) -> Result<Vec<Object>, Failure> {
        let Some(kind) = self.client.kind(group, resource) else { return Ok(vec![]) };
        let all = self.client.registry.cached_all(&kind);
        all.range("", "").map(|entry| kind.decode(entry)).collect()
    }

    fn volume(&self, name: &str) -> Result<Option<Object>, Failure> {
        let Some(kind) = self.client.kind("", "persistentvolumes") else { return Ok(None) };
        let entry = self.client.registry.cached(&kind, "", name);
        entry.map(|entry| kind.decode(&entry)).transpose()
    }

    /// Returns the names of pods that use a claim and are not scheduled.
    fn unscheduled_pods(&self, claim: &Object) -> Vec<String> {
        let Some(kind) = self.client.kind("", "pods") else { return vec![] };
        let all = self.client.registry.cached_all(&kind);
        let prefix = format!("{}/", claim.namespace());
        let waits = |entry: &&Entry| {
            entry.field("spec.nodeName").is_none_or(str::is_empty)
                && !matches!(entry.field("status.phase"), Some("Succeeded" | "Failed"))
                && memchr::memmem::find(&entry.json_slice(), claim.name().as_bytes()).is_some()
        };
        let uses = |pod: &Object| {
            let volumes = pod.array_at(&["spec", "volumes"]).iter();
            volumes.into_iter().any(|volume| {
                let name = volume.str_at(&["persistentVolumeClaim", "claimName"]);
                let own = || {
                    let name = volume.str_at(&["name"]).unwrap_or_default();
                    volume.get("ephemeral").is_some()
                        && format!("{}-{name}", pod.name()) == claim.name()
                };
                name == Some(claim.name()) || own()
            })
        };
        let pods = all.range(&prefix, "").filter(waits).filter_map(|entry| kind.decode(entry).ok());
        pods.filter(uses).map(|pod| pod.name().to_owned()).collect()
    }

    async fn sync_volume(&self, name: &str) -> Result<(), Failure> {
        let (Some(kind), Some(claims)) = (
            self.client.kind("", "persistentvolumes"),
            self.client.kind("", "persistentvolumeclaims"),
        ) else {
            return Ok(());
        };
        let Some(volume) = self.volume(name)? else { return Ok(()) };
        let target = Target::of(&kind, "", name);
        let text = |name: &str| volume.str_at(&["spec", "claimRef", name]);
        let uid = text("uid").to_owned();
        if uid.is_empty() {
            return self.set_volume_phase(&target, volume, "Available", "").await.map(drop);
        }
        let claim = self
            .client
            .registry
            .cached(&claims, text("namespace"), text("name"))
            .map(|entry| claims.decode(&entry))
            .transpose()?;
        let Some(claim) = claim.filter(|claim| claim.uid() == uid) else {
            return self.release(&target, volume).await;
        };
        let is_mine = claim.str_at(&["spec", "volumeName"]);
        if is_mine.is_empty() {
            if matching::has_other_mode(&claim, &volume) {
                let message = format!(
                    "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to \
                     incompatible volumeMode.",
                    claim.name()
                );
                self.event(&volume, WARNING, "VolumeMismatch", &message);
                let message = format!(
                    "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due \
                     to incompatible volumeMode."
                );
                self.event(&claim, WARNING, "VolumeMismatch", &message);
            }
            // The claim is synced on its own: its change or that of the volume has queued it.
            return Ok(());
        }
        if is_mine == name {
            return self.set_volume_phase(&target, volume, "Bound", "").await.map(drop);
        }
        // The claim has another volume.
        let is_provisioned = volume.annotation(PROVISIONED_BY).is_some()
            && volume.str_at(&["spec", "persistentVolumeReclaimPolicy"]) == "Delete";
        if is_provisioned {
            return self.release(&target, volume).await;
        }
        self.unbind(&target, volume).await
    }

    async fn unbind(&self, target: &Target, volume: Object) -> Result<(), Failure> {
        let free = matching::unbind_volume(&volume);
        let stored = self.client.update(target, Subresource::None, free).await?;
        self.set_volume_phase(target, stored, "Available", "").await.map(drop)
    }

    /// Marks a volume whose claim is gone, and does what its policy says.
    async fn release(&self, target: &Target, volume: Object) -> Result<(), Failure> {
        let is_known = matches!(volume.str_at(&["status", "phase"]), "Released" | "Failed");
        let volume = match is_known {
            true => volume,
            false => self.set_volume_phase(target, volume, "Released", "").await?,
        };
        match volume.str_at(&["spec", "persistentVolumeReclaimPolicy"]) {
            "Retain" => Ok(()),
            "Delete" => self.delete(target, volume).await,
            "Recycle" => self.recycle(target, volume).await,
            _ => {
                let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
                self.fail(target, volume, "VolumeUnknownReclaimPolicy", message).await
            }
        }
    }

    /// Deletes a volume that has no provisioner. There is no data, so its contents need no
    /// deletion.
    async fn delete(&self, target: &Target, volume: Object) -> Result<(), Failure> {
        let provisioner = volume.annotation(PROVISIONED_BY).unwrap_or_default();
        let is_external = if provisioner.is_empty() {
            volume.at(&["spec", "csi"]).is_some_and(Value::is_map)
                || volume.annotation("pv.kubernetes.io/migrated-to").is_some()
        } else {
            !provisioner.starts_with("kubernetes.io/")
        };
        if is_external {
            return Ok(());
        }
        let path = volume.str_at(&["spec", "hostPath", "path"]).to_owned();
        if path.is_empty() {
            let message = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin \
                 matched",
                volume.name()
            );
            return self.fail(target, volume, "VolumeFailedDelete", &message).await;
        }
        if !path.starts_with("/tmp/") || path.len() == "/tmp/".len() {
            let message =
                format!("host_path deleter only supports /tmp/.+ but received provided {path}");
            return self.fail(target, volume, "VolumeFailedDelete", &message).await;
        }
        self.client.delete(target, &DeleteOptions::default()).await?;
        let Some(mut rest) = self.client.get(target).await? else { return Ok(()) };
        if !rest.finalizers().any(|one| one == IN_TREE_FINALIZER) {
            return Ok(());
        }
        if let Some(all) = rest.metadata_mut().get_mut("finalizers").and_then(Value::as_array_mut) {
            all.retain(|one| one.as_str() != Some(IN_TREE_FINALIZER));
        }
        self.client.update(target, Subresource::None, rest).await.map(drop)
    }

    /// Makes a volume available again. There is no data that a pod would have to remove.
    async fn recycle(&self, target: &Target, volume: Object) -> Result<(), Failure> {
        let source = |name: &str| volume.at(&["spec", name]).is_some_and(Value::is_map);
        if !source("hostPath") && !source("nfs") {
            let message = "No recycler plugin found for the volume!";
            return self.fail(target, volume, "VolumeFailedRecycle", message).await;
        }
        self.event(&volume, "Normal", "VolumeRecycled", "Volume recycled");
        self.unbind(target, volume).await
    }

    async fn fail(
        &self,
        target: &Target,
        volume: Object,
        reason: &str,
        message: &str,
    ) -> Result<(), Failure> {
        if volume.str_at(&["status", "phase"]) == "Failed" {
            return Ok(());
        }
        let failed = self.set_volume_phase(target, volume, "Failed", message).await?;
        self.event(&failed, WARNING, reason, message);
        Ok(())
    }

    async fn set_volume_phase(
        &self,
        target: &Target,
        mut volume: Object,
        phase: &str,
        message: &str,
    ) -> Result<Object, Failure> {
        if volume.str_at(&["status", "phase"]) == phase {
            return Ok(volume);
        }
        let status = volume.object_mut("status");
        status.insert("phase", phase);
        if message.is_empty() {
            status.remove("message");
        } else {
            status.insert("message", message);
        }
        self.client.update(target, Subresource::Status, volume).await
    }
}
