//! The pod garbage collector: deletes pods that nobody will end: those of nodes that are gone or
//! out of service, those that were deleted before they had a node, and ended pods if there are too
//! many.

use crate::pod_status;
use crate::pods_by_node::node_of;
use crate::stored::name_of;
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Value};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Target};
use keelson_resources::Kind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time between two sweeps.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be missing before its pods are deleted.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Number of ended pods that are kept.
const ENDED_PODS_MAX: usize = 12_500;
/// The taint of a node that is known to be off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "pod-garbage-collector");
    let collector = PodGarbage { client, missing: Mutex::default() };
    control_loop::run(&context.registry, collector).await;
}

struct PodGarbage {
    client: Client,
    /// Nodes that pods are bound to and that do not exist, with the end of their quarantine.
    missing: Mutex<HashMap<Str, Instant>>,
}

/// The only unit of work: a look at all pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sweep;

impl ControlLoop for PodGarbage {
    type Key = Sweep;
    const NAME: &'static str = "pod-garbage-collector-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "pods")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Sweep>) -> bool {
        // A pod that has no node is not waited for, since nobody will end it.
        let needs_sweep = |event: &InformerEvent| match event {
            InformerEvent::Listed(..) => true,
            InformerEvent::Put { entry, .. } => node_of(entry).is_none() && may_be_deleted(entry),
            _ => false,
        };
        if events.iter().any(needs_sweep) {
            queue.add(Sweep);
        }
        false
    }

    async fn sync(&self, _: Sweep) -> Result<Option<Duration>, Failure> {
        let (Some(pods), Some(nodes)) =
            (self.client.kind("", "pods"), self.client.kind("", "nodes"))
        else {
            return Ok(Some(PERIOD));
        };
        let gone = self.gone_nodes(&pods, &nodes).await?;
        let registry = &self.client.registry;
        let doomed: Vec<(Entry, bool)> = {
            let all = registry.cached_all(&pods);
            let mut ended: Vec<&Entry> = all.range("", "").filter(|pod| has_ended(pod)).collect();
            let excess = ended.len().saturating_sub(ENDED_PODS_MAX);
            if excess > 0 {
                ended.sort_by_cached_key(|pod| age_rank(&pods.decode(pod).unwrap_or_default()));
            }
            let ended = ended.into_iter().take(excess).map(|pod| (pod.clone(), false));
            let others = all.range("", "").filter_map(|pod| {
                let is_orphan = node_of(pod).is_some_and(|node| gone.iter().any(|one| one == node));
                let is_doomed = is_orphan || self.is_stuck(&pods, &nodes, pod);
                is_doomed.then(|| (pod.clone(), is_orphan))
            });
            ended.chain(others).collect()
        };
        for (entry, is_orphan) in doomed {
            // The others are tried all the same; this one is met again in the next sweep.
            if let Err(error) = self.end(&pods, &entry, is_orphan).await {
                let (namespace, name) = name_of(&entry);
                tracing::warn!(%namespace, %name, %error, "pod not collected");
            }
        }
        Ok(Some(PERIOD))
    }
}

/// Whether a pod may be in deletion; false: it is not.
fn may_be_deleted(pod: &Entry) -> bool {
    memchr::memmem::find(&pod.json_slice(), b"\"deletionTimestamp\":").is_some()
}

fn has_ended(pod: &Entry) -> bool {
    !matches!(pod.field("status.phase"), Some("Pending" | "Running" | "Unknown"))
}

/// Orders ended pods: evicted ones first, then old ones.
fn age_rank(pod: &Object) -> (bool, String, String) {
    let is_evicted = pod.str_at(&["status", "phase"]) == "Failed"
        && pod.str_at(&["status", "reason"]) == "Evicted";
    (!is_evicted, pod.creation_timestamp().to_owned(), pod.name().to_owned())
}

impl PodGarbage {
    /// Returns the nodes that pods are bound to and that have not existed for some time.
    async fn gone_nodes(&self, pods: &Kind, nodes: &Arc<Kind>) -> Result<Vec<Str>, Failure> {
        let registry = &self.client.registry;
        let now = registry.clock.monotonic();
        let due: Vec<Str> = {
            let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            let all = registry.cached_all(pods);
            for node in all.range("", "").filter_map(node_of) {
                if !missing.contains_key(node) && registry.cached(nodes, "", node).is_none() {
                    missing.insert(node.into(), now + QUARANTINE);
                }
            }
            let due = missing.extract_if(|_, at| *at <= now).map(|(node, _)| node);
            due.collect()
        };
        let mut gone = vec![];
        for node in due {
            if self.client.entry(&Target::of(nodes, "", &node)).await?.is_none() {
                gone.push(node);
            }
        }
        Ok(gone)
    }

    /// Whether a pod is being deleted and nobody will end it.
    fn is_stuck(&self, pods: &Kind, nodes: &Kind, entry: &Entry) -> bool {
        if !may_be_deleted(entry) {
            return false;
        }
        let pod = pods.decode(entry).unwrap_or_default();
        if pod.deletion_timestamp().is_none() {
            return false;
        }
        let Some(node) = node_of(entry) else { return true };
        let node = self.client.registry.cached(nodes, "", node);
        node.is_some_and(|node| is_out_of_service(&nodes.decode(&node).unwrap_or_default()))
    }

    /// Marks a pod as failed and deletes it at once.
    async fn end(&self, kind: &Arc<Kind>, entry: &Entry, is_orphan: bool) -> Result<(), Failure> {
        let before = kind.decode(entry)?;
        if !matches!(before.str_at(&["status", "phase"]), "Succeeded" | "Failed") {
            let mut pod = before.clone();
            let generation = pod.generation();
            let status = pod.object_mut("status");
            status.insert("phase", "Failed");
            if generation > 0 {
                status.insert("observedGeneration", generation);
            }
            if is_orphan {
                let reason = "DeletionByPodGC";
                let message = "PodGC: node no longer exists";
                let now = self.client.now();
                pod_status::set_disruption_target(&mut pod, reason, message, now);
            }
            pod_status::patch(&self.client, kind, &before, &pod).await?;
        }
        let target = Target::of(kind, before.namespace(), before.name());
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        match self.client.delete(&target, &options).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_out_of_service(node: &Object) -> bool {
    let conditions = node.array_at(&["status", "conditions"]).iter();
    let is_ready = |one: &Value| {
        one.str_at(&["type"]) == Some("Ready") && one.str_at(&["status"]) == Some("True")
    };
    let mut taints = node.array_at(&["spec", "taints"]).iter();
    !conditions.into_iter().any(is_ready)
        && taints.any(|taint| taint.str_at(&["key"]) == Some(OUT_OF_SERVICE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_node_is_out_of_service_if_it_says_so_and_is_not_ready() {
        let check = |ready: &str, key: &str, want: bool| {
            let node = value!({"spec": {"taints": [{"key": key}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            let node = Object::from_value(node).expect("a map");
            assert_eq!(is_out_of_service(&node), want, "{ready} {key}");
        };
        check("Unknown", OUT_OF_SERVICE, true);
        check("True", OUT_OF_SERVICE, false);
        check("False", "other", false);
    }

    #[test]
    fn evicted_pods_are_collected_first() {
        let pod = |name: &str, reason: &str, created: &str| {
            Object::from_value(value!({"metadata": {"name": name, "creationTimestamp": created},
                "status": {"phase": "Failed", "reason": reason}}))
            .expect("a map")
        };
        let mut pods = [
            pod("c", "", "2026-01-02T00:00:00Z"),
            pod("b", "", "2026-01-01T00:00:00Z"),
            pod("a", "", "2026-01-01T00:00:00Z"),
            pod("d", "Evicted", "2026-01-03T00:00:00Z"),
        ];
        pods.sort_by_cached_key(age_rank);
        assert_eq!(pods.each_ref().map(Object::name), ["d", "a", "b", "c"]);
    }
}
