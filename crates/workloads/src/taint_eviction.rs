//! The taint eviction controller: deletes pods that do not tolerate a taint NoExecute of their
//! node, or not for longer.

use crate::pod_status;
use crate::pods_by_node::{PodsByNode, node_of};
use crate::stored::{Name, name_of};
use crate::taints::{Taint, Toleration};
use keelson_loops::client::{Client, InvolvedObject};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Object, Str, Timestamp};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Target};
use keelson_resources::Kind;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The source component of its events.
const COMPONENT: &str = "taint-eviction-controller";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    // Upstream, too, this loop has the rights of the node controller.
    let client = Client::new(&context.registry, "node-controller");
    let events = Recorder::new(&client, COMPONENT);
    let eviction =
        TaintEviction { client, events, pods: PodsByNode::default(), planned: Mutex::default() };
    control_loop::run(&context.registry, eviction).await;
}

struct TaintEviction {
    client: Client,
    events: Recorder,
    pods: PodsByNode,
    /// With the uid of the pod.
    planned: Mutex<HashMap<Name, (Str, Plan)>>,
}

/// What is planned for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// It will be evicted at this time.
    At(Timestamp),
    /// It was evicted.
    Done,
}

impl ControlLoop for TaintEviction {
    type Key = Name;
    const NAME: &'static str = "taint-eviction-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "nodes"), ("", "pods")]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Name>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Put { kind, entry, previous } if kind.gvr.resource == "nodes" => {
                    let before = previous.as_ref().map(|old| no_execute(kind, old));
                    if before.unwrap_or_default() != no_execute(kind, entry) {
                        queue.extend(self.pods.on(entry.name()));
                    }
                }
                InformerEvent::Listed(kind, _) if kind.gvr.resource == "nodes" => {}
                InformerEvent::Deleted { kind, .. } if kind.gvr.resource == "nodes" => {}
                event => self.observe_pods(event, queue),
            }
        }
        false
    }

    async fn sync(&self, pod: Name) -> Result<Option<Duration>, Failure> {
        let (Some(pods), Some(nodes)) =
            (self.client.kind("", "pods"), self.client.kind("", "nodes"))
        else {
            return Ok(None);
        };
        let Some(entry) = self.client.registry.cached(&pods, &pod.0, &pod.1) else {
            self.cancel(&pod);
            return Ok(None);
        };
        let node = node_of(&entry).and_then(|node| self.client.registry.cached(&nodes, "", node));
        let Some(node) = node else { return Ok(None) };
        let taints = no_execute(&nodes, &node);
        let object = pods.decode(&entry)?;
        let tolerated = tolerated(&taints, &Toleration::all(&object));
        let Tolerated::For(seconds) = tolerated else {
            self.cancel(&pod);
            return Ok(None);
        };
        let now = self.client.now();
        let uid = Str::new(object.uid());
        let known =
            self.planned().get(&pod).filter(|(known, _)| *known == uid).map(|known| known.1);
        let at = match known {
            Some(Plan::Done) => return Ok(None),
            // A longer toleration of a further taint does not delay what is planned.
            Some(Plan::At(at)) if seconds > 0 => at,
            Some(Plan::At(_)) => {
                self.cancel(&pod);
                now
            }
            None => now.plus(GoDuration::from_seconds(seconds)),
        };
        if let Ok(wait) = u64::try_from(at.since(now).0)
            && wait > 0
        {
            self.planned().insert(pod, (uid, Plan::At(at)));
            return Ok(Some(Duration::from_nanos(wait)));
        }
        self.evict(&pod, &Target::of(&pods, &pod.0, &pod.1)).await?;
        self.planned().insert(pod, (uid, Plan::Done));
        Ok(None)
    }
}

/// Returns the taints NoExecute of a node.
fn no_execute(kind: &Kind, node: &Entry) -> Vec<Taint> {
    if memchr::memmem::find(&node.json_slice(), b"\"NoExecute\"").is_none() {
        return vec![];
    }
    let node = kind.decode(node).unwrap_or_default();
    Taint::all(&node).into_iter().filter(|taint| taint.effect == "NoExecute").collect()
}

/// How long taints are tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tolerated {
    Forever,
    /// Seconds; 0: not at all.
    For(i64),
}

/// Returns how long all taints are tolerated. Each is tolerated by the first toleration that
/// matches it; the shortest of these counts.
fn tolerated(taints: &[Taint], tolerations: &[Toleration]) -> Tolerated {
    let mut shortest = Tolerated::Forever;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|one| one.covers(taint)) else {
            return Tolerated::For(0);
        };
        if let Some(seconds) = toleration.seconds {
            let seconds = seconds.max(0);
            shortest = match shortest {
                Tolerated::For(known) => Tolerated::For(known.min(seconds)),
                Tolerated::Forever => Tolerated::For(seconds),
            };
        }
    }
    shortest
}

impl TaintEviction {
    fn planned(&self) -> std::sync::MutexGuard<'_, HashMap<Name, (Str, Plan)>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe_pods(&self, event: &InformerEvent, queue: &mut Queue<Name>) {
        self.pods.observe(event);
        match event {
            InformerEvent::Listed(_, all) => {
                let bound = all.range("", "").filter(|entry| node_of(entry).is_some());
                queue.extend(bound.map(name_of));
            }
            InformerEvent::Put { entry, previous, .. } => {
                // Tolerations are only added, together with others for which a pod is updated.
                let is_bound = node_of(entry).is_some();
                let was_bound = previous.as_ref().is_some_and(|old| node_of(old).is_some());
                let is_same =
                    was_bound && previous.as_ref().is_some_and(|old| has_same_spec(old, entry));
                if is_bound && !is_same {
                    queue.add(name_of(entry));
                }
            }
            InformerEvent::Deleted { entry, .. } => {
                if self.planned().contains_key(&name_of(entry)) {
                    queue.add(name_of(entry));
                }
            }
            InformerEvent::Withdrawn(_) => {}
        }
    }

    /// Forgets what was planned for a pod.
    fn cancel(&self, pod: &Name) {
        if let Some((_, Plan::At(_))) = self.planned().remove(pod) {
            self.event(pod, "Cancelling deletion of Pod");
        }
    }

    fn event(&self, (namespace, name): &Name, what: &str) {
        let involved = InvolvedObject {
            kind: "Pod",
            api_version: "v1",
            namespace,
            name,
            ..InvolvedObject::default()
        };
        let message = format!("{what} {namespace}/{name}");
        let reason = "TaintManagerEviction";
        self.events.record(self.client.now(), &involved, "Normal", reason, &message);
    }

    async fn evict(&self, pod: &Name, target: &Target) -> Result<(), Failure> {
        self.event(pod, "Marking for deletion Pod");
        let Some(before) = self.client.get(target).await? else { return Ok(()) };
        let mut changed: Object = before.clone();
        let message = "Taint manager: deleting due to NoExecute taint";
        let reason = "DeletionByTaintManager";
        let now = self.client.now();
        if pod_status::set_disruption_target(&mut changed, reason, message, now) {
            pod_status::patch(&self.client, &target.kind, &before, &changed).await?;
        }
        match self.client.delete(target, &DeleteOptions::default()).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether two states of a pod have the same generation: what was asked for has not changed.
fn has_same_spec(old: &Entry, new: &Entry) -> bool {
    let generation = |entry: &Entry| {
        let text = &*entry.json_slice();
        let at = memchr::memmem::find(text, b"\"generation\":")?;
        let digits = text.get(at + 13..)?.iter().take_while(|byte| byte.is_ascii_digit());
        Some(digits.copied().collect::<Vec<u8>>())
    };
    generation(old).is_some() && generation(old) == generation(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    #[test]
    fn the_shortest_toleration_counts() {
        let check = |tolerations: Value, want: Tolerated| {
            let taints = value!([
                {"key": "a", "value": "1", "effect": "NoExecute"},
                {"key": "b", "effect": "NoExecute"}]);
            let taints = Taint::list(taints.as_array().unwrap_or_default());
            let parsed = Toleration::list(tolerations.as_array().unwrap_or_default());
            let found = tolerated(&taints, &parsed);
            assert_eq!(found, want, "{tolerations:?}");
        };
        check(value!([]), Tolerated::For(0));
        check(value!([{"operator": "Exists"}]), Tolerated::Forever);
        check(value!([{"key": "a", "value": "1"}]), Tolerated::For(0));
        check(value!([{"key": "a", "value": "2"}, {"key": "b"}]), Tolerated::For(0));
        check(
            value!([{"key": "a", "operator": "Exists", "tolerationSeconds": 9},
                {"key": "b", "effect": "NoExecute", "tolerationSeconds": 5}]),
            Tolerated::For(5),
        );
        check(
            value!([{"key": "a", "operator": "Exists", "tolerationSeconds": 9},
                {"operator": "Exists", "effect": "NoExecute"}]),
            Tolerated::For(9),
        );
        check(value!([{"operator": "Exists", "effect": "NoSchedule"}]), Tolerated::For(0));
    }
}
