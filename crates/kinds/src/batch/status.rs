//! Validates the status of a job: counts, times, indexes and conditions, and their changes.

use super::policies::{error_without_value, index_interval, indexes_error};
use crate::check::Field;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::status::show;
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Value};

/// Conditions that must stay true.
const TERMINAL: &[&str] = &["Failed", "Complete", "FailureTarget"];

/// Validates a status update.
pub(super) fn validate(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let spec = Field::of(new, "spec");
    let status = Field::of(new, "status");
    let job = Status { spec: &spec, at: &status, old: &Field::of(old, "status") };
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.field(name).not_negative(&mut errors);
    }
    uncounted(&status.field("uncountedTerminatedPods"), &mut errors);
    job.conditions_and_times(&mut errors);
    job.finished(&mut errors);
    job.indexes(&mut errors);
    job.running(&mut errors);
    job.success(&mut errors);
    job.changes(&mut errors);
    errors
}

/// Validates the uncounted pods: a UID may occur once in one of the two lists.
fn uncounted(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for list in ["succeeded", "failed"] {
        for uid in at.field(list).items() {
            if uid.text().is_empty() {
                uid.invalid_as(errors, "", "must not be empty");
            } else if !seen.insert(uid.text()) {
                uid.duplicate(errors);
            }
        }
    }
}

/// The new and the stored status. Most rules check only changed fields, so that a stored status
/// that violates them can still be updated.
struct Status<'a> {
    spec: &'a Field<'a, 'a>,
    at: &'a Field<'a, 'a>,
    old: &'a Field<'a, 'a>,
}

/// Returns whether a condition of a status is true.
pub(super) fn is_true(status: &Field<'_, '_>, kind: &str) -> bool {
    let conditions = status.get("conditions").as_array().unwrap_or_default();
    conditions.iter().any(|condition| {
        condition.str_at(&["type"]) == Some(kind) && condition.str_at(&["status"]) == Some("True")
    })
}

fn is_finished(status: &Field<'_, '_>) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

impl Status<'_> {
    fn is(&self, condition: &str) -> bool {
        is_true(self.at, condition)
    }

    fn condition_changes(&self, condition: &str) -> bool {
        self.is(condition) != is_true(self.old, condition)
    }

    fn changes_to(&self, name: &str) -> bool {
        self.at.get(name) != self.old.get(name)
    }

    /// Returns whether a count changes; an absent one is 0.
    fn count_changes(&self, name: &str) -> bool {
        self.at.int(name).unwrap_or(0) != self.old.int(name).unwrap_or(0)
    }

    fn finish_changes(&self) -> bool {
        is_finished(self.at) != is_finished(self.old)
    }

    fn is_indexed(&self) -> bool {
        self.spec.str("completionMode") == "Indexed"
    }

    fn refuse_conditions(&self, words: &str, errors: &mut ErrorList) {
        errors.push(error_without_value(&self.at.field("conditions"), words));
    }

    fn conditions_and_times(&self, errors: &mut ErrorList) {
        let complete = self.is("Complete");
        let failed = self.is("Failed");
        let complete_changes = self.condition_changes("Complete");
        let failed_changes = self.condition_changes("Failed");
        if (complete_changes || failed_changes) && complete && failed {
            self.refuse_conditions("cannot set Complete=True and Failed=true conditions", errors);
        }
        let target_changes = self.condition_changes("FailureTarget");
        if (complete_changes || target_changes) && complete && self.is("FailureTarget") {
            let words = "cannot set Complete=True and FailureTarget=true conditions";
            self.refuse_conditions(words, errors);
        }
        let start = self.at.field("startTime");
        let end = self.at.field("completionTime");
        let end_changes = self.changes_to("completionTime");
        if complete_changes || end_changes {
            if end.is_set() && !complete {
                let words = "cannot set completionTime when there is no Complete=True condition";
                end.invalid(errors, words);
            } else if !end.is_set() && complete {
                end.required(errors, "completionTime is required for Complete jobs");
            }
        }
        let times_change = end_changes || self.changes_to("startTime");
        if times_change && start.is_set() && end.is_set() && end.text() < start.text() {
            end.invalid(errors, "must be equal to or after `startTime`");
        }
        if failed_changes && failed && !self.is("FailureTarget") {
            let words = "cannot set Failed=True condition without the FailureTarget=true condition";
            self.refuse_conditions(words, errors);
        }
        if complete_changes && complete && !self.is("SuccessCriteriaMet") {
            let words =
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            self.refuse_conditions(words, errors);
        }
    }

    fn finished(&self, errors: &mut ErrorList) {
        if !is_finished(self.at) {
            return;
        }
        let active = self.at.field("active");
        let changes = self.finish_changes();
        if (changes || self.count_changes("active")) && active.number() > 0 {
            active.invalid(errors, "active>0 is invalid for finished job");
        }
        let waits_for_nothing =
            self.spec.flag("suspend") && self.spec.int("completions") == Some(0);
        let start = self.at.field("startTime");
        let checks_start = (changes || self.changes_to("startTime")) && !waits_for_nothing;
        if checks_start && !start.is_set() {
            start.required(errors, "startTime is required for finished job");
        }
        let uncounted = self.at.field("uncountedTerminatedPods");
        let list = |name: &str| uncounted.get(name).as_array().unwrap_or_default();
        let is_empty = list("succeeded").is_empty() && list("failed").is_empty();
        if (changes || self.changes_to("uncountedTerminatedPods")) && !is_empty {
            // The message shows the Go struct.
            let succeeded = show(uncounted.get("succeeded"));
            let failed = show(uncounted.get("failed"));
            let shown = format!("{{\"Succeeded\":{succeeded},\"Failed\":{failed}}}");
            let error =
                FieldError::invalid(&uncounted.path, Value::Null, "must be empty for finished job");
            errors.push(FieldError { value: Some(shown), ..error });
        }
    }

    fn indexes(&self, errors: &mut ErrorList) {
        let completed = self.at.field("completedIndexes");
        let failed = self.at.field("failedIndexes");
        let completed_changes = completed.text() != self.old.str("completedIndexes");
        let failed_changes = self.changes_to("failedIndexes");
        let completions = self.spec.int("completions");
        let per_index = self.spec.has("backoffLimitPerIndex");
        if let Some(completions) = completions {
            if completed_changes && let Some(why) = indexes_error(completed.text(), completions) {
                completed.invalid(errors, &format!("error parsing completedIndexes: {why}"));
            }
            if failed_changes
                && per_index
                && let Some(why) = indexes_error(failed.text(), completions)
            {
                failed.invalid(errors, &format!("error parsing failedIndexes: {why}"));
            }
        }
        if completed_changes && !completed.text().is_empty() && !self.is_indexed() {
            let words = "cannot set non-empty completedIndexes when non-indexed completion mode";
            completed.invalid(errors, words);
        }
        if failed_changes && failed.is_set() && !per_index {
            let words = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            failed.invalid(errors, words);
        }
        if (completed_changes || failed_changes)
            && let Some(completions) = completions
            && let Some(index) = overlap(completed.text(), failed.text(), completions)
        {
            let words = format!("failedIndexes and completedIndexes overlap at index: {index}");
            failed.invalid(errors, &words);
        }
    }

    fn running(&self, errors: &mut ErrorList) {
        let ready = self.at.field("ready");
        let terminating = self.at.field("terminating");
        let checks = self.finish_changes() || self.changes_to("terminating");
        if checks && is_finished(self.at) && terminating.number() > 0 {
            terminating.invalid(errors, "terminating>0 is invalid for finished job");
        }
        let checks = self.changes_to("ready") || self.count_changes("active");
        if checks && ready.is_set() && ready.number() > self.at.int("active").unwrap_or(0) {
            ready.invalid(errors, "cannot set more ready pods than active");
        }
    }

    fn success(&self, errors: &mut ErrorList) {
        if !self.is("SuccessCriteriaMet") {
            return;
        }
        for other in ["Failed", "FailureTarget"] {
            let changes =
                self.condition_changes("SuccessCriteriaMet") || self.condition_changes(other);
            if changes && self.is(other) {
                let words =
                    format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
                self.refuse_conditions(&words, errors);
            }
        }
    }

    /// Validates the transition from the stored status.
    fn changes(&self, errors: &mut ErrorList) {
        for condition in TERMINAL {
            if is_true(self.old, condition) && !self.is(condition) {
                let words = format!("cannot disable the terminal {condition}=True condition");
                self.refuse_conditions(&words, errors);
            }
        }
        let shrinks_by_spec =
            self.is_indexed() && self.spec.int("completions") == self.spec.int("parallelism");
        for name in ["failed", "succeeded"] {
            let at = self.at.field(name);
            let may_shrink = name == "succeeded" && shrinks_by_spec;
            if !may_shrink && at.number() < self.old.int(name).unwrap_or(0) {
                at.invalid(errors, &format!("cannot decrease the {name} counter"));
            }
        }
        let end = self.at.field("completionTime");
        if end.is_set() && self.old.has("completionTime") {
            end.unchanged(errors, self.old.get("completionTime"));
        }
        let start = self.at.field("startTime");
        let is_running = !self.spec.flag("suspend");
        if is_running && self.old.has("startTime") && self.changes_to("startTime") {
            start.invalid(errors, &format!("{IMMUTABLE} for unsuspended job once set"));
        }
        if is_true(self.old, "SuccessCriteriaMet") && !self.is("SuccessCriteriaMet") {
            let words = "cannot disable the SuccessCriteriaMet=True condition";
            self.refuse_conditions(words, errors);
        }
    }
}

/// Returns the first index that is in both lists. Skips invalid intervals, which are errors of
/// their list.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| index_interval(part, completions).ok()).collect()
    };
    let completed = read(completed);
    let failed = read(failed);
    let mut one = completed.iter().peekable();
    let mut other = failed.iter().peekable();
    while let (Some((a, b)), Some((x, y))) = (one.peek(), other.peek()) {
        if x <= b && a <= y {
            return Some(*a.max(x));
        }
        if a <= x {
            one.next();
        } else {
            other.next();
        }
    }
    None
}
