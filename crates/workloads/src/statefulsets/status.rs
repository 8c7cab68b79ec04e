//! The status of a StatefulSet.

use super::identity::{replicas, revision};
use crate::pod_facts::{is_available, phase};
use crate::stored::set_count;
use keelson_loops::pods::is_ready;
use keelson_meta::{Map, Object, Timestamp, Value};

/// Names and numbers of the present and the new revision, and of collisions.
#[derive(Clone, Debug)]
pub(super) struct Revisions {
    pub current: String,
    pub update: String,
    pub collisions: i64,
}

/// Whether a pod was stored.
pub(super) fn is_created(pod: &Object) -> bool {
    !phase(pod).is_empty()
}

/// Whether a pod runs and is ready.
pub(super) fn is_running_and_ready(pod: &Object) -> bool {
    phase(pod) == "Running" && is_ready(pod)
}

/// Whether a pod is not available, or being deleted.
pub(super) fn is_unavailable(pod: &Object, seconds: i64, now: Timestamp) -> bool {
    !is_available(pod, seconds, now) || pod.deletion_timestamp().is_some()
}

/// Returns the status of a set with these pods.
pub(super) fn status_of<'p>(
    set: &Object,
    revisions: &Revisions,
    pods: impl Iterator<Item = &'p Object>,
    now: Timestamp,
) -> Map {
    let seconds = set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
    let mut all = 0;
    let mut ready = 0;
    let mut available = 0;
    let mut current = 0;
    let mut updated = 0;
    for pod in pods.filter(|pod| is_created(pod)) {
        all += 1;
        if is_running_and_ready(pod) {
            ready += 1;
            available += i64::from(is_available(pod, seconds, now));
        }
        if pod.deletion_timestamp().is_none() {
            current += i64::from(revision(pod) == revisions.current);
            updated += i64::from(revision(pod) == revisions.update);
        }
    }
    let mut status = Map::new();
    set_count(&mut status, "observedGeneration", set.generation());
    status.insert("replicas", all);
    set_count(&mut status, "readyReplicas", ready);
    set_count(&mut status, "currentReplicas", current);
    set_count(&mut status, "updatedReplicas", updated);
    status.insert("currentRevision", revisions.current.as_str());
    status.insert("updateRevision", revisions.update.as_str());
    status.insert("collisionCount", revisions.collisions);
    status.insert("availableReplicas", available);
    status
}

fn number(status: &Map, name: &str) -> i64 {
    status.get(name).and_then(Value::as_int).unwrap_or(0)
}

/// Makes the new revision the present one when all pods have it.
pub(super) fn complete(set: &Object, status: &mut Map) {
    let is_rolling = set.str_at(&["spec", "updateStrategy", "type"]) == "RollingUpdate";
    let counts = ["updatedReplicas", "readyReplicas", "replicas"];
    if is_rolling && counts.iter().all(|name| number(status, name) == replicas(set)) {
        let updated = number(status, "updatedReplicas");
        set_count(status, "currentReplicas", updated);
        let revision = status.get("updateRevision").cloned().unwrap_or_default();
        status.insert("currentRevision", revision);
    }
}

/// Whether a status must be written. A changed number of collisions alone is no reason.
pub(super) fn is_changed(set: &Object, status: &Map) -> bool {
    let stored = |name: &str| set.at(&["status", name]);
    let stored_number = |name: &str| stored(name).and_then(Value::as_int).unwrap_or(0);
    let counts =
        ["replicas", "currentReplicas", "readyReplicas", "updatedReplicas", "availableReplicas"];
    let texts = ["currentRevision", "updateRevision"];
    number(status, "observedGeneration") > stored_number("observedGeneration")
        || counts.iter().any(|name| number(status, name) != stored_number(name))
        || texts.iter().any(|name| status.get(name) != stored(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_revision_is_complete_when_all_pods_have_it_and_are_ready() {
        let at = "2026-01-01T00:00:00Z";
        let pod = |revision: &str| {
            let pod = value!({
                "metadata": {"labels": {"controller-revision-hash": revision}},
                "status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": at}]}
            });
            Object::from_value(pod).expect("a map")
        };
        let set = value!({
            "metadata": {"generation": 4},
            "spec": {"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}}
        });
        let set = Object::from_value(set).expect("a map");
        let revisions = Revisions { current: "db-1".into(), update: "db-2".into(), collisions: 0 };
        let now = Timestamp::parse(at).expect("a time");
        let check = |labels: [&str; 2], current: &str, counts: [i64; 2]| {
            let pods = labels.map(pod);
            let mut status = status_of(&set, &revisions, pods.iter(), now);
            complete(&set, &mut status);
            assert_eq!(status.get("currentRevision"), Some(&Value::from(current)));
            let got = ["currentReplicas", "updatedReplicas"].map(|name| number(&status, name));
            assert_eq!(got, counts);
            assert!(is_changed(&set, &status));
        };
        check(["db-1", "db-2"], "db-1", [1, 1]);
        check(["db-2", "db-2"], "db-2", [2, 2]);
    }
}
