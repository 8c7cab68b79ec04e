//! [`decide`]: where a pod is placed, or why it is not. A pure function of the cluster and the pod,
//! but for the choice between equal nodes.

use super::cluster::{Cluster, View};
use super::devices::{Allocation, ClaimKey};
use super::filters::{Check, Plugin, PodRejection, Rejection};
use super::node::Node;
use super::pod::{Pod, Wishes};
use super::preemption::{self, Budget, Preemption};
use super::scores::scores;
use super::search::{Search, histogram};
use super::volumes::Binding;
use keelson_meta::Str;
use std::collections::BTreeSet;

/// Clusters up to this size are searched as a whole.
const WHOLE_SEARCH_NODES_MAX: usize = 100;

/// What is decided about a pod.
#[derive(Debug)]
pub enum Decision {
    /// It is placed on a node.
    Placed { node: Str, bindings: Vec<Binding>, devices: Vec<(ClaimKey, Allocation)> },
    /// It is not tried until something else has been done.
    Waiting,
    /// No node is allowed.
    Unschedulable(Unschedulable),
}

/// Why no node is allowed.
#[derive(Debug)]
pub struct Unschedulable {
    pub message: String,
    /// The plugins that could allow the pod after a change.
    pub plugins: BTreeSet<Plugin>,
    /// Pods that end to make room.
    pub preemption: Option<Preemption>,
    /// Whether the pod waits for room nowhere any more.
    pub clears_nomination: bool,
}

/// Returns how many allowed nodes are enough.
fn enough(nodes: usize) -> usize {
    if nodes < WHOLE_SEARCH_NODES_MAX {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(WHOLE_SEARCH_NODES_MAX)
}

/// Decides where a pod is placed.
pub fn decide(
    cluster: &Cluster,
    budgets: &dyn Fn() -> Vec<Budget>,
    pod: &Pod,
    wishes: &Wishes,
    search: &mut Search,
) -> Decision {
    if !cluster.devices.has_all(pod, wishes.device_claims.as_deref()) {
        return Decision::Waiting;
    }
    let all = cluster.nodes().len();
    if all == 0 {
        return Decision::Unschedulable(Unschedulable {
            message: "no nodes available to schedule pods".to_owned(),
            plugins: BTreeSet::new(),
            preemption: None,
            clears_nomination: false,
        });
    }
    let check = match Check::of(View::of(cluster), pod, wishes) {
        Ok(check) => check,
        Err(rejection) => {
            return Decision::Unschedulable(rejected_everywhere(all, rejection));
        }
    };
    let placed = |node: &Node| {
        let bindings = check.volumes().map(|volumes| volumes.bindings(&cluster.volumes, node));
        let devices = check.devices().and_then(|devices| devices.allocate(node).ok());
        Decision::Placed {
            node: node.name.clone(),
            bindings: bindings.and_then(Result::ok).unwrap_or_default(),
            devices: devices.unwrap_or_default(),
        }
    };
    let nominated =
        Some(&wishes.nominated).filter(|name| !name.is_empty()).and_then(|name| cluster.node(name));
    if let Some(node) = nominated.filter(|node| check.rejection(node).is_none()) {
        return placed(node);
    }
    let found = search_nodes(cluster, &check, wishes, search);
    match found.allowed[..] {
        [] => Decision::Unschedulable(unschedulable(cluster, budgets, pod, wishes, found, search)),
        [only] => placed(only),
        _ => {
            let scores = scores(cluster, pod, wishes, &found.allowed);
            let most = scores.iter().max().copied().unwrap_or(0);
            let best: Vec<&Node> = found
                .allowed
                .iter()
                .zip(&scores)
                .filter(|(_, score)| **score == most)
                .map(|(node, _)| *node)
                .collect();
            if tracing::enabled!(tracing::Level::DEBUG) {
                let names: Vec<&str> = best.iter().map(|node| node.name.as_str()).collect();
                tracing::debug!(pod = %pod.key.1, ?names, "equally good nodes");
            }
            placed(best[search.below(best.len())])
        }
    }
}

/// Allowed nodes, and why others are not.
struct Found<'a> {
    allowed: Vec<&'a Node>,
    rejections: Vec<(&'a Node, Rejection)>,
    /// How many nodes were left out because the pod names others.
    left_out: usize,
}

fn search_nodes<'a>(
    cluster: &'a Cluster,
    check: &Check<'_>,
    wishes: &Wishes,
    search: &mut Search,
) -> Found<'a> {
    let mut found = Found { allowed: vec![], rejections: vec![], left_out: 0 };
    let all = cluster.nodes();
    let named = wishes.node_affinity.names();
    let candidates: Vec<&Node> = match &named {
        Some(names) => names.iter().filter_map(|name| cluster.node(name)).collect(),
        None => vec![],
    };
    let count = if named.is_some() { candidates.len() } else { all.len() };
    found.left_out = all.len() - count;
    let enough = enough(count);
    for step in 0..count {
        let place = (search.next + step) % count;
        let node = if named.is_some() { candidates[place] } else { &all[place] };
        match check.rejection(node) {
            Some(rejection) => found.rejections.push((node, rejection)),
            None => found.allowed.push(node),
        }
        if found.allowed.len() >= enough {
            break;
        }
    }
    search.next = (search.next + found.allowed.len() + found.rejections.len()) % all.len();
    found
}

/// Returns the report about a pod that no node can help. Nothing is preempted for it.
fn rejected_everywhere(all: usize, rejection: PodRejection) -> Unschedulable {
    let reason = rejection.reason;
    Unschedulable {
        // What is wrong with the devices of the pod was not looked at.
        message: format!("0/{all} nodes are available: {reason}. not found"),
        plugins: BTreeSet::from([rejection.plugin]),
        preemption: None,
        clears_nomination: false,
    }
}

fn unschedulable(
    cluster: &Cluster,
    budgets: &dyn Fn() -> Vec<Budget>,
    pod: &Pod,
    wishes: &Wishes,
    found: Found<'_>,
    search: &mut Search,
) -> Unschedulable {
    let all = cluster.nodes().len();
    let left_out =
        (Str::new_static("node(s) didn't satisfy plugin(s) [NodeAffinity]"), found.left_out);
    let reasons = found
        .rejections
        .iter()
        .flat_map(|(_, rejection)| &rejection.reasons)
        .map(|reason| (reason.clone(), 1))
        .chain([left_out].into_iter().filter(|(_, count)| *count > 0));
    let mut message = histogram(all, reasons);
    let mut plugins: BTreeSet<Plugin> =
        found.rejections.iter().map(|(_, rejection)| rejection.plugin).collect();
    if found.left_out > 0 {
        plugins.insert(Plugin::NodeAffinity);
    }
    let (preemption, clears_nomination) =
        match preemption::preempt(cluster, budgets, pod, wishes, &found.rejections, search) {
            Ok(preemption) => (Some(preemption), false),
            Err(refusal) => {
                // The devices of the pod are looked at first.
                let has_claims = wishes.device_claims.as_ref().is_some_and(|all| !all.is_empty());
                message.push_str(if has_claims {
                    " still not schedulable, preemption: "
                } else {
                    " no new claims to deallocate, preemption: "
                });
                message.push_str(&refusal.message);
                (None, refusal.clears_nomination)
            }
        };
    Unschedulable { message, plugins, preemption, clears_nomination }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
