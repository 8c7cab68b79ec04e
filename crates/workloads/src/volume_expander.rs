//! The persistent volume expander: tells that a claim whose volume must grow waits for its driver.
//! Volumes of the simulated provisioner are resized by that.

use crate::stored::name_of;
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str};
use keelson_registry::{InformerEvent, InformerScope};
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "expand-controller");
    let events = Recorder::new(&client, "volume_expand");
    control_loop::run(&context.registry, VolumeExpander { client, events }).await;
}

struct VolumeExpander {
    client: Client,
    events: Recorder,
}

/// Namespace and name of a claim.
type Key = (Str, Str);

impl ControlLoop for VolumeExpander {
    type Key = Key;
    const NAME: &'static str = "persistentvolume-expander-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "persistentvolumeclaims")]);
    const WORKERS_MAX: usize = 4;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            let InformerEvent::Put { kind, entry, previous: Some(previous) } = event else {
                continue;
            };
            let decode = |entry| kind.decode(entry).unwrap_or_default();
            let size = |claim: &Object| crate::volumes::matching::requested(claim);
            let claim = decode(entry);
            if size(&claim) > size(&decode(previous)) && is_bound(&claim) {
                queue.add(name_of(entry));
            }
        }
        false
    }

    async fn sync(&self, (namespace, name): Key) -> Result<Option<Duration>, Failure> {
        let (Some(kind), Some(volumes)) = (
            self.client.kind("", "persistentvolumeclaims"),
            self.client.kind("", "persistentvolumes"),
        ) else {
            return Ok(None);
        };
        let known = self.client.registry.cached(&kind, &namespace, &name);
        let Some(claim) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        let volume = claim.str_at(&["spec", "volumeName"]);
        let volume = self
            .client
            .registry
            .cached(&volumes, "", volume)
            .map(|entry| volumes.decode(&entry))
            .transpose()?
            .unwrap_or_default();
        if volume.str_at(&["spec", "claimRef", "uid"]) != claim.uid() {
            return Ok(None);
        }
        let message = "waiting for an external controller to expand this PVC";
        // Only volumes of a CSI driver have somebody who could.
        let is_csi = volume.at(&["spec", "csi"]).is_some_and(keelson_meta::Value::is_map);
        let kind = if is_csi { "Normal" } else { "Warning" };
        self.events.about(&self.client, &claim, kind, ("ExternalExpanding", message));
        Ok(None)
    }
}

fn is_bound(claim: &Object) -> bool {
    claim.str_at(&["status", "phase"]) == "Bound"
}
