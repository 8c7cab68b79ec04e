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
        for node in view.nodes() {
            if node.with_required_anti > 0 {
                let terms = node.pods.iter().filter_map(|other| other.affinity.as_deref());
                for term in terms.flat_map(|terms| &terms.required_anti) {
                    if term.matches(cluster, pod) {
                        count(&mut check.existing_anti, node, &term.topology_key, 1);
                    }
                }
            }
            let Some(own) = own else { continue };
            for other in &node.pods {
                let matches = |term: &Term| term.matches(cluster, other);
                if !own.required.is_empty() && own.required.iter().all(matches) {
                    for term in &own.required {
                        count(&mut check.required, node, &term.topology_key, 1);
                    }
                }
                for term in own.required_anti.iter().filter(|term| matches(term)) {
                    count(&mut check.required_anti, node, &term.topology_key, 1);
                }
            }
        }
        (own.is_some() || !check.existing_anti.is_empty()).then_some(check)
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
    let has_preferences =
        own.is_some_and(|own| !own.preferred.is_empty() || !own.preferred_anti.is_empty());
    let mut counts = Counts::new();
    for node in cluster.nodes() {
        if !has_preferences && node.with_affinity == 0 {
            continue;
        }
        for other in &node.pods {
            if !has_preferences && other.affinity.is_none() {
                continue;
            }
            add_scores(cluster, pod, other, node, &mut counts);
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

fn add_scores(cluster: &Cluster, pod: &Pod, other: &Pod, node: &Node, counts: &mut Counts) {
    let mut add = |term: &Term, about: &Pod, weight: i64| {
        if term.matches(cluster, about) {
            count(counts, node, &term.topology_key, weight);
        }
    };
    if let Some(own) = pod.affinity.as_deref() {
        own.preferred.iter().for_each(|(weight, term)| add(term, other, *weight));
        own.preferred_anti.iter().for_each(|(weight, term)| add(term, other, -weight));
    }
    if let Some(theirs) = other.affinity.as_deref() {
        theirs.required.iter().for_each(|term| add(term, pod, HARD_WEIGHT));
        theirs.preferred.iter().for_each(|(weight, term)| add(term, pod, *weight));
        theirs.preferred_anti.iter().for_each(|(weight, term)| add(term, pod, -weight));
    }
}
