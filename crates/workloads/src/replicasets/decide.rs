//! What the controller of ReplicaSets decides: how many pods are created or deleted, and the
//! status.

use crate::pod_facts::is_available;
use crate::stored::{condition, count, put_condition, remove_condition, set_count, status};
use keelson_loops::pods::is_ready;
use keelson_meta::{Failure, Map, Object, Timestamp, value};

/// Maximum number of pods that one sync creates or deletes.
const BURST_PODS_MAX: usize = 500;
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What is done about the number of pods.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Nothing,
    Create(usize),
    Delete(usize),
}

/// Returns the desired number of pods.
pub(super) fn desired(owner: &Object) -> usize {
    let replicas = owner.int_at(&["spec", "replicas"]).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(0)
}

/// Decides about the number of pods.
pub(super) fn plan(owner: &Object, active: usize) -> Plan {
    let desired = desired(owner);
    match active.abs_diff(desired).min(BURST_PODS_MAX) {
        0 => Plan::Nothing,
        missing if active < desired => Plan::Create(missing),
        surplus => Plan::Delete(surplus),
    }
}

/// Numbers of active pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub active: usize,
    /// Those with all labels of the template.
    pub fully_labelled: usize,
    pub ready: usize,
    pub available: usize,
}

impl Counts {
    /// Counts active pods.
    pub fn of(owner: &Object, active: &[Object], now: Timestamp) -> Counts {
        let template = template_labels(owner);
        let is_fully_labelled =
            |pod: &&Object| template.iter().all(|(name, value)| pod.label(name) == Some(*value));
        let seconds = min_ready_seconds(owner);
        Counts {
            active: active.len(),
            fully_labelled: active.iter().filter(is_fully_labelled).count(),
            ready: active.iter().filter(|pod| is_ready(pod)).count(),
            available: active.iter().filter(|pod| is_available(pod, seconds, now)).count(),
        }
    }
}

/// Returns the labels of the template.
pub(super) fn template_labels(owner: &Object) -> Vec<(&str, &str)> {
    owner
        .at(&["spec", "template", "metadata", "labels"])
        .and_then(|labels| labels.as_object())
        .into_iter()
        .flat_map(|labels| labels.iter())
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
        .collect()
}

/// Returns how long a pod must be ready to be available.
pub(super) fn min_ready_seconds(owner: &Object) -> i64 {
    owner.int_at(&["spec", "minReadySeconds"]).unwrap_or(0)
}

/// Returns the status of an object with the numbers of its pods before `managed`.
pub(super) fn status_of(
    owner: &Object,
    counts: Counts,
    terminating: Option<i64>,
    managed: &Result<(), Failure>,
    now: Timestamp,
) -> Map {
    let mut status = status(owner);
    status.insert("replicas", count(counts.active));
    set_count(&mut status, "fullyLabeledReplicas", count(counts.fully_labelled));
    set_count(&mut status, "readyReplicas", count(counts.ready));
    set_count(&mut status, "availableReplicas", count(counts.available));
    match terminating {
        Some(terminating) => drop(status.insert("terminatingReplicas", terminating)),
        None => drop(status.remove("terminatingReplicas")),
    }
    set_count(&mut status, "observedGeneration", owner.generation());
    match managed {
        Err(error) if condition(&status, REPLICA_FAILURE).is_none() => {
            let is_missing = counts.active < desired(owner);
            let reason = if is_missing { "FailedCreate" } else { "FailedDelete" };
            let failure = value!({
                "type": REPLICA_FAILURE, "status": "True", "lastTransitionTime": (now.text()),
                "reason": reason, "message": (error.message.as_str())
            });
            put_condition(&mut status, failure);
        }
        Err(_) => {}
        Ok(()) => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Reason, Status, Value};

    fn owner(replicas: i64, status: Value) -> Object {
        let owner = value!({
            "metadata": {"name": "web", "generation": 2},
            "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"a": "b"}}}},
            "status": (status)
        });
        Object::from_value(owner).expect("a map")
    }

    #[test]
    fn missing_pods_are_created_and_surplus_ones_deleted() {
        let check = |replicas, active, wanted| {
            assert_eq!(plan(&owner(replicas, value!({})), active), wanted, "{replicas} {active}");
        };
        check(3, 3, Plan::Nothing);
        check(3, 1, Plan::Create(2));
        check(0, 2, Plan::Delete(2));
        check(700, 0, Plan::Create(500));
        check(0, 700, Plan::Delete(500));
    }

    #[test]
    fn the_status_counts_pods_and_keeps_the_first_failure() {
        let pod = |label: &str, ready: &str| {
            let at = "2026-01-01T00:00:00Z";
            let pod = value!({"metadata": {"labels": {"a": label}}, "status": {"conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": at}]}});
            Object::from_value(pod).expect("a map")
        };
        let now = Timestamp::parse("2026-01-01T00:00:05Z").expect("a time");
        let pods = [pod("b", "True"), pod("c", "False")];
        let failed = Err(Status::new(Reason::Forbidden, "no room"));
        let counts = Counts::of(&owner(3, value!({})), &pods, now);
        let status = status_of(&owner(3, value!({"replicas": 0})), counts, Some(0), &failed, now);
        let wanted = value!({
            "replicas": 2, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "terminatingReplicas": 0, "observedGeneration": 2, "conditions": [{
                "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                "message": "no room", "lastTransitionTime": "2026-01-01T00:00:05Z"}]
        });
        assert_eq!(Value::Object(status.clone()), wanted);
        let again = Err(Status::new(Reason::Forbidden, "still no room"));
        let kept = status_of(&owner(3, status.into()), counts, Some(0), &again, now);
        assert_eq!(Value::Object(kept.clone()), wanted);
        let mended = status_of(&owner(2, kept.into()), counts, None, &Ok(()), now);
        assert!(mended.get("conditions").is_none() && mended.get("terminatingReplicas").is_none());
    }
}
