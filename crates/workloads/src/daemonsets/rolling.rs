//! Which old pods of a DaemonSet are replaced now: as many as may be unavailable, or as many as may
//! surge.

use super::manage::{Changes, View};
use super::placement::{Node, Verdict};
use super::pods::{ByNode, is_updated};
use crate::stored::count;
use keelson_meta::{Object, Str};
use std::collections::HashSet;

/// The pods of a node that are not being deleted: at most one new and one old one; `None` if there
/// are more, which are deleted first.
fn on_node<'p>(
    view: &View<'_>,
    pods: &'p [Object],
) -> Option<(Option<&'p Object>, Option<&'p Object>)> {
    let mut new = None;
    let mut old = None;
    for pod in pods.iter().filter(|pod| pod.deletion_timestamp().is_none()) {
        let place = if is_updated(pod, view.set, view.hash) { &mut new } else { &mut old };
        if place.replace(pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Decides which pods are deleted and which nodes get another one.
pub(super) fn changes<'n>(
    view: &View<'_>,
    nodes: impl Iterator<Item = &'n Node>,
    pods: &ByNode,
) -> Changes {
    let wanted = nodes.filter(|node| view.placement.judge(node) == Verdict::Run);
    let mut all: Vec<(Str, &[Object])> =
        pods.iter().map(|(name, pods)| (name.clone(), &pods[..])).collect();
    let mut names: HashSet<&Str> = HashSet::new();
    for node in wanted {
        names.insert(&node.name);
        if !pods.contains_key(&node.name) {
            all.push((node.name.clone(), &[]));
        }
    }
    let desired = count(names.len());
    let surge = view.limit("maxSurge", desired);
    let mut unavailable = view.limit("maxUnavailable", desired);
    if desired > 0 && surge == 0 && unavailable == 0 {
        unavailable = 1;
    }
    if surge == 0 {
        return in_place(view, &all, unavailable);
    }
    surging(view, &all, surge, &names)
}

fn take(names: Vec<Str>, most: i64) -> impl Iterator<Item = Str> {
    names.into_iter().take(usize::try_from(most).unwrap_or(0))
}

/// Old pods that are unavailable are deleted, and of the others as many as may become so.
fn in_place(view: &View<'_>, nodes: &[(Str, &[Object])], most: i64) -> Changes {
    let mut unavailable = 0;
    let mut changes = Changes::default();
    let mut candidates = vec![];
    for (_, pods) in nodes {
        match on_node(view, pods) {
            Some((Some(new), None)) => unavailable += i64::from(!view.is_available(new)),
            Some((None, Some(old))) if !view.is_available(old) => {
                changes.delete.push(old.name().into());
                unavailable += 1;
            }
            Some((None, Some(old))) => {
                if unavailable < most {
                    candidates.push(old.name().into());
                }
            }
            // Pods are missing or too many.
            _ => unavailable += 1,
        }
    }
    changes.delete.extend(take(candidates, most - unavailable));
    changes
}

/// Nodes whose old pod is unavailable get a new one, and of the others as many as may surge. An old
/// pod is deleted when the new one is available.
fn surging(
    view: &View<'_>,
    nodes: &[(Str, &[Object])],
    most: i64,
    wanted: &HashSet<&Str>,
) -> Changes {
    let mut surge = 0;
    let mut available = 0;
    let mut changes = Changes::default();
    let mut unwanted: Vec<Str> = vec![];
    let mut candidates: Vec<Str> = vec![];
    for (name, pods) in nodes {
        let Some((new, old)) = on_node(view, pods) else {
            surge += 1;
            continue;
        };
        available += i64::from(old.or(new).is_some_and(|pod| view.is_available(pod)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (view.is_available(old), wanted.contains(name)) {
                (false, false) => changes.delete.push(old.name().into()),
                (false, true) => changes.create.push(name.clone()),
                (true, false) => unwanted.push(old.name().into()),
                (true, true) if surge < most => candidates.push(name.clone()),
                (true, true) => {}
            },
            (Some(new), Some(_)) if !view.is_available(new) => surge += 1,
            (Some(_), Some(old)) => changes.delete.push(old.name().into()),
        }
    }
    changes.delete.extend(take(unwanted, available - count(wanted.len())));
    changes.create.extend(take(candidates, most - surge));
    changes
}

#[cfg(test)]
mod tests {
    use super::super::placement::Placement;
    use super::*;
    use keelson_meta::{Timestamp, Value, value};

    /// A pod by its name: `n1-old-ready`.
    fn pod(name: &str) -> Object {
        let words: Vec<&str> = name.split('-').collect();
        let ready = if words[2] == "ready" { "True" } else { "False" };
        let at = "2026-01-01T00:00:00Z";
        let pod = value!({
            "metadata": {"name": name, "labels": {"controller-revision-hash": (words[1])}},
            "spec": {"nodeName": (words[0])},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": at}]}
        });
        Object::from_value(pod).expect("a map")
    }

    fn check(limits: Value, pods: &[&str], create: &[&str], delete: &[&str]) {
        let set = value!({"spec": {
            "template": {"spec": {}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": (limits)}}});
        let set = Object::from_value(set).expect("a map");
        let placement = Placement::of(&set);
        let now = Timestamp::parse("2026-01-01T00:01:00Z").expect("a time");
        let view = View { set: &set, placement: &placement, hash: "new", now };
        let node = |name: &str| Node { name: name.into(), ..Node::default() };
        let nodes = ["n1", "n2", "n3"].map(node);
        let all: Vec<Object> = pods.iter().map(|name| pod(name)).collect();
        let got = changes(&view, nodes.iter(), &super::super::pods::by_node(&all));
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
    fn as_many_pods_are_replaced_as_may_be_unavailable() {
        let one = || value!({"maxUnavailable": 1, "maxSurge": 0});
        check(one(), &["n1-old-ready", "n2-old-ready", "n3-old-ready"], &[], &["n1-old-ready"]);
        check(one(), &["n1-old-ready", "n2-old-ready"], &[], &[]);
        check(one(), &["n1-new-no", "n2-old-ready", "n3-old-ready"], &[], &[]);
        check(one(), &["n1-old-no", "n2-old-no", "n3-old-ready"], &[], &["n1-old-no", "n2-old-no"]);
        let half = value!({"maxUnavailable": "50%", "maxSurge": 0});
        let all = ["n1-old-ready", "n2-old-ready", "n3-old-ready"];
        check(half, &all, &[], &["n1-old-ready", "n2-old-ready"]);
    }

    #[test]
    fn as_many_new_pods_run_beside_old_ones_as_may_surge() {
        let one = || value!({"maxUnavailable": 0, "maxSurge": 1});
        check(one(), &["n1-old-ready", "n2-old-ready", "n3-old-ready"], &["n1"], &[]);
        let started = ["n1-old-ready", "n1-new-no", "n2-old-ready", "n3-old-ready"];
        check(one(), &started, &[], &[]);
        let done = ["n1-old-ready", "n1-new-ready", "n2-old-ready", "n3-old-ready"];
        check(one(), &done, &["n2"], &["n1-old-ready"]);
        check(one(), &["n1-old-no", "n2-old-ready", "n3-new-ready"], &["n1", "n2"], &[]);
    }
}
