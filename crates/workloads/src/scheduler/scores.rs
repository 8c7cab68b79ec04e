//! Scores of allowed nodes, with the weights and the normalization of the default profile.

use super::cluster::Cluster;
use super::node::Node;
use super::pod::{Pod, Wishes};
use super::shares::{share, truncated};
use super::{affinity, spread};
use crate::taints;

const MEBIBYTE: i64 = 1024 * 1024;
const IMAGE_SIZE_MIN: i64 = 23 * MEBIBYTE;
const IMAGE_SIZE_MAX: i64 = 1000 * MEBIBYTE;

const TAINTS_WEIGHT: i64 = 3;
const NODE_AFFINITY_WEIGHT: i64 = 2;
const SPREAD_WEIGHT: i64 = 2;
const POD_AFFINITY_WEIGHT: i64 = 2;

/// Returns the score of each of `nodes`.
pub fn scores(cluster: &Cluster, pod: &Pod, wishes: &Wishes, nodes: &[&Node]) -> Vec<i64> {
    let is_best_effort = pod.requests.exact.cpu == 0 && pod.requests.exact.memory == 0;
    let image_score = |node: &Node| images(cluster, wishes, node);
    let mut sums: Vec<i64> = nodes
        .iter()
        .map(|node| {
            let balance = if is_best_effort { 0 } else { balanced(pod, node) };
            least_allocated(pod, node) + balance + image_score(node)
        })
        .collect();
    let mut add = |weight: i64, scores: Vec<i64>| {
        sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += weight * score);
    };
    let soft: Vec<i64> = nodes
        .iter()
        .map(|node| taints::soft_untolerated(&node.taints, &wishes.tolerations))
        .collect();
    if soft.iter().any(|count| *count > 0) {
        add(TAINTS_WEIGHT, normalized(&soft, true));
    }
    if wishes.node_affinity.has_preferences() {
        let raw = nodes.iter().map(|node| wishes.node_affinity.score(&node.name, &node.labels));
        add(NODE_AFFINITY_WEIGHT, normalized(&raw.collect::<Vec<i64>>(), false));
    }
    if let Some(scores) = spread::scores(cluster, pod, wishes, nodes) {
        add(SPREAD_WEIGHT, scores);
    }
    if let Some(scores) = affinity::scores(cluster, pod, nodes) {
        add(POD_AFFINITY_WEIGHT, scores);
    }
    sums
}

/// Scales scores so that the highest is 100, or the lowest if `is_reversed`.
fn normalized(raw: &[i64], is_reversed: bool) -> Vec<i64> {
    let most = raw.iter().max().copied().unwrap_or(0);
    let scale = |score: &i64| {
        let scaled = if most == 0 { 0 } else { 100 * score / most };
        if is_reversed { 100 - scaled } else { scaled }
    };
    raw.iter().map(scale).collect()
}

fn least_allocated(pod: &Pod, node: &Node) -> i64 {
    let wanted = &pod.requests.scored;
    let used = &node.scored;
    let has = &node.allocatable;
    let rows = [(has.cpu, used.cpu + wanted.cpu), (has.memory, used.memory + wanted.memory)];
    let mut sum = 0;
    let mut weights = 0;
    for (has, used) in rows.into_iter().filter(|(has, _)| *has > 0) {
        sum += if used > has { 0 } else { (has - used).saturating_mul(100) / has };
        weights += 1;
    }
    if weights == 0 { 0 } else { sum / weights }
}

/// Scores how much more or less balanced the use of CPU and memory becomes.
fn balanced(pod: &Pod, node: &Node) -> i64 {
    let wanted = &pod.requests.exact;
    let used = &node.requested;
    let has = &node.allocatable;
    let with = [(used.cpu + wanted.cpu, has.cpu), (used.memory + wanted.memory, has.memory)];
    let without = [(used.cpu, has.cpu), (used.memory, has.memory)];
    50 + (50 + balance(with) - balance(without)) / 2
}

/// Returns 100 if the same shares of all resources are used, and less the more they differ.
fn balance(rows: [(i64, i64); 2]) -> i64 {
    let known = rows.into_iter().filter(|(_, has)| *has > 0);
    let shares: Vec<f64> = known.map(|(used, has)| share(used, has).min(1.0)).collect();
    let deviation = match shares[..] {
        [first, second] => ((first - second) / 2.0).abs(),
        _ => 0.0,
    };
    truncated((1.0 - deviation) * 100.0)
}

fn images(cluster: &Cluster, wishes: &Wishes, node: &Node) -> i64 {
    if node.images.is_empty() {
        return 0;
    }
    let size_of = |image: &str| {
        let name = if image.rsplit('/').next().is_some_and(|last| last.contains(':')) {
            image.to_owned()
        } else {
            format!("{image}:latest")
        };
        let known = node.images.iter().find(|(known, _)| *known == name);
        known.map_or(0, |(_, size)| truncated(share(*size, 1) * cluster.image_share(&name)))
    };
    let sum: i64 = wishes.images.iter().map(|image| size_of(image)).sum();
    let most = IMAGE_SIZE_MAX * i64::try_from(wishes.images.len()).unwrap_or(1);
    100 * (sum.clamp(IMAGE_SIZE_MIN, most) - IMAGE_SIZE_MIN) / (most - IMAGE_SIZE_MIN)
}
