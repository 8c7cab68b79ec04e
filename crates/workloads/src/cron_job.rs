//! The cronjob controller: creates Jobs at the times of a schedule and deletes old ones.

mod schedule;
mod times;

use crate::dependents::Dependents;
use crate::pod_control::{controller_reference, is_controlled_by};
use crate::stored::name_of;
use keelson_loops::client::Client;
use keelson_loops::client::is_namespace_terminating;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Reason, Status, Str, Timestamp, Value, value};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, Propagation};
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use keelson_resources::Kind;
use schedule::Schedule;
use std::time::Duration;

const GROUP: &str = "batch";
const RESOURCE: &str = "cronjobs";
/// The source component of its events.
const COMPONENT: &str = "cronjob-controller";
/// Annotation of a Job: the time that it was scheduled for, in the time zone of the CronJob.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "cronjob-controller");
    let events = Recorder::new(&client, COMPONENT);
    let cron_jobs = CronJobs { client, events, jobs: Dependents::of("CronJob") };
    control_loop::run(&context.registry, cron_jobs).await;
}

struct CronJobs {
    client: Client,
    events: Recorder,
    jobs: Dependents,
}

/// Namespace and name of a CronJob.
type Key = (Str, Str);

impl ControlLoop for CronJobs {
    type Key = Key;
    const NAME: &'static str = "cronjob-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, "jobs"), (GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == RESOURCE => {
                    queue.extend(all.range("", "").map(name_of));
                }
                InformerEvent::Put { kind, entry, previous } if kind.gvr.resource == RESOURCE => {
                    match previous.as_ref().and_then(|old| self.rescheduled(kind, old, entry)) {
                        Some(wait) => {
                            let now = self.client.registry.clock.monotonic();
                            queue.add_at(name_of(entry), now + wait);
                        }
                        None => queue.add(name_of(entry)),
                    }
                }
                InformerEvent::Listed(_, all) => self.jobs.list(all.range("", "")),
                event => {
                    let affected = self.jobs.observe(event);
                    let (InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. }) =
                        event
                    else {
                        continue;
                    };
                    let owners = [affected.now, affected.before]
                        .into_iter()
                        .flatten()
                        .filter(|owner| owner.kind == "CronJob");
                    queue.extend(owners.map(|owner| (entry.namespace().into(), owner.name)));
                }
            }
        }
        false
    }

    async fn sync(&self, (namespace, name): Key) -> Result<Option<Duration>, Failure> {
        let (Some(kind), Some(jobs)) =
            (self.client.kind(GROUP, RESOURCE), self.client.kind(GROUP, "jobs"))
        else {
            return Ok(None);
        };
        let known = self.client.registry.cached(&kind, &namespace, &name);
        let Some(cron) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        let owned = self.jobs.owned(&self.client.registry, &jobs, &cron)?;
        let target = Target::of(&kind, &namespace, &name);
        let stored = cron.get("status").cloned();
        let mut run = CronSync { all: self, jobs: Target::of(&jobs, &namespace, ""), cron };
        let result = run.run(&owned).await;
        // What was done is entered even if something else failed.
        if run.cron.get("status") != stored.as_ref() {
            let written = self.client.update(&target, Subresource::Status, run.cron).await;
            match written {
                Err(error) if error.code == 404 => return Ok(None),
                written => drop(written?),
            }
        }
        result
    }
}

impl CronJobs {
    /// Returns the wait until the next time of a schedule that was changed: times of the new one
    /// that have passed are not served.
    fn rescheduled(&self, kind: &Kind, old: &Entry, new: &Entry) -> Option<Duration> {
        let old = kind.decode(old).ok()?;
        let new = kind.decode(new).ok()?;
        let facts = |cron: &Object| {
            ["schedule", "timeZone"].map(|name| Str::new(cron.str_at(&["spec", name])))
        };
        if facts(&old) == facts(&new) || old.uid() != new.uid() {
            return None;
        }
        times::wait(&new, &schedule_of(&new).ok()?, self.client.now())
    }
}

fn schedule_of(cron: &Object) -> Result<Schedule, String> {
    let zone =
        schedule::zone(cron.str_at(&["spec", "timeZone"])).unwrap_or(jiff::tz::TimeZone::UTC);
    Schedule::parse(cron.str_at(&["spec", "schedule"]), zone)
}

/// Returns how a Job has ended: `Complete` or `Failed`.
fn ended(job: &Object) -> Option<&str> {
    let conditions = job.array_at(&["status", "conditions"]).iter();
    let mut ends = conditions.filter(|one| one.str_at(&["status"]) == Some("True"));
    ends.find_map(|one| one.str_at(&["type"]).filter(|kind| matches!(*kind, "Complete" | "Failed")))
}

/// One sync of a CronJob. Its status is changed in `cron` and stored afterwards.
struct CronSync<'a> {
    all: &'a CronJobs,
    /// Jobs in the namespace.
    jobs: Target,
    cron: Object,
}

impl CronSync<'_> {
    async fn run(&mut self, jobs: &[Object]) -> Result<Option<Duration>, Failure> {
        let now = self.all.client.now();
        self.delete_old(jobs).await;
        self.enter_results(jobs);
        self.forget_missing(jobs).await?;
        if self.cron.deletion_timestamp().is_some() {
            return Ok(None);
        }
        let zone = self.cron.str_at(&["spec", "timeZone"]).to_owned();
        if let Err(why) = schedule::zone(&zone) {
            self.warn("UnknownTimeZone", &format!("invalid timeZone: {zone:?}: {why}"));
            return Ok(None);
        }
        if self.cron.at(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true) {
            return Ok(None);
        }
        let text = self.cron.str_at(&["spec", "schedule"]);
        if text.contains("TZ") {
            let message = format!(
                "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            );
            self.warn("UnsupportedSchedule", &message);
        }
        let schedule = match schedule_of(&self.cron) {
            Ok(schedule) => schedule,
            Err(why) => {
                self.warn(
                    "UnparseableSchedule",
                    &format!("unparseable schedule: {text:?} : {why}"),
                );
                return Ok(None);
            }
        };
        match times::due(&self.cron, &schedule, now) {
            Err(why) => {
                self.warn("InvalidSchedule", &format!("invalid schedule: {text} : {why}"));
                return Ok(None);
            }
            Ok(Some((due, is_many))) => {
                if is_many {
                    let message = "too many missed start times. Set or decrease \
                                   .spec.startingDeadlineSeconds or check clock skew";
                    self.warn("TooManyMissedTimes", message);
                }
                if self.may_start(due, now) && !self.start(due).await? {
                    return Ok(None);
                }
            }
            Ok(None) => {}
        }
        Ok(times::wait(&self.cron, &schedule, now))
    }

    fn event(&self, kind: &'static str, reason: &str, message: &str) {
        self.all.events.about(&self.all.client, &self.cron, kind, (reason, message));
    }

    fn warn(&self, reason: &str, message: &str) {
        self.event("Warning", reason, message);
    }

    fn active(&self) -> &[Value] {
        self.cron.array_at(&["status", "active"])
    }

    fn is_active(&self, uid: &str) -> bool {
        self.active().iter().any(|one| one.str_at(&["uid"]) == Some(uid))
    }

    fn forget(&mut self, uid: &str) {
        let status = self.cron.object_mut("status");
        if let Some(active) = status.get_mut("active").and_then(Value::as_array_mut) {
            active.retain(|one| one.str_at(&["uid"]) != Some(uid));
            if active.is_empty() {
                status.remove("active");
            }
        }
    }

    /// Deletes ended Jobs beyond the limits, those that started first. Failures are events only.
    async fn delete_old(&mut self, jobs: &[Object]) {
        for (limit, end) in
            [("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")]
        {
            let Some(limit) = self.cron.int_at(&["spec", limit]) else { continue };
            let mut old: Vec<&Object> = jobs.iter().filter(|job| ended(job) == Some(end)).collect();
            old.sort_by_key(|job| {
                let started = job.str_at(&["status", "startTime"]);
                (started.is_empty(), started, job.name())
            });
            let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            for job in old.into_iter().take(excess) {
                self.delete(job).await;
            }
        }
    }

    /// Deletes a Job and returns whether that succeeded.
    async fn delete(&mut self, job: &Object) -> bool {
        let target = Target::of(&self.jobs.kind, job.namespace(), job.name());
        let propagation = Some(Propagation::Background);
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        if let Err(error) = self.all.client.delete(&target, &options).await {
            self.warn("FailedDelete", &format!("Deleted job: {}", error.message));
            return false;
        }
        self.forget(job.uid());
        self.event("Normal", "SuccessfulDelete", &format!("Deleted job {}", job.name()));
        true
    }

    /// Enters which Jobs have ended.
    fn enter_results(&mut self, jobs: &[Object]) {
        for job in jobs {
            let is_active = self.is_active(job.uid());
            let Some(end) = ended(job) else {
                if !is_active {
                    let name = job.name();
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {name}");
                    self.warn("UnexpectedJob", &message);
                }
                continue;
            };
            if is_active {
                self.forget(job.uid());
                let message = format!("Saw completed job: {}, condition: {end}", job.name());
                self.event("Normal", "SawCompletedJob", &message);
            }
            let time = job.str_at(&["status", "completionTime"]);
            let known = self.cron.str_at(&["status", "lastSuccessfulTime"]);
            // Times of one form order like their texts.
            if end == "Complete" && !time.is_empty() && time > known {
                self.cron.object_mut("status").insert("lastSuccessfulTime", time);
            }
        }
    }

    /// Removes Jobs that do not exist any more from the list of active ones.
    async fn forget_missing(&mut self, jobs: &[Object]) -> Result<(), Failure> {
        for reference in self.active().to_vec() {
            let text = |name: &str| reference.str_at(&[name]).unwrap_or_default();
            if jobs.iter().any(|job| job.uid() == text("uid")) {
                continue;
            }
            let target = Target::of(&self.jobs.kind, text("namespace"), text("name"));
            if self.all.client.entry(&target).await?.is_none() {
                let message = format!("Active job went missing: {}", text("name"));
                self.event("Normal", "MissingJob", &message);
                self.forget(text("uid"));
            }
        }
        Ok(())
    }

    /// Whether the Job of a scheduled time is to be created.
    fn may_start(&self, due: Timestamp, now: Timestamp) -> bool {
        let deadline = self.cron.int_at(&["spec", "startingDeadlineSeconds"]);
        let is_late = |seconds: i64| now.since(due).0 > seconds.saturating_mul(1_000_000_000);
        if deadline.is_some_and(is_late) {
            let message = format!("Missed scheduled time to start a job: {}", http_date(due));
            self.warn("MissSchedule", &message);
            return false;
        }
        let name = job_name(&self.cron, due);
        let is_same = |one: &Value| one.str_at(&["name"]) == Some(&name);
        if self.active().iter().any(is_same)
            || self.cron.str_at(&["status", "lastScheduleTime"]) == due.text()
        {
            return false;
        }
        if self.cron.str_at(&["spec", "concurrencyPolicy"]) == "Forbid" && !self.active().is_empty()
        {
            let message = "Not starting job because prior execution is running and concurrency \
                           policy is Forbid";
            self.event("Normal", "JobAlreadyActive", message);
            return false;
        }
        true
    }

    /// Creates the Job of a scheduled time. False: a Job of its name exists and is not new.
    async fn start(&mut self, due: Timestamp) -> Result<bool, Failure> {
        if self.cron.str_at(&["spec", "concurrencyPolicy"]) == "Replace" {
            self.delete_active().await?;
        }
        let job = new_job(&self.cron, due);
        let name = job.name().to_owned();
        let target = Target::of(&self.jobs.kind, self.cron.namespace(), &name);
        let job = match self.all.client.create(&target, job).await {
            Ok(job) => {
                self.event("Normal", "SuccessfulCreate", &format!("Created job {name}"));
                self.all.jobs.put(&job);
                job
            }
            Err(error) if error.reason == Reason::AlreadyExists => {
                let known = self.all.client.get(&target).await?;
                let is_forgotten =
                    |job: &Object| is_controlled_by(job, &self.cron) && !self.is_active(job.uid());
                match known.ok_or_else(|| target.not_found())? {
                    job if is_forgotten(&job) => job,
                    _ => return Ok(false),
                }
            }
            Err(error) if is_namespace_terminating(&error) => return Err(error),
            Err(error) => {
                self.warn("FailedCreate", &format!("Error creating job: {}", error.message));
                return Err(error);
            }
        };
        let reference = value!({"kind": "Job", "namespace": (job.namespace()),
            "name": (job.name()), "uid": (job.uid()), "apiVersion": "batch/v1",
            "resourceVersion": (job.resource_version())});
        let status = self.cron.object_mut("status");
        status.insert("lastScheduleTime", due.text());
        let active = status.entry_or("active", || Value::Array(vec![]));
        active.as_array_mut().into_iter().for_each(|all| all.push(reference.clone()));
        Ok(true)
    }

    async fn delete_active(&mut self) -> Result<(), Failure> {
        for reference in self.active().to_vec() {
            let text = |name: &str| reference.str_at(&[name]).unwrap_or_default();
            let target = Target::of(&self.jobs.kind, text("namespace"), text("name"));
            let job = match self.all.client.get(&target).await {
                Ok(job) => job.ok_or_else(|| target.not_found()),
                Err(error) => Err(error),
            };
            let job = job.inspect_err(|error| {
                self.warn("FailedGet", &format!("Get job: {}", error.message));
            })?;
            if !self.delete(&job).await {
                let namespace = job.namespace();
                let name = job.name();
                return Err(Status::internal(format!("could not replace job {namespace}/{name}")));
            }
        }
        Ok(())
    }
}

fn job_name(cron: &Object, due: Timestamp) -> String {
    format!("{}-{}", cron.name(), due.seconds.div_euclid(60))
}

/// Returns the Job of a scheduled time.
fn new_job(cron: &Object, due: Timestamp) -> Object {
    let mut job = Object::new();
    let template = |path: &[&str]| cron.at(&["spec", "jobTemplate"])?.at(path).cloned();
    job.set_meta("name", &job_name(cron, due));
    job.set_meta("namespace", cron.namespace());
    let labels = template(&["metadata", "labels"]).filter(|labels| !labels.is_empty());
    labels.map(|labels| job.metadata_mut().insert("labels", labels));
    let annotations =
        template(&["metadata", "annotations"]).filter(Value::is_map).unwrap_or_else(|| value!({}));
    job.metadata_mut().insert("annotations", annotations);
    let zone = schedule::zone(cron.str_at(&["spec", "timeZone"]));
    let at = schedule::format_in(&zone.unwrap_or(jiff::tz::TimeZone::UTC), due);
    job.metadata_mut().object_at("annotations").insert(SCHEDULED_AT, at);
    job.metadata_mut().insert("ownerReferences", vec![controller_reference(cron)]);
    job.root.insert("spec", template(&["spec"]).unwrap_or_else(|| value!({})));
    job
}

/// Formats a time as RFC 1123: `Thu, 01 Jan 1970 00:00:00 UTC`.
fn http_date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = time.date();
    let of = |number: i64| usize::try_from(number).unwrap_or(0);
    let weekday = DAYS[of(time.seconds.div_euclid(86_400).rem_euclid(7))];
    let month = MONTHS[of(date.month - 1) % 12];
    let second = time.seconds.rem_euclid(86_400);
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    let day = date.day;
    let year = date.year;
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_after_its_minute() {
        let cron = value!({"apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "tick", "namespace": "n", "uid": "u"},
            "spec": {"timeZone": "Asia/Tokyo", "jobTemplate": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"parallelism": 2}}}});
        let cron = Object::from_value(cron).expect("a map");
        let due = Timestamp::parse("2026-01-01T00:01:00Z").expect("a time");
        let wanted = value!({"metadata": {"name": "tick-29453761", "namespace": "n",
            "labels": {"a": "b"},
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T09:01:00+09:00"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick",
                "uid": "u", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"parallelism": 2}});
        assert_eq!(new_job(&cron, due).into_value(), wanted);
        assert_eq!(http_date(due), "Thu, 01 Jan 2026 00:01:00 UTC");
    }
}
