//! The status of a DaemonSet.

use super::manage::View;
use super::placement::{Node, Verdict};
use super::pods::{ByNode, by_age, is_updated};
use crate::stored::{set_count, status};
use keelson_loops::pods::is_ready;
use keelson_meta::Map;

/// Returns the status of a set with these pods.
pub(super) fn status_of<'n>(
    view: &View<'_>,
    nodes: impl Iterator<Item = &'n Node>,
    pods: &ByNode,
) -> Map {
    let mut desired = 0;
    let mut current = 0;
    let mut misplaced = 0;
    let mut ready = 0;
    let mut updated = 0;
    let mut available = 0;
    for node in nodes {
        let oldest = pods.get(&node.name).and_then(|pods| pods.iter().min_by(|a, b| by_age(a, b)));
        if view.placement.judge(node) != Verdict::Run {
            misplaced += i64::from(oldest.is_some());
            continue;
        }
        desired += 1;
        let Some(pod) = oldest else { continue };
        current += 1;
        ready += i64::from(is_ready(pod));
        available += i64::from(view.is_available(pod));
        updated += i64::from(is_updated(pod, view.set, view.hash));
    }
    let mut status = status(view.set);
    status.insert("currentNumberScheduled", current);
    status.insert("numberMisscheduled", misplaced);
    status.insert("desiredNumberScheduled", desired);
    status.insert("numberReady", ready);
    set_count(&mut status, "observedGeneration", view.set.generation());
    set_count(&mut status, "updatedNumberScheduled", updated);
    set_count(&mut status, "numberAvailable", available);
    set_count(&mut status, "numberUnavailable", desired - available);
    status
}
