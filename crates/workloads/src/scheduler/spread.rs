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
        let matching = node.alike.iter().filter(|pods| {
            pods.namespace == namespace && self.selector.matches(|key| pods.label(key))
        });
        matching.map(|pods| pods.count).sum()
    }

    /// Returns the nodes with pods that match, and the number of these.
    fn counts<'a>(&self, view: View<'a>, namespace: &Str) -> Vec<(&'a Node, i64)> {
        let nodes = view.nodes_having(namespace, &self.selector).into_iter();
        let counted = nodes.map(|node| (node, self.count(node, namespace)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

/// What the constraints of a pod say about nodes.
#[derive(Debug)]
pub struct SpreadCheck<'a> {
    /// Each with the number of pods by the value of its key, and the least of these numbers.
    hard: Vec<(&'a Constraint, Domains<'a>, i64)>,
}

/// How many pods match, by the value of a topology key.
type Domains<'a> = HashMap<&'a str, i64>;

/// Why a node is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadConflict {
    MissingLabel,
    Skew,
}

impl<'a> SpreadCheck<'a> {
    /// Counts pods; `None` if the pod has no hard constraint.
    pub fn of(view: View<'a>, pod: &Pod, wishes: &'a Wishes) -> Option<SpreadCheck<'a>> {
        let hard: Vec<&Constraint> = wishes.constraints.iter().filter(|one| one.is_hard).collect();
        if hard.is_empty() {
            return None;
        }
        let mut counts: Vec<Domains<'a>> = vec![Domains::new(); hard.len()];
        let has_labels =
            |node: &Node| hard.iter().all(|one| node.label(&one.topology_key).is_some());
        // Domains without pods count, too.
        for node in view.nodes().filter(|node| has_labels(node)) {
            for (one, counts) in hard.iter().zip(&mut counts) {
                if let Some(value) = node.label(&one.topology_key)
                    && !counts.contains_key(value)
                    && one.includes(node, wishes)
                {
                    counts.insert(value, 0);
                }
            }
        }
        for (one, counts) in hard.iter().zip(&mut counts) {
            for (node, count) in one.counts(view, &pod.key.0) {
                if has_labels(node)
                    && let Some(known) =
                        node.label(&one.topology_key).and_then(|value| counts.get_mut(value))
                    && one.includes(node, wishes)
                {
                    *known += count;
                }
            }
        }
        let least = |one: &Constraint, counts: &Domains<'_>| {
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
    let count = |one: &Constraint| one.counts(View::of(cluster), &pod.key.0);
    let counts: Vec<Vec<(&Node, i64)>> = match &constraints[..] {
        // The defaults differ in their topology alone.
        [first, others @ ..] if !has_own => vec![count(first); 1 + others.len()],
        all => all.iter().map(count).collect(),
    };
    let domains: Vec<Domains<'_>> = constraints
        .iter()
        .zip(&counts)
        .map(|(one, counts)| {
            let counted = counted().map(|(node, _)| *node);
            let counts = counts.iter().filter(|(node, _)| is_labelled(node));
            domains(one, wishes, counted, counts)
        })
        .collect();
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
                let domain = if one.topology_key == HOSTNAME { node.name.as_str() } else { value };
                let count = domains.get(domain).copied().unwrap_or(0);
                Some(share(count, 1) * weight + share(one.max_skew - 1, 1))
            })
            .sum();
        Some(truncated(sum.round()))
    });
    Some(normalized(&raw.collect::<Vec<_>>()))
}

/// Counts the pods of a constraint by the values that its key has on `nodes`; those of single nodes
/// by the name of the node.
fn domains<'a>(
    constraint: &Constraint,
    wishes: &Wishes,
    nodes: impl Iterator<Item = &'a Node>,
    counts: impl Iterator<Item = &'a (&'a Node, i64)>,
) -> Domains<'a> {
    let key = &constraint.topology_key;
    if key == HOSTNAME {
        return counts.map(|(node, count)| (node.name.as_str(), *count)).collect();
    }
    let mut domains: Domains<'a> =
        nodes.filter_map(|node| node.label(key)).map(|value| (value, 0)).collect();
    for (node, count) in counts {
        if let Some(known) = node.label(key).and_then(|value| domains.get_mut(value))
            && constraint.includes(node, wishes)
        {
            *known += count;
        }
    }
    domains
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
