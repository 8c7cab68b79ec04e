//! Which pods of a DaemonSet are missing on nodes, and which are too many there.

use super::placement::{Node, Placement, Verdict};
use super::pods::{ByNode, REVISION_LABEL, by_age};
use crate::pod_facts::{is_available, phase};
use keelson_loops::int_or_percent::{Rounding, resolve};
use keelson_loops::pods::is_ready;
use keelson_meta::{Object, Str, Timestamp};
use std::collections::HashSet;

/// What is done about the pods of a set.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Names of nodes that get a pod.
    pub create: Vec<Str>,
    /// Names of pods.
    pub delete: Vec<Str>,
    /// Failed and succeeded pods, with their nodes: deleted too, the failed ones with backoff.
    pub ended: Vec<(Str, Object)>,
}

/// A set with what decisions about its pods need.
pub(super) struct View<'s> {
    pub set: &'s Object,
    pub placement: &'s Placement,
    /// The hash of the present revision.
    pub hash: &'s str,
    pub now: Timestamp,
}

impl View<'_> {
    /// Returns `minReadySeconds`.
    pub fn seconds(&self) -> i64 {
        self.set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0)
    }

    /// Whether a pod is available.
    pub fn is_available(&self, pod: &Object) -> bool {
        is_available(pod, self.seconds(), self.now)
    }

    /// Returns a limit of the rolling update for this number of nodes.
    pub fn limit(&self, name: &str, nodes: i64) -> i64 {
        let strategy = ["spec", "updateStrategy"];
        if self.set.str_at(&[strategy[0], strategy[1], "type"]) != "RollingUpdate" {
            return 0;
        }
        let limit = self.set.at(&[strategy[0], strategy[1], "rollingUpdate", name]);
        resolve(limit, nodes, Rounding::Up)
    }
}

/// Decides about all nodes.
pub(super) fn changes<'n>(
    view: &View<'_>,
    nodes: impl Iterator<Item = &'n Node> + Clone,
    pods: &ByNode,
) -> Changes {
    let mut changes = Changes::default();
    for node in nodes.clone() {
        on_node(view, node, pods.get(&node.name), &mut changes);
    }
    // The scheduler never places pods for nodes that do not exist, and nobody else deletes them.
    let names: HashSet<&Str> = nodes.map(|node| &node.name).collect();
    for (_, pods) in pods.iter().filter(|(name, _)| !names.contains(name)) {
        let unbound = pods.iter().filter(|pod| pod.str_at(&["spec", "nodeName"]).is_empty());
        changes.delete.extend(unbound.map(|pod| Str::new(pod.name())));
    }
    changes
}

fn on_node(view: &View<'_>, node: &Node, pods: Option<&Vec<Object>>, changes: &mut Changes) {
    let name = |pod: &Object| Str::new(pod.name());
    let alive = |pod: &&Object| pod.deletion_timestamp().is_none();
    let verdict = view.placement.judge(node);
    let pods = match (verdict, pods) {
        (Verdict::Run, None) => return changes.create.push(node.name.clone()),
        (Verdict::Leave, Some(pods)) => {
            return changes.delete.extend(pods.iter().filter(alive).map(name));
        }
        (_, None) => return,
        (_, Some(pods)) => pods,
    };
    let (ended, mut running): (Vec<Object>, Vec<Object>) = pods
        .iter()
        .filter(alive)
        .cloned()
        .partition(|pod| matches!(phase(pod), "Failed" | "Succeeded"));
    changes.ended.extend(ended.into_iter().map(|pod| (node.name.clone(), pod)));
    running.sort_by(by_age);
    if view.limit("maxSurge", 1) <= 0 {
        changes.delete.extend(running.iter().skip(1).map(name));
    } else if running.len() > 1 {
        changes.delete.extend(surplus(view, &running));
    } else if running.is_empty() && verdict == Verdict::Run {
        changes.create.push(node.name.clone());
    }
}

/// Returns the surplus pods of a node where a new one may run beside an old one.
fn surplus(view: &View<'_>, running: &[Object]) -> Vec<Str> {
    let is_new = |pod: &Object| pod.label(REVISION_LABEL) == Some(view.hash);
    let mut new: Option<&Object> = None;
    let mut old: Option<&Object> = None;
    let mut surplus: Vec<Str> = vec![];
    for pod in running {
        let kept = if is_new(pod) { &mut new } else { &mut old };
        match kept {
            None => *kept = Some(pod),
            Some(_) => surplus.push(pod.name().into()),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!is_ready(old) || view.is_available(new))
    {
        surplus.push(old.name().into());
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    fn set(surge: i64) -> Object {
        let set = value!({"spec": {
            "template": {"spec": {}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge}}}});
        Object::from_value(set).expect("a map")
    }

    fn pod(name: &str, hash: &str, phase: &str, is_ready: bool) -> Object {
        let ready = if is_ready { "True" } else { "False" };
        let at = "2026-01-01T00:00:00Z";
        let pod = value!({
            "metadata": {"name": name, "labels": {"controller-revision-hash": hash}},
            "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": at}]}
        });
        Object::from_value(pod).expect("a map")
    }

    fn check(surge: i64, pods: &[Object], taints: Value, create: &[&str], delete: &[&str]) {
        let set = set(surge);
        let placement = Placement::of(&set);
        let now = Timestamp::parse("2026-01-01T00:01:00Z").expect("a time");
        let view = View { set: &set, placement: &placement, hash: "new", now };
        let node = value!({"metadata": {"name": "n1"}, "spec": {"taints": (taints)}});
        let node = Node::of(&Object::from_value(node).expect("a map"));
        let by_node = super::super::pods::by_node(pods);
        let got = changes(&view, [&node].into_iter(), &by_node);
        assert_eq!(
            (&got.create[..], &got.delete[..]),
            (
                &create.iter().map(Str::new).collect::<Vec<_>>()[..],
                &delete.iter().map(Str::new).collect::<Vec<_>>()[..],
            ),
            "{pods:?}"
        );
    }

    #[test]
    fn a_node_has_one_pod() {
        let taint = || value!([{"key": "k", "effect": "NoExecute"}]);
        check(0, &[], value!([]), &["n1"], &[]);
        check(0, &[], taint(), &[], &[]);
        let a = pod("a", "old", "Running", true);
        let b = pod("b", "new", "Running", true);
        check(0, std::slice::from_ref(&a), value!([]), &[], &[]);
        check(0, std::slice::from_ref(&a), taint(), &[], &["a"]);
        check(0, &[b, a], value!([]), &[], &["b"]);
    }

    #[test]
    fn with_surge_an_old_pod_stays_until_the_new_one_is_available() {
        let new = |is_ready| pod("new", "new", "Running", is_ready);
        let old = |is_ready| pod("old", "old", "Running", is_ready);
        check(1, &[old(true), new(false)], value!([]), &[], &[]);
        check(1, &[old(true), new(true)], value!([]), &[], &["old"]);
        check(1, &[old(false), new(false)], value!([]), &[], &["old"]);
    }
}
