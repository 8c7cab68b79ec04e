//! The ephemeral volume controller: creates the claims of generic ephemeral volumes of pods.

use crate::pod_control::controller_reference;
use crate::stored::name_of;
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Status, Str, Value, value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Target};
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "ephemeral-volume-controller");
    let events = Recorder::new(&client, "ephemeral_volume");
    control_loop::run(&context.registry, EphemeralVolumes { client, events }).await;
}

struct EphemeralVolumes {
    client: Client,
    events: Recorder,
}

/// Namespace and name of a pod.
type Key = (Str, Str);

impl ControlLoop for EphemeralVolumes {
    type Key = Key;
    const NAME: &'static str = "ephemeral-volume-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("", "pods"), ("", "persistentvolumeclaims")]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        let has_volume = |entry: &Entry| {
            memchr::memmem::find(&entry.json_slice(), b"\"volumeClaimTemplate\":").is_some()
        };
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "pods" => {
                    queue.extend(all.range("", "").filter(|one| has_volume(one)).map(name_of));
                }
                InformerEvent::Put { kind, entry, previous: None }
                    if kind.gvr.resource == "pods" && has_volume(entry) =>
                {
                    queue.add(name_of(entry));
                }
                // A claim that a pod still needs is created again.
                InformerEvent::Deleted { kind, entry } if kind.gvr.resource != "pods" => {
                    let claim = kind.decode(entry).unwrap_or_default();
                    let owner =
                        claim.controller().filter(|owner| owner.str_at(&["kind"]) == Some("Pod"));
                    let name = owner.and_then(|owner| owner.str_at(&["name"]));
                    queue.extend(name.map(|name| (entry.namespace().into(), name.into())));
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, (namespace, name): Key) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "pods") else { return Ok(None) };
        let known = self.client.registry.cached(&kind, &namespace, &name);
        let Some(pod) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        if pod.deletion_timestamp().is_some() {
            return Ok(None);
        }
        for volume in pod.array_at(&["spec", "volumes"]) {
            let template = volume.at(&["ephemeral", "volumeClaimTemplate"]);
            let Some(template) = template.filter(|template| template.is_map()) else { continue };
            let name = volume.str_at(&["name"]).unwrap_or_default();
            if let Err(error) = self.create(&pod, name, template).await {
                let message = format!("ephemeral volume {name}: {}", error.message);
                self.events.about(&self.client, &pod, "Warning", ("FailedBinding", &message));
                return Err(error);
            }
        }
        Ok(None)
    }
}

impl EphemeralVolumes {
    async fn create(&self, pod: &Object, volume: &str, template: &Value) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("", "persistentvolumeclaims") else { return Ok(()) };
        let name = format!("{}-{volume}", pod.name());
        if let Some(entry) = self.client.registry.cached(&kind, pod.namespace(), &name) {
            let claim = kind.decode(&entry)?;
            let owner = claim.controller().and_then(|owner| owner.str_at(&["uid"]));
            if owner == Some(pod.uid()) {
                return Ok(());
            }
            let namespace = pod.namespace();
            let pod = pod.name();
            return Err(Status::internal(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
            )));
        }
        let mut claim = Object::new();
        claim.set_meta("name", &name);
        claim.metadata_mut().insert("ownerReferences", vec![controller_reference(pod)]);
        for part in ["annotations", "labels"] {
            let part_of = template.at(&["metadata", part]).filter(|part| !part.is_empty());
            part_of.map(|value| claim.metadata_mut().insert(part, value.clone()));
        }
        let spec = template.get("spec").cloned().unwrap_or_else(|| value!({}));
        claim.root.insert("spec", spec);
        let target = Target::of(&kind, pod.namespace(), &name);
        match self.client.create(&target, claim).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let why = format!("create PVC {name}: {}", error.message);
                Err(Status::new(error.reason, why))
            }
        }
    }
}
