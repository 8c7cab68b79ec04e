//! Topology spread constraints: which nodes they allow, and their scores.

use super::cluster::{Cluster, View};
use super::node::Node;
use super::pod::{Pod, Wishes};
use super::shares::{share, truncated};
use super::spread_constraints::Constraint;
use crate::taints;
use keelson_meta::Str;
use std::collections::HashMap;

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The constraints of pods that have none: topology key and skew.
const DEFAULTS: [(&str, i64); 2] = [(HOSTNAME, 3), ("topology.kubernetes.io/zone", 5)];

impl Constraint {
    /// Whether pods of a node count.
    fn includes(&self, node: &Node, wishes: &Wishes) -> bool {
        (!self.honors_affinity || wishes.node_affinity.matches(&node.name, &node.labels))
            && (!self.honors_taints
                || taints::untolerated(&node.taints, &wishes.tolerations).is_none())
    }

    /// Returns the number of pods of a node that match.
    fn count(&self, node: &Node, namespace: &str) -> i64 {
        if self.selector.is_nothing() {
            return 0;
        }
        let matching = node.pods.iter().filter(|pod| {
            pod.key.0 == namespace
                && !pod.is_terminating
                && self.selector.matches(|key| pod.label(key))
        });
        i64::try_from(matching.count()).unwrap_or(i64::MAX)
    }
}

/// What the constraints of a pod say about nodes.
#[derive(Debug)]
pub struct SpreadCheck<'a> {
    /// Each with the number of pods by the value of its key, and the least of these numbers.
    hard: Vec<(&'a Constraint, HashMap<Str, i64>, i64)>,
}

/// Why a node is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadConflict {
    MissingLabel,
    Skew,
}

impl<'a> SpreadCheck<'a> {
    /// Counts pods; `None` if the pod has no hard constraint.
    pub fn of(view: View<'_>, pod: &Pod, wishes: &'a Wishes) -> Option<SpreadCheck<'a>> {
        let hard: Vec<&Constraint> = wishes.constraints.iter().filter(|one| one.is_hard).collect();
        if hard.is_empty() {
            return None;
        }
        let mut counts: Vec<HashMap<Str, i64>> = vec![HashMap::new(); hard.len()];
        for node in view.nodes() {
            if hard.iter().any(|one| node.label(&one.topology_key).is_none()) {
                continue;
            }
            for (one, counts) in hard.iter().zip(&mut counts) {
                if !one.includes(node, wishes) {
                    continue;
                }
                if let Some(value) = node.label(&one.topology_key) {
                    *counts.entry(value.into()).or_default() += one.count(node, &pod.key.0);
                }
            }
        }
        let least = |one: &Constraint, counts: &HashMap<Str, i64>| {
            let least = counts.values().min().copied().unwrap_or(0);
            if counts.len() < one.min_domains { 0 } else { least }
        };
        let hard = hard.into_iter().zip(counts).map(|(one, counts)| {
            let least = least(one, &counts);
            (one, counts, least)
        });
        Some(SpreadCheck { hard: hard.collect() })
    }

    /// Returns why a node is not allowed.
    pub fn conflict(&self, pod: &Pod, node: &Node) -> Option<SpreadConflict> {
        for (one, counts, least) in &self.hard {
            let Some(value) = node.label(&one.topology_key) else {
                return Some(SpreadConflict::MissingLabel);
            };
            let own = i64::from(one.selector.matches(|key| pod.label(key)));
            let skew = counts.get(value).copied().unwrap_or(0) + own - least;
            if skew > one.max_skew {
                return Some(SpreadConflict::Skew);
            }
        }
        None
    }
}

/// Returns a score from 0 to 100 for each of `nodes`; `None` if there is no soft constraint.
pub fn scores(cluster: &Cluster, pod: &Pod, wishes: &Wishes, nodes: &[&Node]) -> Option<Vec<i64>> {
    let has_own = !wishes.constraints.is_empty();
    let constraints: Vec<Constraint> = if has_own {
        wishes.constraints.iter().filter(|one| !one.is_hard).cloned().collect()
    } else {
        let selector = cluster.workloads.selector(pod, wishes)?;
        DEFAULTS.map(|(key, skew)| Constraint::default_of(key, skew, &selector)).into()
    };
    if constraints.is_empty() {
        return None;
    }
    let is_labelled = |node: &Node| {
        !has_own || constraints.iter().all(|one| node.label(&one.topology_key).is_some())
    };
    let ignored: Vec<bool> = nodes.iter().map(|node| !is_labelled(node)).collect();
    let counted = || nodes.iter().zip(&ignored).filter(|(_, ignored)| !**ignored);
    let mut domains: Vec<HashMap<Str, i64>> = vec![HashMap::new(); constraints.len()];
    for (one, domains) in constraints.iter().zip(&mut domains) {
        if one.topology_key != HOSTNAME {
            let values = counted().filter_map(|(node, _)| node.label(&one.topology_key));
            domains.extend(values.map(|value| (Str::new(value), 0)));
        }
    }
    for node in cluster.nodes().iter().filter(|node| is_labelled(node)) {
        for (one, domains) in constraints.iter().zip(&mut domains) {
            let Some(value) = node.label(&one.topology_key) else { continue };
            if let Some(known) = domains.get_mut(value)
                && one.includes(node, wishes)
            {
                *known += one.count(node, &pod.key.0);
            }
        }
    }
    let count_of = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
    let weights: Vec<f64> = constraints
        .iter()
        .zip(&domains)
        .map(|(one, domains)| {
            let size = if one.topology_key == HOSTNAME { counted().count() } else { domains.len() };
            (share(count_of(size), 1) + 2.0).ln()
        })
        .collect();
    let raw = nodes.iter().zip(&ignored).map(|(node, ignored)| {
        if *ignored {
            return None;
        }
        let parts = constraints.iter().zip(&domains).zip(&weights);
        let sum: f64 = parts
            .filter_map(|((one, domains), weight)| {
                let value = node.label(&one.topology_key)?;
                let count = if one.topology_key == HOSTNAME {
                    one.count(node, &pod.key.0)
                } else {
                    domains.get(value).copied().unwrap_or(0)
                };
                Some(share(count, 1) * weight + share(one.max_skew - 1, 1))
            })
            .sum();
        Some(truncated(sum.round()))
    });
    Some(normalized(&raw.collect::<Vec<_>>()))
}

/// Turns numbers of pods into scores: the fewer, the higher.
fn normalized(raw: &[Option<i64>]) -> Vec<i64> {
    let known = || raw.iter().flatten().copied();
    let least = known().min().unwrap_or(0);
    let most = known().max().unwrap_or(0);
    let score = |raw: &Option<i64>| match raw {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(raw) => 100 * (most + least - raw) / most,
    };
    raw.iter().map(score).collect()
}
