//! What a sync of a Job knows and decides: pure functions of the Job, its pods and the time.

use super::backoff::{Failures, wait_for_index};
use super::facts::{JobPod, Phase, Spec, indexes_of};
use super::indexes::Indexes;
use super::policy::{self, Match};
use super::status::{Condition, Status};
use keelson_meta::{Str, Timestamp};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Maximum number of pods that one sync creates or deletes.
const PODS_PER_SYNC_MAX: usize = 500;
/// Maximum number of uids in `uncountedTerminatedPods`: they take up to 20 kB.
const UNCOUNTED_PODS_MAX: usize = 500;

/// One sync of a Job.
#[derive(Debug)]
pub(super) struct State {
    pub spec: Spec,
    pub status: Status,
    pub pods: Vec<JobPod>,
    pub is_deleted: bool,
    pub now: Timestamp,
    /// The condition that ends the Job: `FailureTarget`, `Failed`, `SuccessCriteriaMet` or
    /// `Complete`.
    pub end: Option<Condition>,
    pub failures: Failures,
    /// When the Job must be synced again.
    pub again: Option<Duration>,
    succeeded: i64,
    succeeded_before: Indexes,
    succeeded_indexes: Indexes,
    failed_indexes: Option<Indexes>,
    /// The failed pods whose finalizer stays until their index has a new pod, by index. The new pod
    /// gets their count of failures.
    replaced: BTreeMap<i64, usize>,
}

/// What must be done with the pods.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// Places in `State::pods`.
    pub delete: Vec<usize>,
    /// Whether the finalizers of deleted pods are removed at once, so that they are not counted.
    pub release_deleted: bool,
    /// The completion indexes of new pods, `None` in a Job without indexes.
    pub create: Vec<Option<i64>>,
}

impl State {
    /// Reads a Job and its pods, and decides whether the Job has ended.
    pub fn new(
        spec: Spec,
        status: Status,
        pods: Vec<JobPod>,
        is_deleted: bool,
        failures: Failures,
        now: Timestamp,
    ) -> State {
        let mut state = State {
            spec,
            status,
            pods,
            is_deleted,
            now,
            end: None,
            failures,
            again: None,
            succeeded: 0,
            succeeded_before: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            replaced: BTreeMap::new(),
        };
        if state.status.start_time.is_none() && !state.spec.is_suspended {
            state.status.start_time = Some(now.text());
        }
        let (succeeded, failed) = state.newly_ended();
        let failures = failures.after(&succeeded, &failed);
        let counted = failed.iter().filter(|pod| pod.failure.counts()).count();
        let new = count(succeeded.len() + state.status.uncounted_succeeded.len());
        let failed = count(counted + state.status.uncounted_failed.len());
        (state.failures, state.succeeded) = (failures, state.status.succeeded + new);
        let failed = state.status.failed + failed;
        state.decide_end(failed);
        state.decide_indexed_end();
        state
    }

    /// Returns the succeeded and the failed pods that are not in the status yet.
    fn newly_ended(&self) -> (Vec<&JobPod>, Vec<&JobPod>) {
        let is_new = |pod: &&JobPod, known: &[Str]| {
            pod.is_tracked
                && !known.iter().any(|uid| uid == pod.uid())
                && (!self.spec.is_indexed || pod.index_below(self.spec.indexes()).is_some())
        };
        let succeeded = &self.status.uncounted_succeeded;
        let failed = &self.status.uncounted_failed;
        let ended = |pod: &&JobPod| pod.phase == Phase::Succeeded && is_new(pod, succeeded);
        let lost = |pod: &&JobPod| pod.is_failed && is_new(pod, failed);
        (self.pods.iter().filter(ended).collect(), self.pods.iter().filter(lost).collect())
    }

    /// Decides by what earlier syncs found, by the failure policy and by the limits of the Job.
    fn decide_end(&mut self, failed: i64) {
        if let Some((reason, message)) = self.status.condition("SuccessCriteriaMet") {
            self.end = Some(Condition { kind: "SuccessCriteriaMet", reason, message });
        } else if let Some((reason, message)) = self.status.condition("FailureTarget") {
            self.end = Some(Condition { kind: "Failed", reason, message });
        } else if let Some(message) = self.fatal_failure() {
            self.end = Some(Condition::new("FailureTarget", "PodFailurePolicy", message));
        } else if failed > self.spec.backoff_limit || self.restarts_exceed_limit() {
            let message = "Job has reached the specified backoff limit";
            self.end = Some(Condition::new("FailureTarget", "BackoffLimitExceeded", message));
        } else if let Some(seconds) = self.spec.active_deadline
            && !self.spec.is_suspended
        {
            let started = self
                .status
                .start_time
                .as_deref()
                .map(Timestamp::parse)
                .and_then(Result::ok)
                .unwrap_or(self.now);
            let elapsed = u64::try_from(self.now.since(started).0).unwrap_or(0);
            let allowed = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            let left = allowed.saturating_sub(Duration::from_nanos(elapsed));
            if left.is_zero() {
                let message = "Job was active longer than specified deadline";
                self.end = Some(Condition::new("FailureTarget", "DeadlineExceeded", message));
            } else {
                self.sync_after(left);
            }
        }
    }

    fn fatal_failure(&self) -> Option<&str> {
        let failed = self.pods.iter().filter(|pod| pod.is_failed);
        let mut fatal = failed.filter_map(|pod| match &pod.failure {
            Match::FailJob(message) => Some(message.as_str()),
            _ => None,
        });
        fatal.next()
    }

    fn restarts_exceed_limit(&self) -> bool {
        let is_running = |pod: &&JobPod| !matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        let restarts: i64 = self.pods.iter().filter(is_running).map(JobPod::restarts).sum();
        self.spec.restarts_on_failure && restarts >= self.spec.backoff_limit.max(1)
    }

    fn decide_indexed_end(&mut self) {
        if !self.spec.is_indexed {
            return;
        }
        let indexes = self.spec.indexes();
        self.succeeded_before = Indexes::parse(&self.status.completed_indexes, indexes);
        let is_new = |pod: &&JobPod| pod.phase == Phase::Succeeded && pod.is_tracked;
        let new = self.pods.iter().filter(is_new).filter_map(|pod| pod.index_below(indexes));
        self.succeeded_indexes = self.succeeded_before.with(new);
        self.succeeded = self.succeeded_indexes.count();
        if let Some(limit) = self.spec.backoff_limit_per_index {
            let failed = self.find_failed_indexes(limit);
            let failures = failed.count();
            let successes = self.succeeded;
            let end = if self.spec.max_failed_indexes.is_some_and(|max| failures > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                Some(Condition::new("FailureTarget", "MaxFailedIndexesExceeded", message))
            } else if failures > 0 && failures + successes >= indexes {
                let message = "Job has failed indexes";
                Some(Condition::new("FailureTarget", "FailedIndexes", message))
            } else {
                None
            };
            self.end = self.end.take().or(end);
            self.replaced = self.find_replaced(&failed);
            self.failed_indexes = Some(failed);
        }
        if self.end.is_none() {
            let policy = self.spec.success_policy.as_ref();
            let message = policy::match_success(policy, indexes, &self.succeeded_indexes);
            self.end = message
                .map(|message| Condition::new("SuccessCriteriaMet", "SuccessPolicy", &message));
        }
    }

    fn find_failed_indexes(&self, limit: i64) -> Indexes {
        let indexes = self.spec.indexes();
        let before = self.status.failed_indexes.as_deref().unwrap_or_default();
        let is_over = |pod: &&JobPod| {
            pod.is_tracked
                && pod.is_failed
                && (pod.failure == Match::FailIndex
                    || pod.failure.counts() && pod.index_failures().0 >= limit)
        };
        let over = self.pods.iter().filter(is_over).filter_map(|pod| pod.index_below(indexes));
        Indexes::parse(before, indexes).with(over)
    }

    /// Returns the last failed pod of each index that will get a new pod.
    fn find_replaced(&self, failed: &Indexes) -> BTreeMap<i64, usize> {
        let active = indexes_of(self.pods.iter().filter(|pod| pod.is_active()));
        let mut replaced: BTreeMap<i64, usize> = BTreeMap::new();
        for (at, pod) in self.pods.iter().enumerate() {
            let Some(index) = pod.index_below(self.spec.indexes()) else { continue };
            let is_done =
                [&self.succeeded_indexes, failed, &active].iter().any(|all| all.has(index));
            if !pod.is_tracked || !pod.is_failed || is_done {
                continue;
            }
            let failures = |pod: &JobPod| pod.index_failures().0 + pod.index_failures().1;
            let known = replaced.get(&index).map(|known| &self.pods[*known]);
            let is_last = known.is_none_or(|known| {
                failures(known) <= failures(pod) && pod.finished >= known.finished
            });
            if is_last {
                replaced.insert(index, at);
            }
        }
        replaced
    }

    fn sync_after(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }

    /// Decides which pods are deleted and created.
    pub fn decide_pods(&mut self) -> Pods {
        let active: Vec<usize> = self.places(JobPod::is_active);
        if self.end.is_some() {
            return Pods { delete: active, ..Pods::default() };
        }
        if self.is_deleted {
            return Pods::default();
        }
        if self.spec.is_suspended {
            let delete = self.choose_deleted(active.clone(), active.len());
            return Pods { delete, release_deleted: true, create: vec![] };
        }
        let running = count(active.len());
        let wanted = match self.spec.completions {
            None if self.succeeded > 0 => running,
            None => self.spec.parallelism,
            Some(completions) => (completions - self.succeeded).min(self.spec.parallelism).max(0),
        };
        let excess = usize::try_from(running - wanted).unwrap_or(0);
        let mut delete = self.choose_deleted(active, excess);
        if !delete.is_empty() {
            delete.truncate(PODS_PER_SYNC_MAX);
            return Pods { delete, release_deleted: true, create: vec![] };
        }
        let only_failed = self.spec.replaces_failed_only;
        let terminating = if only_failed { self.places(JobPod::is_terminating).len() } else { 0 };
        let missing = usize::try_from(wanted - running - count(terminating)).unwrap_or(0);
        Pods { create: self.choose_created(missing), ..Pods::default() }
    }

    fn places(&self, is_wanted: impl Fn(&JobPod) -> bool) -> Vec<usize> {
        (0..self.pods.len()).filter(|at| is_wanted(&self.pods[*at])).collect()
    }

    /// Returns the active pods to delete: those without a valid index of their own, and at least
    /// `excess`, pods that have done the least work first.
    fn choose_deleted(&self, active: Vec<usize>, excess: usize) -> Vec<usize> {
        let rank = |at: &usize| self.pods[*at].removal_rank();
        let mut delete = vec![];
        let mut left = active;
        if self.spec.is_indexed {
            let mut by_index: BTreeMap<Option<i64>, Vec<usize>> = BTreeMap::new();
            for at in left.drain(..) {
                by_index
                    .entry(self.pods[at].index_below(self.spec.indexes()))
                    .or_default()
                    .push(at);
            }
            for (index, mut pods) in by_index {
                pods.sort_by_key(rank);
                left.extend(index.and_then(|_| pods.pop()));
                delete.extend(pods);
            }
        }
        if delete.len() < excess {
            left.sort_by_key(rank);
            delete.extend(left.into_iter().take(excess - delete.len()));
        }
        delete
    }

    fn choose_created(&mut self, missing: usize) -> Vec<Option<i64>> {
        if missing == 0 {
            return vec![];
        }
        let is_per_index = self.spec.backoff_limit_per_index.is_some();
        let wait = if is_per_index { Duration::ZERO } else { self.failures.wait(self.now) };
        if !wait.is_zero() {
            self.sync_after(wait);
            return vec![];
        }
        let missing = missing.min(PODS_PER_SYNC_MAX);
        if !self.spec.is_indexed {
            return vec![None; missing];
        }
        let indexes = self.missing_indexes(missing);
        if !is_per_index {
            return indexes.into_iter().map(Some).collect();
        }
        let mut now = vec![];
        let mut soonest = None;
        for index in indexes {
            let wait = wait_for_index(self.replaced(index), self.now);
            if wait.is_zero() {
                now.push(Some(index));
            } else {
                soonest = Some(soonest.map_or(wait, |soonest: Duration| soonest.min(wait)));
            }
        }
        if let Some(wait) = soonest {
            self.sync_after(wait);
        }
        now
    }

    fn missing_indexes(&self, count: usize) -> Vec<i64> {
        let mut taken = self
            .succeeded_indexes
            .union(&indexes_of(self.pods.iter().filter(|pod| pod.is_active())));
        if self.spec.replaces_failed_only {
            let terminating = self.pods.iter().filter(|pod| pod.is_terminating());
            taken = taken.union(&indexes_of(terminating));
        }
        if let Some(failed) = &self.failed_indexes {
            taken = taken.union(failed);
        }
        taken.first_missing(count, self.spec.indexes())
    }

    /// Returns the failed pod that a new pod of an index replaces.
    pub fn replaced(&self, index: i64) -> Option<&JobPod> {
        self.replaced.get(&index).map(|at| &self.pods[*at])
    }

    /// Decides whether the Job is complete or suspended, when its pods have been created and
    /// deleted. Returns the new state of suspension, if it changed.
    pub fn decide_completion(&mut self, active: i64) -> Option<bool> {
        let is_complete = match self.spec.completions {
            None => self.succeeded > 0 && active == 0,
            Some(completions) => self.succeeded >= completions && active == 0,
        };
        if is_complete {
            let message = "Reached expected number of succeeded pods";
            self.end = Some(Condition::new("SuccessCriteriaMet", "CompletionsReached", message));
            return None;
        }
        let is_suspended = self.spec.is_suspended;
        if self.is_deleted {
            return None;
        }
        let condition = if is_suspended {
            Condition::new("Suspended", "JobSuspended", "Job suspended")
        } else {
            Condition::new("Suspended", "JobResumed", "Job resumed")
        };
        if !self.status.set(&condition, is_suspended, self.now) {
            return None;
        }
        // The deadline counts from the last start.
        self.status.start_time = (!is_suspended).then(|| self.now.text());
        Some(is_suspended)
    }

    /// Enters the pods that ended into the status and returns the places of those whose finalizer
    /// is removed when the status is stored. `false`: there are more of them.
    pub fn track(&mut self) -> (Vec<usize>, bool) {
        let tracked: HashSet<&str> =
            self.pods.iter().filter(|pod| pod.is_tracked).map(JobPod::uid).collect();
        self.status.count_released(|uid| tracked.contains(uid));
        let mut order: Vec<usize> = self.places(|pod| pod.is_tracked);
        if self.spec.is_indexed {
            order.sort_by_key(|at| self.pods[*at].index.map_or(-1, |index| index));
        }
        let failed_at_start: HashSet<Str> = self.status.uncounted_failed.iter().cloned().collect();
        let mut known: HashSet<Str> = self.status.uncounted_succeeded.iter().cloned().collect();
        known.extend(failed_at_start.iter().cloned());
        let mut release = vec![];
        let mut new_indexes = vec![];
        let mut is_all = true;
        for at in order {
            let pod = &self.pods[at];
            if !self.may_release(at) {
                continue;
            }
            release.push(at);
            let index = pod.index_below(self.spec.indexes());
            let is_known = known.contains(pod.uid());
            if pod.phase == Phase::Succeeded && !failed_at_start.contains(pod.uid()) {
                if self.spec.is_indexed {
                    new_indexes.extend(index.filter(|index| !self.succeeded_before.has(*index)));
                } else if !is_known {
                    self.status.uncounted_succeeded.push(pod.uid().into());
                }
            } else if (pod.is_failed || self.ends_in_failure())
                && !is_known
                && (!self.spec.is_indexed || index.is_some())
                && pod.failure.counts()
            {
                self.status.uncounted_failed.push(pod.uid().into());
            }
            let uncounted =
                self.status.uncounted_succeeded.len() + self.status.uncounted_failed.len();
            if new_indexes.len() + uncounted >= UNCOUNTED_PODS_MAX {
                is_all = false;
                break;
            }
        }
        if self.spec.is_indexed {
            self.succeeded_indexes = self.succeeded_indexes.with(new_indexes);
            self.status.succeeded = self.succeeded_indexes.count();
            self.status.completed_indexes = self.succeeded_indexes.to_string().into();
            let failed = self.failed_indexes.as_ref();
            self.status.failed_indexes = failed.map(|failed| failed.to_string().into());
        }
        self.enter_target();
        (release, is_all)
    }

    fn ends_in_failure(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.kind != "SuccessCriteriaMet")
    }

    fn may_release(&self, at: usize) -> bool {
        let pod = &self.pods[at];
        if self.is_deleted || self.end.is_some() || pod.phase == Phase::Succeeded {
            return true;
        }
        let is_replaced = pod.index.is_some_and(|index| self.replaced.get(&index) == Some(&at));
        pod.is_failed && !is_replaced
    }

    /// Enters the condition that announces the end, and turns it into the one that is the end.
    fn enter_target(&mut self) {
        let Some(end) = self.end.take() else { return };
        let kind = match end.kind {
            "FailureTarget" => "Failed",
            "SuccessCriteriaMet" => "Complete",
            kind => kind,
        };
        if kind != end.kind && self.status.condition(end.kind).is_none() {
            self.status.add(&end, self.now);
        }
        self.end = Some(Condition { kind, ..end });
    }

    /// Enters the end of the Job, unless pods are not counted yet or are terminating. Returns
    /// whether it has ended.
    pub fn finish(&mut self) -> bool {
        let Some(end) = self.end.clone() else { return false };
        if self.status.has_uncounted() || self.status.terminating.unwrap_or(0) > 0 {
            return false;
        }
        self.status.set(&end, true, self.now);
        if end.kind == "Complete" {
            self.status.completion_time = Some(self.now.text());
        }
        true
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::facts::{FINALIZER, INDEX, INDEX_FAILURES};
    use super::*;
    use keelson_meta::{Object, Value, value};

    /// Makes a pod from words: its phase, its index as `#1`, `gone` for one that is being deleted,
    /// `counted` for one without the finalizer, `exit=3` and `failures=1`.
    fn pod(number: usize, words: &str, spec: &Spec) -> JobPod {
        let mut pod = Object::from_value(value!({"metadata": {"annotations": {}}})).expect("a map");
        pod.set_meta("uid", &format!("u{number}"));
        pod.set_meta("name", &format!("p{number}"));
        pod.set_meta("creationTimestamp", "1970-01-01T00:00:00Z");
        let mut finalizers = value!([FINALIZER]);
        for word in words.split(' ') {
            if let Some(index) = word.strip_prefix('#') {
                let annotations = pod.metadata_mut().object_at("annotations");
                annotations.insert(INDEX, index);
            } else if let Some(failures) = word.strip_prefix("failures=") {
                let annotations = pod.metadata_mut().object_at("annotations");
                annotations.insert(INDEX_FAILURES, failures);
            } else if let Some(code) = word.strip_prefix("exit=") {
                let code: i64 = code.parse().expect("a number");
                let status = value!([{"name": "c", "state": {"terminated": {"exitCode": code}}}]);
                pod.object_mut("status").insert("containerStatuses", status);
            } else if word == "gone" {
                pod.set_meta("deletionTimestamp", "1970-01-01T00:00:00Z");
            } else if word == "counted" {
                finalizers = value!([]);
            } else {
                pod.object_mut("status").insert("phase", word);
            }
        }
        pod.metadata_mut().insert("finalizers", finalizers);
        JobPod::new(pod, spec)
    }

    fn state(spec: &Value, pods: &[&str]) -> State {
        let job = Object::from_value(value!({"spec": (spec.clone())})).expect("a map");
        let spec = Spec::of(&job);
        let made = pods.iter().enumerate().map(|(number, words)| pod(number, words, &spec));
        let pods = made.collect();
        // Long after the failures, so that nothing is waited for.
        let now = Timestamp::new(100_000, 0);
        State::new(spec, Status::of(&job), pods, false, Failures::default(), now)
    }

    #[test]
    fn pods_are_created_and_deleted_until_enough_run() {
        let check = |spec: Value, pods: &[&str], delete: &[usize], create: &[Option<i64>]| {
            let found = state(&spec, pods).decide_pods();
            assert_eq!(
                (&found.delete[..], &found.create[..]),
                (delete, create),
                "{spec:?} {pods:?}"
            );
        };
        let plain = value!({"parallelism": 2, "completions": 3});
        check(plain.clone(), &[], &[], &[None, None]);
        check(plain.clone(), &["Running"], &[], &[None]);
        check(plain.clone(), &["Succeeded", "Succeeded", "Running"], &[], &[]);
        check(plain.clone(), &["Running", "Pending", "Running"], &[1], &[]);
        check(plain, &["Running gone", "Running"], &[], &[None]);
        let queue = value!({"parallelism": 2});
        check(queue.clone(), &["Running"], &[], &[None]);
        check(queue, &["Succeeded", "Running"], &[], &[]);
        let late = value!({"parallelism": 2, "completions": 3, "podReplacementPolicy": "Failed"});
        check(late, &["Running gone", "Running"], &[], &[]);
        let paused = value!({"parallelism": 2, "completions": 3, "suspend": true});
        check(paused, &["Running", "Pending"], &[1, 0], &[]);
        let indexed = value!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"});
        check(indexed.clone(), &["Running #1"], &[], &[Some(0), Some(2)]);
        check(indexed.clone(), &["Succeeded #0", "Running #1"], &[], &[Some(2)]);
        check(indexed, &["Running #1", "Pending #1", "Running #7", "Running"], &[2, 3, 1], &[]);
    }

    #[test]
    fn a_job_ends_for_one_reason() {
        let check = |spec: Value, pods: &[&str], want: &str| {
            let end = state(&spec, pods).end;
            let found = end.map_or(String::new(), |end| format!("{} {}", end.kind, end.reason));
            assert_eq!(found, want, "{spec:?} {pods:?}");
        };
        check(value!({"backoffLimit": 1}), &["Failed"], "");
        check(
            value!({"backoffLimit": 1}),
            &["Failed", "Failed"],
            "FailureTarget BackoffLimitExceeded",
        );
        check(value!({"backoffLimit": 0}), &["Failed counted"], "");
        let rules = value!({"rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]});
        let spec = value!({"backoffLimit": 0, "podFailurePolicy": (rules)});
        check(spec.clone(), &["Failed exit=42"], "FailureTarget PodFailurePolicy");
        check(spec.clone(), &["Failed exit=7"], "");
        check(spec, &["Failed exit=1"], "FailureTarget BackoffLimitExceeded");
        let indexed = |more: &[(&'static str, i64)]| {
            let mut spec =
                value!({"completions": 3, "completionMode": "Indexed", "backoffLimit": 99});
            let map = spec.as_object_mut().expect("a map");
            more.iter().for_each(|(name, number)| drop(map.insert(*name, *number)));
            spec
        };
        let per_index = indexed(&[("backoffLimitPerIndex", 1)]);
        check(per_index.clone(), &["Failed #0"], "");
        check(per_index.clone(), &["Failed #0 failures=1"], "");
        let pods = ["Failed #0 failures=1", "Succeeded #1", "Succeeded #2"];
        check(per_index, &pods, "FailureTarget FailedIndexes");
        let limited = indexed(&[("backoffLimitPerIndex", 0), ("maxFailedIndexes", 1)]);
        check(limited, &["Failed #0", "Failed #1"], "FailureTarget MaxFailedIndexesExceeded");
    }

    #[test]
    fn ended_pods_are_entered_and_released() {
        let check = |spec: Value,
                     pods: &[&str],
                     release: &[usize],
                     want: [usize; 2],
                     indexes: &str| {
            let mut state = state(&spec, pods);
            let (released, is_all) = state.track();
            let status = &state.status;
            let found = [status.uncounted_succeeded.len(), status.uncounted_failed.len()];
            assert_eq!((&released[..], found, is_all), (release, want, true), "{spec:?} {pods:?}");
            assert_eq!(status.completed_indexes, indexes);
        };
        let plain = value!({"completions": 3});
        check(plain.clone(), &["Succeeded", "Running", "Failed"], &[0, 2], [1, 1], "");
        check(plain, &["Succeeded counted", "Running gone"], &[1], [0, 1], "");
        let indexed = value!({"completions": 3, "completionMode": "Indexed"});
        check(indexed, &["Succeeded #2", "Succeeded #0", "Failed #9"], &[1, 0, 2], [0, 0], "0,2");
        // The failed pod of an index stays until it is replaced.
        let per_index =
            value!({"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 2});
        check(per_index.clone(), &["Failed #1"], &[], [0, 0], "");
        check(per_index, &["Failed #1", "Running #1"], &[0], [0, 1], "");
    }

    #[test]
    fn a_job_is_complete_when_its_pods_are_counted() {
        let mut state = state(&value!({"completions": 1}), &["Succeeded"]);
        assert_eq!(state.decide_completion(0), None);
        state.track();
        assert!(!state.finish(), "its pod is not counted yet");
        state.status.count_released(|_| false);
        assert!(state.finish());
        let kinds: Vec<&str> =
            state.status.conditions.iter().filter_map(|one| one.str_at(&["type"])).collect();
        assert_eq!((kinds, state.status.succeeded), (vec!["SuccessCriteriaMet", "Complete"], 1));
    }
}
