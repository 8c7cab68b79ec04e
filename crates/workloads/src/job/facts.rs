//! The spec of a Job and the facts of its pods, read once.

use super::indexes::Indexes;
use super::policy::{self, Match};
use keelson_loops::pods::is_ready;
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Timestamp, Value};
use std::cmp::Reverse;

/// The finalizer of pods that are not counted in the status yet.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label of the completion index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation: how many earlier pods of the index failed and count.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation: how many earlier pods of the index failed and were ignored by the failure policy.
pub(super) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// What `spec` of a Job asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Spec {
    pub completions: Option<i64>,
    pub parallelism: i64,
    pub backoff_limit: i64,
    pub backoff_limit_per_index: Option<i64>,
    pub max_failed_indexes: Option<i64>,
    pub active_deadline: Option<i64>,
    pub is_indexed: bool,
    pub is_suspended: bool,
    /// Pods that are terminating are replaced only when they have terminated.
    pub replaces_failed_only: bool,
    pub restarts_on_failure: bool,
    pub failure_policy: Option<Value>,
    pub success_policy: Option<Value>,
}

impl Spec {
    pub fn of(job: &Object) -> Spec {
        let int = |name: &str| job.int_at(&["spec", name]);
        let value = |name: &str| job.at(&["spec", name]).filter(|value| !value.is_null()).cloned();
        let failure_policy = value("podFailurePolicy");
        Spec {
            completions: int("completions"),
            parallelism: int("parallelism").unwrap_or(1),
            backoff_limit: int("backoffLimit").unwrap_or(6),
            backoff_limit_per_index: int("backoffLimitPerIndex"),
            max_failed_indexes: int("maxFailedIndexes"),
            active_deadline: int("activeDeadlineSeconds"),
            is_indexed: job.str_at(&["spec", "completionMode"]) == "Indexed",
            is_suspended: job.at(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true),
            replaces_failed_only: job.str_at(&["spec", "podReplacementPolicy"]) == "Failed"
                || failure_policy.is_some(),
            restarts_on_failure: job.str_at(&["spec", "template", "spec", "restartPolicy"])
                == "OnFailure",
            failure_policy,
            success_policy: value("successPolicy"),
        }
    }

    /// Returns the number of indexes of an Indexed job.
    pub fn indexes(&self) -> i64 {
        self.completions.unwrap_or(0)
    }
}

/// The phase of a pod, as far as a Job distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Pending or Unknown.
    Waiting,
    Running,
    Succeeded,
    Failed,
}

/// A pod of a Job.
#[derive(Clone, Debug)]
pub(super) struct JobPod {
    pub object: Object,
    pub phase: Phase,
    /// `None`: there is no valid index.
    pub index: Option<i64>,
    /// Whether it is not counted in the status yet.
    pub is_tracked: bool,
    pub is_deleted: bool,
    pub is_ready: bool,
    /// Whether it counts as failed.
    pub is_failed: bool,
    /// What the failure policy says about it; meaningful only when it failed.
    pub failure: Match,
    /// When its containers ended, as well as that can be known.
    pub finished: Timestamp,
}

impl JobPod {
    pub fn new(object: Object, spec: &Spec) -> JobPod {
        let phase = match object.str_at(&["status", "phase"]) {
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "Running" => Phase::Running,
            _ => Phase::Waiting,
        };
        let is_deleted = object.deletion_timestamp().is_some();
        // A pod whose node is gone never reports that it failed.
        let is_lost = is_deleted && phase != Phase::Succeeded && !spec.replaces_failed_only;
        let is_tracked = object.finalizers().any(|one| one == FINALIZER);
        JobPod {
            phase,
            index: index_of(&object),
            is_tracked,
            is_deleted,
            is_ready: is_ready(&object),
            is_failed: phase == Phase::Failed || is_lost,
            failure: policy::match_failure(spec.failure_policy.as_ref(), &object),
            finished: finished_time(&object),
            object,
        }
    }

    pub fn uid(&self) -> &str {
        self.object.uid()
    }

    pub fn is_active(&self) -> bool {
        !self.is_deleted && !self.has_ended()
    }

    pub fn is_terminating(&self) -> bool {
        self.is_deleted && !self.has_ended()
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Returns the index, if it is one of the job's.
    pub fn index_below(&self, indexes: i64) -> Option<i64> {
        self.index.filter(|index| *index < indexes)
    }

    /// Returns how many earlier pods of its index failed: those that count, and the ignored ones.
    pub fn index_failures(&self) -> (i64, i64) {
        let count = |name| {
            let text = self.object.annotation(name).unwrap_or_default();
            text.parse::<i32>().unwrap_or(0).max(0).into()
        };
        (count(INDEX_FAILURES), count(INDEX_IGNORED))
    }

    /// Returns how many pods of its index failed, including this one.
    pub fn index_failures_with_it(&self) -> (i64, i64) {
        let (counted, ignored) = self.index_failures();
        if self.failure.counts() { (counted + 1, ignored) } else { (counted, ignored + 1) }
    }

    /// Returns the order in which active pods are removed: those that have done the least work
    /// first.
    pub fn removal_rank(&self) -> impl Ord + use<> {
        let phase = match (self.phase, self.object.str_at(&["status", "phase"])) {
            (Phase::Running, _) => 2,
            (_, "Unknown") => 1,
            _ => 0,
        };
        let ready = keelson_loops::pods::ready_condition(&self.object)
            .filter(|_| self.is_ready)
            .and_then(|(_, since)| Timestamp::parse(since).ok());
        let created = Timestamp::parse(self.object.creation_timestamp()).ok();
        let restarts = self
            .object
            .array_at(&["status", "containerStatuses"])
            .iter()
            .filter_map(|status| status.int_at(&["restartCount"]))
            .max();
        // A time that is not known comes first, then later times.
        let newest = |time: Option<Timestamp>| (time.is_some(), Reverse(time));
        let is_assigned = !self.object.str_at(&["spec", "nodeName"]).is_empty();
        (is_assigned, phase, self.is_ready, newest(ready), Reverse(restarts), newest(created))
    }

    /// Returns the number of restarts of its containers.
    pub fn restarts(&self) -> i64 {
        let statuses = ["initContainerStatuses", "containerStatuses"];
        let of = |name| self.object.array_at(&["status", name]).iter();
        let counts = statuses.into_iter().flat_map(of);
        counts.filter_map(|status| status.int_at(&["restartCount"])).sum()
    }
}

fn index_of(pod: &Object) -> Option<i64> {
    pod.annotation(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// Returns the indexes of pods.
pub(super) fn indexes_of<'a>(pods: impl IntoIterator<Item = &'a JobPod>) -> Indexes {
    Indexes::default().with(pods.into_iter().filter_map(|pod| pod.index))
}

/// Returns when a pod ended: when its last container did, else when it became unready, else when
/// its deletion was asked for, else when it was created.
fn finished_time(pod: &Object) -> Timestamp {
    let time = |text: &str| Timestamp::parse(text).ok();
    let from_deletion = || {
        let grace = pod.deletion_grace_period_seconds().unwrap_or(0);
        Some(time(pod.deletion_timestamp()?)?.plus(GoDuration::from_seconds(-grace)))
    };
    let from_ready = || {
        let (status, since) = keelson_loops::pods::ready_condition(pod)?;
        time(since).filter(|_| status == "False")
    };
    let created = || time(pod.creation_timestamp()).unwrap_or_default();
    containers_end(pod).or_else(from_ready).or_else(from_deletion).unwrap_or_else(created)
}

/// Returns when the last container, or the last sidecar, ended; `None` if one has not.
fn containers_end(pod: &Object) -> Option<Timestamp> {
    let init = pod.array_at(&["spec", "initContainers"]).iter();
    let sidecars: Vec<&str> = init
        .filter(|one| one.str_at(&["restartPolicy"]) == Some("Always"))
        .filter_map(|one| one.str_at(&["name"]))
        .collect();
    let ends = |status: &Value| {
        let text = status.str_at(&["state", "terminated", "finishedAt"])?;
        Timestamp::parse(text).ok()
    };
    let is_sidecar =
        |status: &&Value| status.str_at(&["name"]).is_some_and(|name| sidecars.contains(&name));
    let latest = |all: &mut dyn Iterator<Item = &Value>| -> Option<Option<Timestamp>> {
        let mut latest = None;
        for status in all {
            latest = latest.max(Some(ends(status)?));
        }
        Some(latest)
    };
    let main = latest(&mut pod.array_at(&["status", "containerStatuses"]).iter()).flatten();
    let mut init = pod.array_at(&["status", "initContainerStatuses"]).iter().filter(is_sidecar);
    // A sidecar that still runs hides the ends of the other containers.
    latest(&mut init)?.max(main)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn the_end_of_a_pod_is_taken_from_the_best_source() {
        let check = |status: Value, deletion: &str, want: &str| {
            let mut pod = Object::from_value(value!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:01Z",
                    "deletionGracePeriodSeconds": 30},
                "spec": {"initContainers": [{"name": "side", "restartPolicy": "Always"}]},
                "status": (status)}))
            .expect("a map");
            pod.set_meta("deletionTimestamp", deletion);
            assert_eq!(finished_time(&pod).to_string(), want);
        };
        let ended = |name: &str, at: &str| value!({"name": name, "state": {"terminated": {"finishedAt": at}}});
        let first = "2026-01-01T00:01:00Z";
        let last = "2026-01-01T00:02:00Z";
        let ready = value!([{"type": "Ready", "status": "False", "lastTransitionTime": last}]);
        let running = value!({"name": "side", "state": {"running": {}}});
        check(value!({"containerStatuses": [(ended("a", last)), (ended("b", first))]}), "", last);
        let side = ended("side", last);
        check(
            value!({"containerStatuses": [(ended("a", first))], "initContainerStatuses": [(side)]}),
            "",
            last,
        );
        check(
            value!({"containerStatuses": [(ended("a", first))],
                "initContainerStatuses": [(running)], "conditions": (ready)}),
            "",
            last,
        );
        check(value!({}), "2026-01-01T00:00:40Z", "2026-01-01T00:00:10Z");
        check(value!({}), "", "2026-01-01T00:00:01Z");
    }
}
