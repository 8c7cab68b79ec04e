//! The status of a Job.

use keelson_meta::{Map, Object, Str, Timestamp, Value, value};

/// `status` of a Job. Equal statuses need no write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Status {
    pub active: i64,
    pub ready: Option<i64>,
    pub terminating: Option<i64>,
    pub succeeded: i64,
    pub failed: i64,
    pub completed_indexes: Str,
    pub failed_indexes: Option<Str>,
    /// Uids of pods that ended and still have the finalizer.
    pub uncounted_succeeded: Vec<Str>,
    pub uncounted_failed: Vec<Str>,
    pub conditions: Vec<Value>,
    pub start_time: Option<Str>,
    pub completion_time: Option<Str>,
}

/// Type, reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub kind: &'static str,
    pub reason: Str,
    pub message: Str,
}

impl Condition {
    pub fn new(kind: &'static str, reason: &str, message: &str) -> Condition {
        Condition { kind, reason: reason.into(), message: message.into() }
    }

    fn value(&self, status: &'static str, now: Timestamp) -> Value {
        value!({"type": (self.kind), "status": status, "lastProbeTime": (now.text()),
            "lastTransitionTime": (now.text()), "reason": (self.reason.clone()),
            "message": (self.message.clone())})
    }
}

impl Status {
    pub fn of(job: &Object) -> Status {
        let int = |name: &str| job.int_at(&["status", name]);
        let text = |name: &str| job.at(&["status", name]).and_then(Value::as_str).map(Str::new);
        let uids = |name: &str| {
            let all = job.array_at(&["status", "uncountedTerminatedPods", name]);
            all.iter().filter_map(Value::as_str).map(Str::new).collect()
        };
        Status {
            active: int("active").unwrap_or(0),
            ready: int("ready"),
            terminating: int("terminating"),
            succeeded: int("succeeded").unwrap_or(0),
            failed: int("failed").unwrap_or(0),
            completed_indexes: text("completedIndexes").unwrap_or_default(),
            failed_indexes: text("failedIndexes"),
            uncounted_succeeded: uids("succeeded"),
            uncounted_failed: uids("failed"),
            conditions: job.array_at(&["status", "conditions"]).to_vec(),
            start_time: text("startTime"),
            completion_time: text("completionTime"),
        }
    }

    /// Returns the status as a value. Counts that are zero are left out, as the API does.
    pub fn into_value(self) -> Value {
        let mut map = Map::new();
        let counts =
            [("active", self.active), ("succeeded", self.succeeded), ("failed", self.failed)];
        for (name, count) in counts.into_iter().filter(|(_, count)| *count != 0) {
            map.insert(name, count);
        }
        for (name, count) in [("ready", self.ready), ("terminating", self.terminating)] {
            count.map(|count| map.insert(name, count));
        }
        if !self.completed_indexes.is_empty() {
            map.insert("completedIndexes", self.completed_indexes);
        }
        let texts = [
            ("failedIndexes", self.failed_indexes),
            ("startTime", self.start_time),
            ("completionTime", self.completion_time),
        ];
        for (name, text) in texts {
            text.map(|text| map.insert(name, text));
        }
        let mut uncounted = Map::new();
        let uids = [("succeeded", self.uncounted_succeeded), ("failed", self.uncounted_failed)];
        for (name, uids) in uids.into_iter().filter(|(_, uids)| !uids.is_empty()) {
            uncounted.insert(name, uids.into_iter().map(Value::from).collect::<Vec<_>>());
        }
        map.insert("uncountedTerminatedPods", uncounted);
        if !self.conditions.is_empty() {
            map.insert("conditions", self.conditions);
        }
        Value::Object(map)
    }

    /// Returns reason and message of a condition that is true.
    pub fn condition(&self, kind: &str) -> Option<(Str, Str)> {
        let known = self.conditions.iter().find(|one| one.str_at(&["type"]) == Some(kind))?;
        let text = |name: &str| Str::new(known.str_at(&[name]).unwrap_or_default());
        (known.str_at(&["status"]) == Some("True")).then(|| (text("reason"), text("message")))
    }

    /// Appends a condition that is true.
    pub fn add(&mut self, condition: &Condition, now: Timestamp) {
        self.conditions.push(condition.value("True", now));
    }

    /// Sets a condition and returns whether it changed. A condition that is absent is not added as
    /// false.
    pub fn set(&mut self, condition: &Condition, is_true: bool, now: Timestamp) -> bool {
        let status = if is_true { "True" } else { "False" };
        let is_kind = |one: &&mut Value| one.str_at(&["type"]) == Some(condition.kind);
        match self.conditions.iter_mut().find(is_kind) {
            Some(known) => {
                let wanted = [status, &condition.reason, &condition.message];
                let is_same = ["status", "reason", "message"].map(|name| known.str_at(&[name]))
                    == wanted.map(Some);
                if !is_same {
                    *known = condition.value(status, now);
                }
                !is_same
            }
            None if is_true => {
                self.add(condition, now);
                true
            }
            None => false,
        }
    }

    /// Counts the pods that have no finalizer any more.
    pub fn count_released(&mut self, is_tracked: impl Fn(&str) -> bool) {
        let settle = |uids: &mut Vec<Str>, count: &mut i64| {
            let before = uids.len();
            uids.retain(|uid| is_tracked(uid));
            *count += i64::try_from(before - uids.len()).unwrap_or(0);
        };
        settle(&mut self.uncounted_succeeded, &mut self.succeeded);
        settle(&mut self.uncounted_failed, &mut self.failed);
    }

    pub fn has_uncounted(&self) -> bool {
        !self.uncounted_succeeded.is_empty() || !self.uncounted_failed.is_empty()
    }
}

/// Whether a Job has ended.
pub(super) fn is_finished(job: &Object) -> bool {
    job.array_at(&["status", "conditions"]).iter().any(|one| {
        matches!(one.str_at(&["type"]), Some("Complete" | "Failed"))
            && one.str_at(&["status"]) == Some("True")
    })
}
