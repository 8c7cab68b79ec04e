//! Preemption: pods of lower priority that end so that a pod can be placed.

use super::cluster::{Cluster, View};

use super::filters::{Check, Rejection};
use super::node::Node;
use super::pod::{Pod, Wishes};
use super::search::{Search, histogram};
use keelson_meta::selector::Selector;
use keelson_meta::{Object, Str, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

/// Candidates of which the best is taken: this share of the nodes, and at least this number.
const CANDIDATES_PERCENT: usize = 10;
const CANDIDATES_MIN: usize = 100;

/// Pods that end so that another one can be placed on their node.
#[derive(Debug)]
pub struct Preemption {
    pub node: Str,
    pub victims: Vec<Arc<Pod>>,
}

/// Why nothing ends.
pub struct Refusal {
    pub message: String,
    /// Whether the pod waits for room nowhere any more.
    pub clears_nomination: bool,
}

/// What preemption reads of a PodDisruptionBudget.
#[derive(Debug)]
pub struct Budget {
    namespace: Str,
    selector: Selector,
    allowed: i64,
    /// Pods whose end is counted already.
    disrupted: HashSet<Str>,
}

impl Budget {
    pub fn of(budget: &Object) -> Budget {
        let disrupted = budget.at(&["status", "disruptedPods"]).and_then(|all| all.as_object());
        Budget {
            namespace: budget.namespace().into(),
            selector: Selector::from_object(budget.at(&["spec", "selector"])).unwrap_or_default(),
            allowed: budget.int_at(&["status", "disruptionsAllowed"]).unwrap_or(0),
            disrupted: disrupted
                .into_iter()
                .flat_map(|all| all.iter().map(|(name, _)| name.clone()))
                .collect(),
        }
    }

    fn covers(&self, pod: &Pod) -> bool {
        self.namespace == pod.key.0
            && !pod.labels.is_empty()
            && !self.selector.is_everything()
            && self.selector.matches(|key| pod.label(key))
            && !self.disrupted.contains(&pod.key.1)
    }
}

struct Candidate<'a> {
    node: &'a Node,
    /// From the most to the least important.
    victims: Vec<Arc<Pod>>,
    violations: usize,
}

/// Finds the pods that end for a pod that no node allows.
pub fn preempt(
    cluster: &Cluster,
    budgets: &dyn Fn() -> Vec<Budget>,
    pod: &Pod,
    wishes: &Wishes,
    rejections: &[(&Node, Rejection)],
    search: &mut Search,
) -> Result<Preemption, Refusal> {
    let not_eligible = |why: &str| Refusal { message: why.to_owned(), clears_nomination: false };
    if wishes.never_preempts {
        return Err(not_eligible("not eligible due to preemptionPolicy=Never."));
    }
    if let Some(node) = cluster.node(&wishes.nominated) {
        let known = rejections.iter().find(|(rejected, _)| rejected.name == node.name);
        let can_help = known.is_none_or(|(_, rejection)| rejection.is_resolvable);
        let waits = |other: &Arc<Pod>| other.is_terminating && other.priority < pod.priority;
        if can_help && node.pods.iter().any(waits) {
            return Err(not_eligible(
                "not eligible due to a terminating pod on the nominated node.",
            ));
        }
    }
    let all = cluster.nodes().len();
    let potential: Vec<&Node> = rejections
        .iter()
        .filter(|(_, rejection)| rejection.is_resolvable)
        .map(|(node, _)| *node)
        .collect();
    let wanted = (potential.len() * CANDIDATES_PERCENT / 100).max(CANDIDATES_MIN);
    let budgets = if potential.is_empty() { vec![] } else { budgets() };
    let mut candidates = vec![];
    let mut reasons = vec![];
    let offset = search.below(potential.len());
    for step in 0..potential.len() {
        let node = potential[(offset + step) % potential.len()];
        match candidate(cluster, &budgets, pod, wishes, node) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => reasons.extend(why.into_iter().map(|reason| (reason, 1))),
        }
        if candidates.len() >= wanted && candidates.iter().any(|one| one.violations == 0) {
            break;
        }
    }
    match best(candidates) {
        Some(best) => Ok(Preemption { node: best.node.name.clone(), victims: best.victims }),
        None => {
            let others = all - potential.len();
            let reason = Str::new_static("Preemption is not helpful for scheduling");
            reasons.extend((others > 0).then_some((reason, others)));
            let message = histogram(all, reasons.into_iter());
            Err(Refusal { message, clears_nomination: true })
        }
    }
}

/// Whether a pod is more important than another: it has a higher priority, or is older.
fn importance(pod: &Pod) -> (std::cmp::Reverse<i64>, Timestamp) {
    // A pod that has not started counts as the youngest.
    let started = pod.started.unwrap_or(Timestamp::new(i64::MAX, 0));
    (std::cmp::Reverse(pod.priority), started)
}

/// Returns the fewest pods of a node that have to end, or why that does not help.
fn candidate<'a>(
    cluster: &Cluster,
    budgets: &[Budget],
    pod: &Pod,
    wishes: &Wishes,
    node: &'a Node,
) -> Result<Candidate<'a>, Vec<Str>> {
    let place = cluster.place_of(&node.name).unwrap_or_default();
    let rejection = |changed: &Node| {
        let view = View { cluster, replaced: Some((place, changed)) };
        match Check::of(view, pod, wishes) {
            Ok(check) => check.rejection(changed).map(|rejection| rejection.reasons),
            Err(rejection) => Some(vec![Str::new(rejection.reason)]),
        }
    };
    let mut lower: Vec<Arc<Pod>> =
        node.pods.iter().filter(|other| other.priority < pod.priority).cloned().collect();
    if lower.is_empty() {
        let reason = "No preemption victims found for incoming pod";
        return Err(vec![Str::new_static(reason)]);
    }
    let mut changed = node.clone();
    lower.iter().for_each(|other| changed.remove(&other.key));
    if let Some(reasons) = rejection(&changed) {
        return Err(reasons);
    }
    lower.sort_by_key(|other| importance(other));
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    let mut violates = |other: &Pod| {
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            if budget.covers(other) {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    };
    let (violating, others): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) =
        lower.into_iter().partition(|other| violates(other));
    let mut victims = vec![];
    let mut violations = 0;
    for (group, counts) in [(violating, true), (others, false)] {
        for other in group {
            changed.add(other.clone());
            if rejection(&changed).is_some() {
                changed.remove(&other.key);
                violations += usize::from(counts);
                victims.push(other);
            }
        }
    }
    victims.sort_by_key(|other| importance(other));
    Ok(Candidate { node, victims, violations })
}

/// Returns the candidate that costs least.
fn best(candidates: Vec<Candidate<'_>>) -> Option<Candidate<'_>> {
    let cost = |one: &Candidate<'_>| {
        let highest = one.victims.first().map_or(i64::MIN, |pod| pod.priority);
        let sum: i64 = one.victims.iter().map(|pod| pod.priority + i64::from(i32::MAX) + 1).sum();
        let of_highest = one.victims.iter().filter(|pod| pod.priority == highest);
        let oldest = of_highest.map(|pod| importance(pod).1).min().unwrap_or_default();
        (one.violations, highest, sum, one.victims.len(), std::cmp::Reverse(oldest))
    };
    candidates.into_iter().min_by_key(cost)
}
