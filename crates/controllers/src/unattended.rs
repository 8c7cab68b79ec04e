//! Warns about workloads that nobody works on: a server without kube-controller-manager stores a
//! Deployment, and no Pod ever comes of it. An event on the object says so, once.
//!
//! kube-apiserver has no such loop. It runs in `keelson serve` only, and not with `--simulate`.

use keelson_loops::client::{Client, EventText, InvolvedObject};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Object, Str, Timestamp};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Registry};
use keelson_resources::Kind;
use std::sync::Arc;
use std::time::Duration;

/// The name of the loop.
pub const NAME: &str = "unattended-workload-controller";
/// The source component of its events.
const COMPONENT: &str = "keelson";
/// Time that a controller gets to take a new object up.
const DELAY_SECONDS: i64 = 5;
const RESOURCES: &[(&str, &str)] = &[
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("", "replicationcontrollers"),
];

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::api_server(&registry);
    let began = client.now();
    control_loop::run(&registry, Unattended { client, began }).await;
}

struct Unattended {
    client: Client,
    /// The start of the loop. Objects that are older had their event before.
    began: Timestamp,
}

/// An object: its group, resource, namespace and name.
type Key = (Str, Str, Str, Str);

impl ControlLoop for Unattended {
    type Key = Key;
    const NAME: &'static str = NAME;
    const SCOPE: InformerScope = InformerScope::Only(RESOURCES);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        let mut add = |kind: &Kind, entry: &Entry| {
            let group = kind.gvr.group.clone();
            let resource = kind.gvr.resource.clone();
            queue.add((group, resource, entry.namespace().into(), entry.name().into()));
        };
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => {
                    all.range("", "").for_each(|entry| add(kind, entry));
                }
                // Whatever changes later, its event was created, or somebody works on it.
                InformerEvent::Put { kind, entry, previous: None } => add(kind, entry),
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        let (group, resource, namespace, name) = key;
        let Some(kind) = self.client.kind(&group, &resource) else { return Ok(None) };
        let known = self.client.registry.cached(&kind, &namespace, &name);
        let Some(entry) = known else { return Ok(None) };
        let object = kind.decode(&entry)?;
        let created = Timestamp::parse(object.creation_timestamp()).unwrap_or_default();
        if created.seconds < self.began.seconds || !waits_for_controller(&object) {
            return Ok(None);
        }
        let due = created.plus(GoDuration::from_seconds(DELAY_SECONDS));
        let left = due.since(self.client.now()).0;
        if left > 0 {
            return Ok(Some(Duration::from_nanos(left.unsigned_abs())));
        }
        let message = format!(
            "Nothing works on this {}: neither a kube-controller-manager nor --simulate runs on this server.",
            object.kind()
        );
        let text = EventText { kind: "Warning", reason: "NoController", message: &message };
        self.client.record_event(COMPONENT, &InvolvedObject::of(&object), text).await;
        Ok(None)
    }
}

/// Whether a workload looks as its client has created it, and another object's controller does not
/// own it.
fn waits_for_controller(object: &Object) -> bool {
    let at = |path: &[&str]| object.at(path).is_some_and(|value| !value.is_null());
    let is_left_alone = at(&["spec", "managedBy"])
        || object.at(&["spec", "suspend"]).and_then(|value| value.as_bool()) == Some(true);
    let is_taken_up = ["observedGeneration", "startTime", "lastScheduleTime", "conditions"]
        .iter()
        .any(|field| at(&["status", field]));
    object.controller().is_none() && !is_left_alone && !is_taken_up
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    #[test]
    fn a_workload_waits_until_somebody_has_taken_it_up() {
        let check = |fields: Value, want: bool| {
            let object = Object::from_value(fields.clone()).expect("a map");
            assert_eq!(waits_for_controller(&object), want, "{fields:?}");
        };
        check(value!({"status": {}}), true);
        check(value!({"status": {"observedGeneration": 1}}), false);
        check(value!({"status": {"startTime": "2026-01-01T00:00:00Z"}}), false);
        check(value!({"spec": {"suspend": true}}), false);
        check(value!({"spec": {"managedBy": "example.com/other"}}), false);
        let owner = value!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": true}]);
        check(value!({"metadata": {"ownerReferences": (owner)}}), false);
    }
}
