//! The status of a Deployment: numbers of pods and conditions.

use super::replica_set::{counted, replicas, sum_counted, sum_replicas};
use super::strategy::max_unavailable;
use crate::stored::{condition, put_condition, remove_condition, set_count, status};
use keelson_meta::time::GoDuration;
use keelson_meta::{Map, Object, Timestamp, Value, value};
use std::time::Duration;

pub(super) const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";

/// Status, reason and message of a condition.
pub(super) type Facts<'a> = (&'a str, &'a str, &'a str);

/// Sets a condition. One with the same status and reason stays as it is; the time of the last
/// transition changes with the status only.
pub(super) fn set_condition(status: &mut Map, of: &str, facts: Facts<'_>, now: Timestamp) {
    let (state, reason, message) = facts;
    let new = value!({
        "type": of, "status": state, "lastUpdateTime": (now.text()),
        "lastTransitionTime": (now.text()), "reason": reason, "message": message
    });
    set_whole_condition(status, new);
}

fn set_whole_condition(status: &mut Map, mut new: Value) {
    let of = new.str_at(&["type"]).unwrap_or_default().to_owned();
    if let Some(known) = condition(status, &of)
        && known.get("status") == new.get("status")
    {
        if known.get("reason") == new.get("reason") {
            return;
        }
        let since = known.get("lastTransitionTime").cloned();
        if let (Some(since), Some(members)) = (since, new.as_object_mut()) {
            members.insert("lastTransitionTime", since);
        }
    }
    put_condition(status, new);
}

/// Returns the deadline of progress in seconds.
pub(super) fn deadline(deployment: &Object) -> Option<i64> {
    let seconds = deployment.int_at(&["spec", "progressDeadlineSeconds"])?;
    (seconds != i64::from(i32::MAX)).then_some(seconds)
}

fn reason<'s>(status: &'s Map, of: &str) -> Option<&'s str> {
    condition(status, of)?.str_at(&["reason"])
}

/// Returns the numbers, and the condition Available.
pub(super) fn numbers(
    deployment: &Object,
    new: Option<&Object>,
    old: &[Object],
    now: Timestamp,
) -> Map {
    let all = || old.iter().chain(new);
    let available = sum_counted(all(), "availableReplicas");
    let before = status(deployment);
    let mut status = Map::new();
    set_count(&mut status, "observedGeneration", deployment.generation());
    set_count(&mut status, "replicas", sum_counted(all(), "replicas"));
    set_count(&mut status, "updatedReplicas", sum_counted(new, "replicas"));
    set_count(&mut status, "readyReplicas", sum_counted(all(), "readyReplicas"));
    set_count(&mut status, "availableReplicas", available);
    let unavailable = (sum_replicas(all()) - available).max(0);
    set_count(&mut status, "unavailableReplicas", unavailable);
    if let Some(terminating) = terminating(all()) {
        status.insert("terminatingReplicas", terminating);
    }
    for name in ["conditions", "collisionCount"] {
        before.get(name).map(|kept| status.insert(name, kept.clone()));
    }
    let least = replicas(deployment) - max_unavailable(deployment);
    let facts = if available >= least {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        let message = "Deployment does not have minimum availability.";
        ("False", "MinimumReplicasUnavailable", message)
    };
    set_condition(&mut status, "Available", facts, now);
    status
}

/// Returns the number of pods that are being deleted; `None` if a ReplicaSet does not report it.
fn terminating<'o>(sets: impl Iterator<Item = &'o Object>) -> Option<i64> {
    let mut sum = 0;
    for set in sets {
        match set.int_at(&["status", "terminatingReplicas"]) {
            Some(number) => sum += number,
            // It was not synced yet.
            None if counted(set, "observedGeneration") == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

fn number(status: &Map, name: &str) -> i64 {
    status.get(name).and_then(Value::as_int).unwrap_or(0)
}

/// Whether all desired pods are of the new ReplicaSet and available, and there are no others.
pub(super) fn is_complete(deployment: &Object, status: &Map) -> bool {
    let desired = replicas(deployment);
    let counts = ["updatedReplicas", "replicas", "availableReplicas"];
    counts.iter().all(|name| number(status, name) == desired)
        && number(status, "observedGeneration") >= deployment.generation()
}

/// Whether a status shows more progress than the one before.
fn is_progressing(before: &Map, after: &Map) -> bool {
    let old = |status: &Map| number(status, "replicas") - number(status, "updatedReplicas");
    let grows = |name| number(after, name) > number(before, name);
    grows("updatedReplicas")
        || old(after) < old(before)
        || grows("readyReplicas")
        || grows("availableReplicas")
}

/// Whether there has been no progress for too long.
fn is_timed_out(deadline: i64, status: &Map, now: Timestamp) -> bool {
    let Some(progressing) = condition(status, PROGRESSING) else { return false };
    match progressing.str_at(&["reason"]) {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => {
            let since = progressing.str_at(&["lastUpdateTime"]).unwrap_or_default();
            let since = Timestamp::parse(since).unwrap_or_default();
            since.plus(GoDuration::from_seconds(deadline)) < now
        }
    }
}

/// Returns the status during a rollout.
pub(super) fn rollout(
    deployment: &Object,
    new: Option<&Object>,
    old: &[Object],
    now: Timestamp,
) -> Map {
    let before = status(deployment);
    let mut status = numbers(deployment, new, old, now);
    match deadline(deployment) {
        None => remove_condition(&mut status, PROGRESSING),
        Some(deadline) => {
            let is_done = number(&status, "replicas") == number(&status, "updatedReplicas")
                && reason(&before, PROGRESSING) == Some(NEW_SET_AVAILABLE);
            if !is_done {
                set_progress(deployment, new, &before, &mut status, deadline, now);
            }
        }
    }
    match failure(new, old) {
        Some(failure) => set_whole_condition(&mut status, failure),
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

fn set_progress(
    deployment: &Object,
    new: Option<&Object>,
    before: &Map,
    status: &mut Map,
    deadline: i64,
    now: Timestamp,
) {
    let subject = new.map_or_else(
        || format!("Deployment {:?}", deployment.name()),
        |new| format!("ReplicaSet {:?}", new.name()),
    );
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(status, PROGRESSING, ("True", NEW_SET_AVAILABLE, &message), now);
    } else if is_progressing(before, status) {
        let message = format!("{subject} is progressing.");
        let known = condition(before, PROGRESSING)
            .filter(|known| known.str_at(&["status"]) == Some("True"));
        let since = known
            .and_then(|known| known.str_at(&["lastTransitionTime"]))
            .map_or_else(|| now.text(), Into::into);
        // Also with the same reason, so that the time of the last update is that of this progress.
        let condition = value!({
            "type": PROGRESSING, "status": "True", "lastUpdateTime": (now.text()),
            "lastTransitionTime": (since), "reason": "ReplicaSetUpdated",
            "message": (message.as_str())
        });
        put_condition(status, condition);
    } else if is_timed_out(deadline, status, now) {
        let message = format!("{subject} has timed out progressing.");
        set_condition(status, PROGRESSING, ("False", TIMED_OUT, &message), now);
    }
}

/// Returns the failure of a ReplicaSet, first of the new one, as a condition of its Deployment.
fn failure(new: Option<&Object>, old: &[Object]) -> Option<Value> {
    let of = |set: &Object| {
        let failure = condition(&status(set), REPLICA_FAILURE)?.clone();
        let text = |name| failure.str_at(&[name]).unwrap_or_default();
        let since = text("lastTransitionTime");
        Some(value!({
            "type": REPLICA_FAILURE, "status": (text("status")), "lastUpdateTime": since,
            "lastTransitionTime": since, "reason": (text("reason")), "message": (text("message"))
        }))
    };
    new.and_then(of).or_else(|| old.iter().find_map(of))
}

/// Returns when a Deployment without progress is looked at again.
pub(super) fn next_check(deployment: &Object, now: Timestamp) -> Option<Duration> {
    let deadline = deadline(deployment)?;
    let status = status(deployment);
    let progressing = condition(&status, PROGRESSING)?;
    let is_over = progressing.str_at(&["reason"]) == Some(TIMED_OUT);
    if is_over || is_complete(deployment, &status) {
        return None;
    }
    let since = Timestamp::parse(progressing.str_at(&["lastUpdateTime"])?).ok()?;
    let wait = since.plus(GoDuration::from_seconds(deadline)).since(now).0;
    // A second more, because stored times are whole seconds.
    Some(Duration::from_nanos(wait.max(0).unsigned_abs()) + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u32) -> Timestamp {
        Timestamp::parse(&format!("2026-01-01T00:00:{second:02}Z")).expect("a time")
    }

    fn deployment(status: Value) -> Object {
        let deployment = value!({
            "metadata": {"name": "web", "generation": 1},
            "spec": {"replicas": 3, "progressDeadlineSeconds": 10, "strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
            "status": (status)
        });
        Object::from_value(deployment).expect("a map")
    }

    fn set(ready: i64) -> Object {
        let set = value!({
            "metadata": {"name": "web-1"}, "spec": {"replicas": 3},
            "status": {"replicas": 3, "readyReplicas": ready, "availableReplicas": ready,
                "terminatingReplicas": 0, "observedGeneration": 1}
        });
        Object::from_value(set).expect("a map")
    }

    fn words(status: &Map) -> Vec<String> {
        let conditions = status.get("conditions").and_then(Value::as_array).unwrap_or_default();
        let word = |one: &Value| {
            let text = |name: &str| one.str_at(&[name]).unwrap_or_default().to_owned();
            let second = |name: &str| text(name)[17..19].to_owned();
            [
                text("type"),
                text("status"),
                text("reason"),
                second("lastUpdateTime"),
                second("lastTransitionTime"),
            ]
            .join(" ")
        };
        conditions.iter().map(word).collect()
    }

    #[test]
    fn progress_is_reported_until_the_rollout_is_complete() {
        let check = |before: &Map, ready: i64, second: u32, wanted: [&str; 2]| {
            let deployment = deployment(before.clone().into());
            let status = rollout(&deployment, Some(&set(ready)), &[], at(second));
            assert_eq!(words(&status), wanted, "{second}");
            status
        };
        let status = check(
            &Map::new(),
            0,
            1,
            [
                "Available False MinimumReplicasUnavailable 01 01",
                "Progressing True ReplicaSetUpdated 01 01",
            ],
        );
        let same = check(
            &status,
            0,
            2,
            [
                "Available False MinimumReplicasUnavailable 01 01",
                "Progressing True ReplicaSetUpdated 01 01",
            ],
        );
        assert_eq!(same, status);
        assert_eq!(next_check(&deployment(same.into()), at(2)), Some(Duration::from_secs(10)));
        let status = check(
            &status,
            2,
            3,
            [
                "Available False MinimumReplicasUnavailable 01 01",
                "Progressing True ReplicaSetUpdated 03 01",
            ],
        );
        let late = check(
            &status,
            2,
            14,
            [
                "Available False MinimumReplicasUnavailable 01 01",
                "Progressing False ProgressDeadlineExceeded 14 14",
            ],
        );
        let status = check(
            &late,
            3,
            15,
            [
                "Available True MinimumReplicasAvailable 15 15",
                "Progressing True NewReplicaSetAvailable 15 15",
            ],
        );
        let last = condition(&status, PROGRESSING).and_then(|one| one.str_at(&["message"]));
        assert_eq!(last, Some("ReplicaSet \"web-1\" has successfully progressed."));
        assert_eq!(next_check(&deployment(status.into()), at(16)), None);
    }

    #[test]
    fn a_failure_of_a_set_is_a_failure_of_the_deployment() {
        let mut failing = set(3);
        let condition = value!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "no", "lastTransitionTime": "2026-01-01T00:00:07Z"});
        failing.object_mut("status").insert("conditions", vec![condition]);
        let deployment = deployment(value!({}));
        let status = rollout(&deployment, Some(&set(3)), &[failing], at(9));
        assert!(words(&status).contains(&"ReplicaFailure True FailedCreate 07 07".to_owned()));
    }
}
