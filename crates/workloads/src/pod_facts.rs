//! Facts about pods that decide what controllers do: whether they count, whether they are ready or
//! available, and which of them are deleted first.

use keelson_loops::pods::{is_ready, ready_condition};
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Timestamp, Value};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

/// The annotation that says how much the deletion of a pod costs, compared to others.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the phase of a pod.
pub(crate) fn phase(pod: &Object) -> &str {
    pod.str_at(&["status", "phase"])
}

/// Whether all containers of a pod have ended.
pub(crate) fn is_terminal(pod: &Object) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether a pod counts as a replica: it has not ended and is not being deleted.
pub(crate) fn is_active(pod: &Object) -> bool {
    !is_terminal(pod) && pod.deletion_timestamp().is_none()
}

/// Whether a pod is being deleted and has not ended.
pub(crate) fn is_terminating(pod: &Object) -> bool {
    !is_terminal(pod) && pod.deletion_timestamp().is_some()
}

/// Whether a pod has been ready for `min_ready_seconds`.
pub(crate) fn is_available(pod: &Object, min_ready_seconds: i64, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    if min_ready_seconds == 0 {
        return true;
    }
    let since = ready_since(pod);
    since.is_some_and(|since| since.plus(GoDuration::from_seconds(min_ready_seconds)) <= now)
}

/// Returns the time until the first of these pods becomes available.
pub(crate) fn next_available<'p>(
    pods: impl IntoIterator<Item = &'p Object>,
    min_ready_seconds: i64,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let waits = pods.into_iter().filter(|pod| is_ready(pod)).filter_map(|pod| {
        let wait = ready_since(pod)?.plus(GoDuration::from_seconds(min_ready_seconds)).since(now).0;
        (wait > 0).then(|| Duration::from_nanos(wait.unsigned_abs()))
    });
    waits.min()
}

/// Returns when a ready pod became ready.
fn ready_since(pod: &Object) -> Option<Timestamp> {
    let (status, since) = ready_condition(pod)?;
    if status != "True" {
        return None;
    }
    Timestamp::parse(since).ok()
}

/// Sorts active pods so that those come first that should be deleted first. `related` are pods of
/// the same workload: a pod whose node has more of them is deleted earlier.
pub(crate) fn rank_for_deletion(pods: &mut [Object], related: &[Object], now: Timestamp) {
    let mut on_node: HashMap<&str, i64> = HashMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *on_node.entry(pod.str_at(&["spec", "nodeName"])).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let neighbours = on_node.get(pod.str_at(&["spec", "nodeName"])).copied().unwrap_or(0);
        DeletionRank::of(pod, neighbours, now)
    });
}

/// The facts by which pods are ranked, in the order in which they count.
#[derive(Debug)]
struct DeletionRank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    cost: i64,
    neighbours: i64,
    ready_since: Option<Timestamp>,
    restarts: (i64, i64),
    created: Option<Timestamp>,
    uid: String,
    now: Timestamp,
}

impl DeletionRank {
    fn of(pod: &Object, neighbours: i64, now: Timestamp) -> DeletionRank {
        DeletionRank {
            is_assigned: !pod.str_at(&["spec", "nodeName"]).is_empty(),
            phase: match phase(pod) {
                "Pending" => 0,
                "Unknown" => 1,
                "Running" => 2,
                _ => 0,
            },
            is_ready: is_ready(pod),
            cost: deletion_cost(pod),
            neighbours,
            ready_since: ready_since(pod),
            restarts: restarts(pod),
            created: Timestamp::parse(pod.creation_timestamp()).ok(),
            uid: pod.uid().to_owned(),
            now,
        }
    }

    /// Compares how long ago two times are, on a logarithmic scale, so that pods of about the same
    /// age are chosen by their random uids.
    fn compare_ages(&self, other: &Self, mine: Timestamp, its: Timestamp) -> Ordering {
        let rank = |time: Timestamp| {
            let age = self.now.since(time).0;
            if age > 0 { (age as f64).log2() as i64 } else { -1 }
        };
        rank(mine).cmp(&rank(its)).then_with(|| self.uid.cmp(&other.uid))
    }
}

impl Ord for DeletionRank {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = self
            .is_assigned
            .cmp(&other.is_assigned)
            .then(self.phase.cmp(&other.phase))
            .then(self.is_ready.cmp(&other.is_ready))
            .then(self.cost.cmp(&other.cost))
            .then(other.neighbours.cmp(&self.neighbours));
        if first.is_ne() {
            return first;
        }
        if self.is_ready && other.is_ready && self.ready_since != other.ready_since {
            return match (self.ready_since, other.ready_since) {
                (Some(mine), Some(its)) => self.compare_ages(other, mine, its),
                (None, _) => Ordering::Less,
                (_, None) => Ordering::Greater,
            };
        }
        let restarts = other.restarts.cmp(&self.restarts);
        if restarts.is_ne() || self.created == other.created {
            return restarts;
        }
        match (self.created, other.created) {
            (Some(mine), Some(its)) => self.compare_ages(other, mine, its),
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
        }
    }
}

impl PartialOrd for DeletionRank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DeletionRank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DeletionRank {}

/// Returns the deletion cost; 0 if it is absent or not a 32-bit number in its shortest form.
fn deletion_cost(pod: &Object) -> i64 {
    let Some(text) = pod.annotation(DELETION_COST) else { return 0 };
    let is_plain = !text.starts_with('+') && (text == "0" || !text.starts_with('0'));
    text.parse::<i32>().ok().filter(|_| is_plain).map_or(0, i64::from)
}

/// Returns the most restarts of a container and of a sidecar.
fn restarts(pod: &Object) -> (i64, i64) {
    let sidecars: Vec<&str> = pod
        .array_at(&["spec", "initContainers"])
        .iter()
        .filter(|one| one.str_at(&["restartPolicy"]) == Some("Always"))
        .filter_map(|one| one.str_at(&["name"]))
        .collect();
    let count = |one: &Value| one.int_at(&["restartCount"]).unwrap_or(0);
    let containers = pod.array_at(&["status", "containerStatuses"]).iter().map(count);
    let init = pod
        .array_at(&["status", "initContainerStatuses"])
        .iter()
        .filter(|one| sidecars.contains(&one.str_at(&["name"]).unwrap_or_default()));
    (containers.max().unwrap_or(0), init.map(count).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn with_cost(text: &str) -> Value {
        value!({"controller.kubernetes.io/pod-deletion-cost": text})
    }

    fn now() -> Timestamp {
        Timestamp::parse(NOW).expect("a time")
    }

    fn pod(uid: &str, node: &str, phase: &str, ready_since: Option<&str>) -> Object {
        let conditions: Vec<Value> = ready_since
            .map(|at| value!({"type": "Ready", "status": "True", "lastTransitionTime": at}))
            .into_iter()
            .collect();
        let pod = value!({
            "metadata": {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": (conditions)}
        });
        Object::from_value(pod).expect("a map")
    }

    #[test]
    fn pods_that_do_least_are_deleted_first() {
        let ready = Some("2026-01-01T00:00:01Z");
        let mut cheap = pod("g", "n2", "Running", ready);
        cheap.metadata_mut().insert("annotations", with_cost("-1"));
        let mut restarted = pod("f", "n2", "Running", ready);
        let status = value!([{"name": "c", "restartCount": 3}]);
        restarted.object_mut("status").insert("containerStatuses", status);
        let mut pods = vec![
            pod("a", "n1", "Running", ready),
            pod("b", "n1", "Running", Some("2026-01-01T00:59:00Z")),
            pod("c", "n1", "Running", None),
            pod("d", "n1", "Pending", None),
            pod("e", "", "Pending", None),
            restarted,
            cheap,
            pod("h", "n3", "Running", Some("2026-01-01T00:00:02Z")),
        ];
        let related = pods.clone();
        rank_for_deletion(&mut pods, &related, now());
        let order: Vec<&str> = pods.iter().map(Object::uid).collect();
        // a and h are of about the same age; n1 has more pods than n2, and that more than n3.
        assert_eq!(order, ["e", "d", "c", "g", "b", "a", "f", "h"]);
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
        let check = |since, seconds, wanted| {
            let pod = pod("a", "n", "Running", since);
            assert_eq!(is_available(&pod, seconds, now()), wanted, "{since:?} {seconds}");
        };
        check(None, 0, false);
        check(Some("2026-01-01T00:59:50Z"), 0, true);
        check(Some("2026-01-01T00:59:50Z"), 10, true);
        check(Some("2026-01-01T00:59:50Z"), 11, false);
        let pods = ["2026-01-01T00:59:50Z", "2026-01-01T00:59:58Z"]
            .map(|at| pod("a", "n", "Running", Some(at)));
        assert_eq!(next_available(&pods, 11, now()), Some(Duration::from_secs(1)));
        assert_eq!(next_available(&pods, 5, now()), Some(Duration::from_secs(3)));
        assert_eq!(next_available(&pods, 2, now()), None);
    }

    #[test]
    fn a_deletion_cost_is_a_number_in_its_shortest_form() {
        let cost = |text: &str| {
            let mut pod = Object::new();
            pod.metadata_mut().insert("annotations", with_cost(text));
            deletion_cost(&pod)
        };
        let texts = ["5", "-7", "+5", "05", "0", "x", "2147483648"];
        assert_eq!(texts.map(cost), [5, -7, 0, 0, 0, 0, 0]);
    }
}
