//! Affinity between pods: terms, which nodes they allow, and their scores.

use super::affinity_terms::Term;
use super::cluster::{Cluster, View};
use super::node::Node;
use super::pod::Pod;
use super::shares::{share, truncated};
use crate::sorted_pairs::find;
use keelson_meta::Str;
use keelson_meta::selector::Selector;
use std::collections::HashMap;

/// The weight of a required term of a placed pod in scores.
const HARD_WEIGHT: i64 = 1;

impl Term {
    fn matches(&self, cluster: &Cluster, pod: &Pod) -> bool {
        let is_selected = |selector: &Selector| {
            let labels = cluster.namespaces.get(&pod.key.0).map(Vec::as_slice);
            selector.matches(|key| find(labels.unwrap_or_default(), key))
        };
        (self.namespaces.contains(&pod.key.0)
            || self.namespace_selector.as_ref().is_some_and(is_selected))
            && self.selector.matches(|key| pod.label(key))
    }

    /// Returns the nodes with pods that match, and maybe others, each once.
    fn nodes<'a>(&self, view: View<'a>) -> Vec<&'a Node> {
        match &self.namespaces[..] {
            [namespace] if self.namespace_selector.is_none() => {
                view.nodes_having(namespace, &self.selector)
            }
            _ => view.nodes().collect(),
        }
    }
}

/// How many pods match, by topology key and value.
type Counts = HashMap<(Str, Str), i64>;

fn count(counts: &mut Counts, node: &Node, key: &Str, weight: i64) {
    if let Some(value) = node.label(key) {
        *counts.entry((key.clone(), value.into())).or_default() += weight;
    }
}

/// What the terms of a pod, and of the pods that are placed, say about nodes.
#[derive(Clone, Debug, Default)]
pub struct AffinityCheck {
    /// Terms of placed pods that keep this pod away.
    existing_anti: Counts,
    required: Counts,
    required_anti: Counts,
}

/// Why a node is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityConflict {
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

impl AffinityCheck {
    /// Counts the pods that matter for `pod`; `None` if nothing does.
    pub fn of(view: View<'_>, pod: &Pod) -> Option<AffinityCheck> {
        let mut check = AffinityCheck::default();
        let cluster = view.cluster;
        let own = pod
            .affinity
            .as_deref()
            .filter(|own| !own.required.is_empty() || !own.required_anti.is_empty());
        for node in view.nodes_with_affinity() {
            if node.with_required_anti == 0 {
                continue;
            }
            let terms = node.pods.iter().filter_map(|other| other.affinity.as_deref());
            for term in terms.flat_map(|terms| &terms.required_anti) {
                if term.matches(cluster, pod) {
                    count(&mut check.existing_anti, node, &term.topology_key, 1);
                }
            }
        }
        let Some(own) = own else {
            return (!check.existing_anti.is_empty()).then_some(check);
        };
        // A pod counts if it matches all terms.
        for node in own.required.first().map(|term| term.nodes(view)).unwrap_or_default() {
            for other in &node.pods {
                if own.required.iter().all(|term| term.matches(cluster, other)) {
                    for term in &own.required {
                        count(&mut check.required, node, &term.topology_key, 1);
                    }
                }
            }
        }
        for term in &own.required_anti {
            for node in term.nodes(view) {
                let matching = node.pods.iter().filter(|other| term.matches(cluster, other));
                matching.for_each(|_| count(&mut check.required_anti, node, &term.topology_key, 1));
            }
        }
        Some(check)
    }

    /// Returns why a node is not allowed.
    pub fn conflict(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<AffinityConflict> {
        let at = |counts: &Counts, key: &Str| {
            let value = node.label(key)?;
            Some(counts.get(&(key.clone(), value.into())).copied().unwrap_or(0))
        };
        if let Some(own) = pod.affinity.as_deref() {
            let found: Vec<Option<i64>> =
                own.required.iter().map(|term| at(&self.required, &term.topology_key)).collect();
            let lacks_label = found.iter().any(Option::is_none);
            let has_none = found.contains(&Some(0));
            // The first pod of a group that asks for its like may be placed anywhere.
            let is_first = self.required.is_empty()
                && own.required.iter().all(|term| term.matches(cluster, pod));
            if lacks_label || (has_none && !is_first) {
                return Some(AffinityConflict::Affinity);
            }
            let mut anti = own.required_anti.iter();
            if anti.any(|term| at(&self.required_anti, &term.topology_key).unwrap_or(0) > 0) {
                return Some(AffinityConflict::AntiAffinity);
            }
        }
        let is_kept_away = !self.existing_anti.is_empty()
            && node.labels.iter().any(|pair| self.existing_anti.get(pair).is_some_and(|n| *n > 0));
        is_kept_away.then_some(AffinityConflict::ExistingAntiAffinity)
    }
}

/// Returns a score from 0 to 100 for each of `nodes`; `None` if no term says anything.
pub fn scores(cluster: &Cluster, pod: &Pod, nodes: &[&Node]) -> Option<Vec<i64>> {
    let own = pod.affinity.as_deref();
    let view = View::of(cluster);
    let mut counts = Counts::new();
    let mut add = |term: &Term, about: &Pod, node: &Node, weight: i64| {
        if term.matches(cluster, about) {
            count(&mut counts, node, &term.topology_key, weight);
        }
    };
    let preferred = own.into_iter().flat_map(|own| {
        let anti = own.preferred_anti.iter().map(|(weight, term)| (-weight, term));
        own.preferred.iter().map(|(weight, term)| (*weight, term)).chain(anti)
    });
    for (weight, term) in preferred {
        for node in term.nodes(view) {
            node.pods.iter().for_each(|other| add(term, other, node, weight));
        }
    }
    for node in view.nodes_with_affinity() {
        for theirs in node.pods.iter().filter_map(|other| other.affinity.as_deref()) {
            theirs.required.iter().for_each(|term| add(term, pod, node, HARD_WEIGHT));
            theirs.preferred.iter().for_each(|(weight, term)| add(term, pod, node, *weight));
            theirs.preferred_anti.iter().for_each(|(weight, term)| add(term, pod, node, -weight));
        }
    }
    if counts.is_empty() {
        return None;
    }
    let score =
        |node: &&Node| -> i64 { node.labels.iter().filter_map(|pair| counts.get(pair)).sum() };
    let raw: Vec<i64> = nodes.iter().map(score).collect();
    let least = raw.iter().min().copied()?;
    let most = raw.iter().max().copied()?;
    let span = most - least;
    let normal = |score: &i64| {
        if span == 0 { 0 } else { truncated(100.0 * share(score - least, span)) }
    };
    Some(raw.iter().map(normal).collect())
}
