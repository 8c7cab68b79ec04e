//! A provisioner of volumes without data, as an external CSI provisioner and resizer would act: it
//! serves every StorageClass with the provisioner `keelson.dev/simulated`. Unless the cluster has a
//! default class, it creates one, `standard`.

use crate::volumes::matching::{
    PROVISIONED_BY, PROVISIONERS, SELECTED_NODE, capacity, claim_reference, class_of,
    default_class, requested,
};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Value, value};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use std::time::Duration;

/// The name of the provisioner, and of the driver of its volumes.
pub(crate) const PROVISIONER: &str = "keelson.dev/simulated";
/// The name of a CSI driver has no slash.
const DRIVER: &str = "simulated.keelson.dev";
/// The finalizer of a volume until its provisioner has deleted it.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "persistent-volume-binder");
    let events = Recorder::new(&client, PROVISIONER);
    let owner = Client::api_server(&context.registry);
    control_loop::run(&context.registry, Provisioner { client, owner, events }).await;
}

struct Provisioner {
    /// Acts as the binder, which may write volumes and claims.
    client: Client,
    /// Acts as the server, which creates the class.
    owner: Client,
    events: Recorder,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    /// The creation of the default class, once.
    Class,
    /// Namespace and name.
    Claim(Str, Str),
    Volume(Str),
}

impl ControlLoop for Provisioner {
    type Key = Key;
    const NAME: &'static str = "simulated-provisioner";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("storage.k8s.io", "storageclasses"),
    ]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            let (kind, entries): (_, Vec<_>) = match event {
                InformerEvent::Listed(kind, all) => (kind, all.range("", "").collect()),
                InformerEvent::Put { kind, entry, .. } => (kind, vec![entry]),
                InformerEvent::Deleted { .. } | InformerEvent::Withdrawn(_) => continue,
            };
            match kind.gvr.resource.as_str() {
                "persistentvolumeclaims" => queue.extend(
                    entries.iter().map(|one| Key::Claim(one.namespace().into(), one.name().into())),
                ),
                "persistentvolumes" => {
                    queue.extend(entries.iter().map(|one| Key::Volume(one.name().into())));
                }
                _ if matches!(event, InformerEvent::Listed(..)) => queue.add(Key::Class),
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        match key {
            Key::Class => self.create_class().await?,
            Key::Claim(namespace, name) => self.sync_claim(&namespace, &name).await?,
            Key::Volume(name) => self.sync_volume(&name).await?,
        }
        Ok(None)
    }
}

impl Provisioner {
    fn event(&self, object: &Object, reason: &str, message: &str) {
        self.events.about(&self.client, object, "Normal", (reason, message));
    }

    async fn create_class(&self) -> Result<(), Failure> {
        let Some(kind) = self.owner.kind("storage.k8s.io", "storageclasses") else { return Ok(()) };
        let all = self.owner.registry.cached_all(&kind);
        let classes: Vec<Object> =
            all.range("", "").map(|entry| kind.decode(entry)).collect::<Result<_, _>>()?;
        if default_class(&classes).is_some() {
            return Ok(());
        }
        let class = value!({
            "metadata": {"name": "standard",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": true
        });
        let target = Target::of(&kind, "", "standard");
        let class = Object::from_value(class).unwrap_or_default();
        ignore_terminating(self.owner.create(&target, class).await)
    }

    async fn sync_claim(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let (Some(claims), Some(volumes)) = (
            self.client.kind("", "persistentvolumeclaims"),
            self.client.kind("", "persistentvolumes"),
        ) else {
            return Ok(());
        };
        let known = self.client.registry.cached(&claims, namespace, name);
        let Some(claim) = known.map(|entry| claims.decode(&entry)).transpose()? else {
            return Ok(());
        };
        if PROVISIONERS.iter().all(|one| claim.annotation(one) != Some(PROVISIONER)) {
            return Ok(());
        }
        let target = Target::of(&claims, namespace, name);
        let volume = match claim.str_at(&["spec", "volumeName"]) {
            "" => return self.provision(&target, &claim).await,
            volume => Target::of(&volumes, "", volume),
        };
        if claim.str_at(&["status", "phase"]) == "Bound" {
            return self.expand(&target, claim, &volume).await;
        }
        Ok(())
    }

    /// Creates the volume of a claim. The binder binds it.
    async fn provision(&self, target: &Target, claim: &Object) -> Result<(), Failure> {
        let (Some(volumes), Some(classes)) = (
            self.client.kind("", "persistentvolumes"),
            self.client.kind("storage.k8s.io", "storageclasses"),
        ) else {
            return Ok(());
        };
        let class = self.client.registry.cached(&classes, "", class_of(claim));
        let Some(class) = class.map(|entry| classes.decode(&entry)).transpose()? else {
            return Ok(());
        };
        let is_delayed = class.str_at(&["volumeBindingMode"]) == "WaitForFirstConsumer";
        if is_delayed && claim.annotation(SELECTED_NODE).is_none()
            || claim.deletion_timestamp().is_some()
        {
            return Ok(());
        }
        let name = format!("pvc-{}", claim.uid());
        if self.client.registry.cached(&volumes, "", &name).is_some() {
            return Ok(());
        }
        let message =
            format!("External provisioner is provisioning volume for claim \"{}\"", target.key());
        self.event(claim, "Provisioning", &message);
        let volume = new_volume(claim, &class, &name);
        ignore_terminating(self.client.create(&Target::of(&volumes, "", &name), volume).await)?;
        let message = format!("Successfully provisioned volume {name}");
        self.event(claim, "ProvisioningSucceeded", &message);
        Ok(())
    }

    /// Gives a claim the size that it asks for.
    async fn expand(
        &self,
        target: &Target,
        mut claim: Object,
        volume_target: &Target,
    ) -> Result<(), Failure> {
        let size = requested(&claim);
        let known = claim.str_at(&["status", "capacity", "storage"]).parse();
        if known.is_ok_and(|known| size <= known) {
            return Ok(());
        }
        let known = self.client.registry.cached(&volume_target.kind, "", &volume_target.name);
        let volume = known.map(|entry| volume_target.kind.decode(&entry)).transpose()?;
        let Some(mut volume) =
            volume.filter(|one| one.annotation(PROVISIONED_BY) == Some(PROVISIONER))
        else {
            return Ok(());
        };
        let text = claim.str_at(&["spec", "resources", "requests", "storage"]).to_owned();
        if capacity(&volume) < size {
            let message = format!("External resizer is resizing volume {}", volume.name());
            self.event(&claim, "Resizing", &message);
            volume.object_mut("spec").object_at("capacity").insert("storage", text.as_str());
            self.client.update(volume_target, Subresource::None, volume).await?;
        }
        claim.object_mut("status").object_at("capacity").insert("storage", text);
        let stored = self.client.update(target, Subresource::Status, claim).await?;
        self.event(&stored, "VolumeResizeSuccessful", "Resize volume succeeded");
        Ok(())
    }

    /// Deletes a volume whose claim is gone.
    async fn sync_volume(&self, name: &str) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("", "persistentvolumes") else { return Ok(()) };
        let known = self.client.registry.cached(&kind, "", name);
        let Some(volume) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(());
        };
        if volume.annotation(PROVISIONED_BY) != Some(PROVISIONER) {
            return Ok(());
        }
        let target = Target::of(&kind, "", name);
        let is_released = volume.str_at(&["status", "phase"]) == "Released"
            && volume.str_at(&["spec", "persistentVolumeReclaimPolicy"]) == "Delete";
        if is_released && volume.deletion_timestamp().is_none() {
            return ignore_terminating(
                self.client.delete(&target, &DeleteOptions::default()).await,
            );
        }
        let is_in_use = volume.str_at(&["status", "phase"]) == "Bound";
        if volume.deletion_timestamp().is_none()
            || is_in_use
            || !volume.finalizers().any(|one| one == FINALIZER)
        {
            return Ok(());
        }
        let mut rest = volume;
        if let Some(all) = rest.metadata_mut().get_mut("finalizers").and_then(Value::as_array_mut) {
            all.retain(|one| one.as_str() != Some(FINALIZER));
        }
        ignore_terminating(self.client.update(&target, Subresource::None, rest).await)
    }
}

fn new_volume(claim: &Object, class: &Object, name: &str) -> Object {
    let part = |path: &[&str], default: Value| claim.at(path).cloned().unwrap_or(default);
    let policy = match class.str_at(&["reclaimPolicy"]) {
        "" => "Delete",
        policy => policy,
    };
    let size = part(&["spec", "resources", "requests", "storage"], "0".into());
    let mut volume = value!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": (size)},
            "accessModes": (part(&["spec", "accessModes"], value!([]))),
            "claimRef": (claim_reference(claim)),
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": (class.name()),
            "volumeMode": (part(&["spec", "volumeMode"], "Filesystem".into()))
        }
    });
    let options = class.at(&["mountOptions"]).filter(|options| !options.is_empty());
    if let (Some(options), Some(map)) = (options, volume.as_object_mut()) {
        map.object_at("spec").insert("mountOptions", options.clone());
    }
    let mut volume = Object::from_value(volume).unwrap_or_default();
    let annotations = volume.metadata_mut().object_at("annotations");
    annotations.insert(PROVISIONED_BY, PROVISIONER);
    for what in ["secret-name", "secret-namespace"] {
        annotations.insert(format!("volume.kubernetes.io/provisioner-deletion-{what}"), "");
    }
    if policy == "Delete" {
        volume.metadata_mut().insert("finalizers", value!([FINALIZER]));
    }
    volume
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_what_its_claim_and_class_ask_for() {
        let claim = value!({"metadata": {"name": "data", "namespace": "n", "uid": "u",
            "resourceVersion": "3"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}}}});
        let class = value!({"metadata": {"name": "standard"}, "reclaimPolicy": "Delete"});
        let object = |value| Object::from_value(value).expect("a map");
        let volume = new_volume(&object(claim), &object(class), "pvc-u");
        assert_eq!(volume.annotation(PROVISIONED_BY), Some(PROVISIONER));
        assert_eq!(volume.finalizers().collect::<Vec<_>>(), [FINALIZER]);
        let wanted = value!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "data",
                "uid": "u", "apiVersion": "v1", "resourceVersion": "3"},
            "csi": {"driver": DRIVER, "volumeHandle": "pvc-u"}, "storageClassName": "standard",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem"});
        assert_eq!(volume.get("spec"), Some(&wanted));
    }
}
