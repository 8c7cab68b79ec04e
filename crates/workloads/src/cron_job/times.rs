//! Which time of its schedule a CronJob must serve now, and when the next one is.

use super::schedule::Schedule;
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Timestamp};
use std::time::Duration;

/// How long after the scheduled time a Job is started, so that the clock has surely reached it.
const MARGIN: Duration = Duration::from_millis(100);
/// Number of missed times from which an event warns.
const MISSED_MAX: i64 = 100;

/// What a schedule says at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// The last time that was served, or the creation, or the limit of lateness.
    earliest: Timestamp,
    /// The last scheduled time that has passed since.
    recent: Option<Timestamp>,
    missed: i64,
}

/// The schedule has two times within a second.
#[derive(Debug)]
pub(super) struct TooDense;

impl std::fmt::Display for TooDense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("time difference between two schedules is less than 1 second")
    }
}

fn position(
    cron: &Object,
    schedule: &Schedule,
    now: Timestamp,
    has_deadline: bool,
) -> Result<Position, TooDense> {
    let last = Timestamp::parse(cron.str_at(&["status", "lastScheduleTime"])).ok();
    let created = || Timestamp::parse(cron.creation_timestamp()).unwrap_or(now);
    let mut earliest = last.unwrap_or_else(created);
    if let Some(seconds) = cron.int_at(&["spec", "startingDeadlineSeconds"])
        && has_deadline
    {
        earliest = earliest.max(now.plus(GoDuration::from_seconds(-seconds)));
    }
    let of = |recent, missed| Ok(Position { earliest, recent, missed });
    let Some(first) = schedule.next(earliest).filter(|first| *first <= now) else {
        return of(None, 0);
    };
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return of(Some(first), 0);
    };
    let interval = second.seconds - first.seconds;
    if interval < 1 {
        return Err(TooDense);
    }
    // Times are searched from about the last one, as if all were equally far apart.
    let missed = (now.since(first).0 / 1_000_000_000) / interval + 1;
    let near = first.plus(GoDuration::from_seconds((missed - 2) * interval));
    let times = std::iter::successors(schedule.next(near), |at| schedule.next(*at));
    of(times.take_while(|at| *at <= now).last(), missed)
}

/// Returns the scheduled time to serve and whether very many were missed; `None`: none is due.
pub(super) fn due(
    cron: &Object,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Option<(Timestamp, bool)>, TooDense> {
    let position = position(cron, schedule, now, true)?;
    Ok(position.recent.map(|recent| (recent, position.missed > MISSED_MAX)))
}

/// Returns the time until the next Job.
pub(super) fn wait(cron: &Object, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
    let from = match position(cron, schedule, now, false) {
        Err(TooDense) => now,
        Ok(Position { recent: Some(recent), .. }) => recent,
        Ok(Position { earliest, missed: 0, .. }) => earliest,
        Ok(_) => now,
    };
    let wait = schedule.next(from)?.since(now).0;
    match u64::try_from(wait) {
        Ok(wait) => Some(Duration::from_nanos(wait) + MARGIN),
        Err(_) => Some(MARGIN.saturating_sub(Duration::from_nanos(wait.unsigned_abs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use keelson_meta::value;

    #[test]
    fn the_last_missed_time_is_due() {
        let check = |last: &str, deadline: Option<i64>, now: &str, want: Option<(&str, bool)>| {
            let mut cron = Object::from_value(value!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:10Z"}, "spec": {}}))
            .expect("a map");
            if !last.is_empty() {
                cron.object_mut("status").insert("lastScheduleTime", last);
            }
            deadline
                .map(|seconds| cron.object_mut("spec").insert("startingDeadlineSeconds", seconds));
            let schedule = Schedule::parse("*/10 * * * *", TimeZone::UTC).expect("a schedule");
            let now = Timestamp::parse(now).expect("a time");
            let due = due(&cron, &schedule, now)
                .expect("a schedule")
                .map(|(at, is_many)| (at.to_string(), is_many));
            assert_eq!(due, want.map(|(at, is_many)| (at.to_owned(), is_many)), "{now}");
        };
        check("", None, "2026-01-01T00:09:59Z", None);
        check("", None, "2026-01-01T00:10:00Z", Some(("2026-01-01T00:10:00Z", false)));
        check("", None, "2026-01-01T00:19:59Z", Some(("2026-01-01T00:10:00Z", false)));
        check("", None, "2026-01-01T01:45:00Z", Some(("2026-01-01T01:40:00Z", false)));
        check("2026-01-01T01:40:00Z", None, "2026-01-01T01:45:00Z", None);
        check("", None, "2026-01-02T01:45:00Z", Some(("2026-01-02T01:40:00Z", true)));
        check("", Some(60), "2026-01-02T01:40:30Z", Some(("2026-01-02T01:40:00Z", false)));
        check("", Some(60), "2026-01-02T01:45:00Z", None);
    }

    #[test]
    fn the_wait_ends_shortly_after_the_next_time() {
        let check = |now: &str, want: u128| {
            let cron = value!({"metadata": {"creationTimestamp": "2026-01-01T00:00:10Z"}});
            let cron = Object::from_value(cron).expect("a map");
            let schedule = Schedule::parse("*/10 * * * *", TimeZone::UTC).expect("a schedule");
            let now = Timestamp::parse(now).expect("a time");
            assert_eq!(wait(&cron, &schedule, now).map(|wait| wait.as_millis()), Some(want));
        };
        check("2026-01-01T00:09:59Z", 1_100);
        check("2026-01-01T00:10:00Z", 600_100);
        check("2026-01-02T00:15:00Z", 300_100);
    }
}
