//! Schedules of CronJobs: five fields in the syntax of cron, or a word such as `@hourly`.

use jiff::civil;
use jiff::tz::TimeZone;
use keelson_meta::Timestamp;
use keelson_meta::cron::{ANY, Fields};
use keelson_meta::time::GoDuration;

const DAY: i64 = 86_400;
const HOUR: i64 = 3600;
/// A time that no year up to this many years later has is no time.
const YEARS_MAX: i64 = 5;

/// When a CronJob runs.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// Every so many seconds, counted from the last time.
    Every(i64),
    /// At the times of a calendar.
    Calendar(Calendar),
}

/// The fields of a schedule, and the zone in which they count.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    fields: Fields,
    zone: TimeZone,
}

impl Schedule {
    /// Parses a schedule. A zone in the text (`TZ=`) replaces `zone`.
    pub fn parse(text: &str, zone: TimeZone) -> Result<Schedule, String> {
        let zoned = text.strip_prefix("CRON_").unwrap_or(text).strip_prefix("TZ=");
        let (text, zone) = match zoned.map(|zoned| zoned.split_once(' ')) {
            None => (text, zone),
            Some(None) => return Err("a time zone without a schedule".to_owned()),
            Some(Some((name, rest))) => {
                let unknown = |why| format!("provided bad location {name}: {why}");
                (rest.trim(), self::zone(name).map_err(unknown)?)
            }
        };
        if let Some(span) = text.strip_prefix("@every ") {
            let span = GoDuration::parse(span)
                .map_err(|why| format!("failed to parse duration {text}: {why}"))?;
            return Ok(Schedule::Every(span.seconds().max(1)));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with('@') => return Err(format!("unrecognized descriptor: {text}")),
            text => text,
        };
        Ok(Schedule::Calendar(Calendar { fields: Fields::parse(fields)?, zone }))
    }

    /// Returns the first time after `after`; `None` if there is none within some years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Schedule::Every(seconds) => Some(Timestamp::new(after.seconds + seconds, 0)),
            Schedule::Calendar(calendar) => calendar.next(after.seconds + 1),
        }
    }
}

/// Returns a time zone by its name; UTC for an empty one.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    match name {
        "" | "UTC" | "Local" => Ok(TimeZone::UTC),
        name => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}")),
    }
}

/// Formats a time in a zone as RFC 3339.
pub(super) fn format_in(zone: &TimeZone, time: Timestamp) -> String {
    let offset = offset(zone, time.seconds);
    if offset == 0 {
        return time.to_string();
    }
    let local = Timestamp::new(time.seconds + offset, 0).to_string();
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.abs() / 60;
    format!("{}{sign}{:02}:{:02}", local.trim_end_matches('Z'), minutes / 60, minutes % 60)
}

/// Returns the seconds that a zone is ahead of UTC at a time.
fn offset(zone: &TimeZone, seconds: i64) -> i64 {
    let at = jiff::Timestamp::from_second(seconds);
    at.map_or(0, |at| zone.to_offset(at).seconds().into())
}

impl Calendar {
    /// Returns the time at which a clock in the zone shows these seconds since 1970. Around a
    /// change of the clocks, it is right for the time before or after the change, as in Go.
    fn instant(&self, local: i64) -> i64 {
        let guess = local - offset(&self.zone, local);
        local - offset(&self.zone, guess)
    }

    /// Returns what a clock in the zone shows, as seconds since 1970.
    fn local(&self, instant: i64) -> i64 {
        instant + offset(&self.zone, instant)
    }

    fn next(&self, from: i64) -> Option<Timestamp> {
        let mut at = from;
        let year_max = date(self.local(at)).0 + YEARS_MAX;
        // Whether the time was moved: smaller units then begin at their start.
        let mut is_moved = false;
        while date(self.local(at)).0 <= year_max {
            if self.move_to_month(&mut at, &mut is_moved)
                && self.move_to_day(&mut at, &mut is_moved)
                && self.move_to_hour(&mut at, &mut is_moved)
                && self.move_to_minute(&mut at, &mut is_moved)
            {
                return Some(Timestamp::new(at, 0));
            }
        }
        None
    }

    /// Moves to the next month that fits; false: the year has changed.
    fn move_to_month(&self, at: &mut i64, is_moved: &mut bool) -> bool {
        loop {
            let (year, month, _) = date(self.local(*at));
            if self.fields.months & (1 << month) != 0 {
                return true;
            }
            if !std::mem::replace(is_moved, true) {
                *at = self.instant(days_until(year, month) * DAY);
            }
            let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            *at = self.instant(days_until(year, month) * DAY);
            if month == 1 {
                return false;
            }
        }
    }

    /// Moves to the next day that fits; false: the month has changed.
    fn move_to_day(&self, at: &mut i64, is_moved: &mut bool) -> bool {
        loop {
            let local = self.local(*at);
            if self.fits_day(local) {
                return true;
            }
            let start =
                if std::mem::replace(is_moved, true) { local } else { local.div_euclid(DAY) * DAY };
            *at = self.instant(start + DAY);
            // Where clocks change at midnight, the day begins at 1 or the step ends at 23 hours.
            let hour = self.local(*at).rem_euclid(DAY) / HOUR;
            *at += if hour > 12 { (24 - hour) * HOUR } else { -hour * HOUR };
            if date(self.local(*at)).2 == 1 {
                return false;
            }
        }
    }

    fn fits_day(&self, local: i64) -> bool {
        let (_, _, day) = date(local);
        // 1970-01-01 was a Thursday.
        let weekday = (local.div_euclid(DAY) + 4).rem_euclid(7);
        let by_day = self.fields.days & (1 << day) != 0;
        let by_weekday = self.fields.weekdays & (1 << weekday) != 0;
        if (self.fields.days | self.fields.weekdays) & ANY != 0 {
            by_day && by_weekday
        } else {
            by_day || by_weekday
        }
    }

    /// Moves to the next hour that fits; false: the day has changed.
    fn move_to_hour(&self, at: &mut i64, is_moved: &mut bool) -> bool {
        loop {
            let local = self.local(*at);
            if self.fields.hours & (1 << (local.rem_euclid(DAY) / HOUR)) != 0 {
                return true;
            }
            if !std::mem::replace(is_moved, true) {
                *at = self.instant(local.div_euclid(HOUR) * HOUR);
            }
            *at += HOUR;
            if self.local(*at).rem_euclid(DAY) / HOUR == 0 {
                return false;
            }
        }
    }

    /// Moves to the next minute that fits; false: the hour has changed.
    fn move_to_minute(&self, at: &mut i64, is_moved: &mut bool) -> bool {
        // All times are at the start of a minute.
        if *at % 60 != 0 {
            *is_moved = true;
            *at = (at.div_euclid(60) + 1) * 60;
            if self.local(*at).rem_euclid(HOUR) == 0 {
                return false;
            }
        }
        loop {
            if self.fields.minutes & (1 << (self.local(*at).rem_euclid(HOUR) / 60)) != 0 {
                return true;
            }
            *is_moved = true;
            *at += 60;
            if self.local(*at).rem_euclid(HOUR) == 0 {
                return false;
            }
        }
    }
}

/// Returns year, month and day of seconds since 1970.
fn date(seconds: i64) -> (i64, i64, i64) {
    let date = Timestamp::new(seconds, 0).date();
    (date.year, date.month, date.day)
}

/// Returns the days from 1970 to the first day of a month.
fn days_until(year: i64, month: i64) -> i64 {
    let year = i16::try_from(year).unwrap_or(i16::MAX);
    let month = i8::try_from(month).unwrap_or(1);
    let first = civil::Date::new(year, month, 1).unwrap_or(civil::Date::MAX);
    first.duration_since(civil::date(1970, 1, 1)).as_hours() / 24
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, zone_name: &str, after: &str, want: &[&str]) {
        let schedule = Schedule::parse(text, zone(zone_name).expect("a zone")).expect(text);
        let mut at = Timestamp::parse(after).expect("a time");
        for want in want {
            at = schedule.next(at).expect("a next time");
            assert_eq!(at.to_string(), *want, "{text} in {zone_name}");
        }
    }

    #[test]
    fn fields_are_ranges_steps_and_names() {
        let start = "2026-01-01T00:00:30Z";
        check("* * * * *", "", start, &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
        check("*/20 * * * *", "", start, &["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z"]);
        check("50/5 3 * * *", "", start, &["2026-01-01T03:50:00Z", "2026-01-01T03:55:00Z"]);
        check("0 0 31 * *", "", start, &["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"]);
        check("0 0 29 feb ?", "", start, &["2028-02-29T00:00:00Z"]);
        check(
            "30 8 * * mon-fri",
            "",
            start,
            &["2026-01-01T08:30:00Z", "2026-01-02T08:30:00Z", "2026-01-05T08:30:00Z"],
        );
        // Either of the days, if both are restricted.
        check("0 0 3 * sun", "", start, &["2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]);
        check("0 0 1-3/2,20 * *", "", start, &["2026-01-03T00:00:00Z", "2026-01-20T00:00:00Z"]);
    }

    #[test]
    fn words_and_intervals() {
        let start = "2026-01-01T00:00:30Z";
        check("@hourly", "", start, &["2026-01-01T01:00:00Z"]);
        check("@weekly", "", start, &["2026-01-04T00:00:00Z"]);
        check("@yearly", "", start, &["2027-01-01T00:00:00Z"]);
        check("@every 1h30m", "", start, &["2026-01-01T01:30:30Z", "2026-01-01T03:00:30Z"]);
        check("@every 10ms", "", start, &["2026-01-01T00:00:31Z"]);
    }

    #[test]
    fn zones_move_the_times() {
        let start = "2026-01-01T00:00:00Z";
        check("0 9 * * *", "Asia/Tokyo", start, &["2026-01-02T00:00:00Z"]);
        check("TZ=Asia/Tokyo 0 9 * * *", "", start, &["2026-01-02T00:00:00Z"]);
        check(
            "0 12 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            &["2026-03-28T11:00:00Z", "2026-03-29T10:00:00Z"],
        );
        // The hour from 2 to 3 does not exist on that day.
        check("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", &["2026-03-30T00:30:00Z"]);
        // It comes twice.
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        );
        let time = Timestamp::parse("2026-07-01T12:00:00Z").expect("a time");
        let berlin = zone("Europe/Berlin").expect("a zone");
        assert_eq!(format_in(&berlin, time), "2026-07-01T14:00:00+02:00");
        let hawaii = zone("Pacific/Marquesas").expect("a zone");
        assert_eq!(format_in(&hawaii, time), "2026-07-01T02:30:00-09:30");
        assert_eq!(format_in(&TimeZone::UTC, time), "2026-07-01T12:00:00Z");
    }

    #[test]
    fn a_date_that_never_comes_is_none() {
        let schedule = Schedule::parse("0 0 31 feb *", TimeZone::UTC).expect("a schedule");
        assert_eq!(schedule.next(Timestamp::new(0, 0)), None);
        for text in ["* * * *", "60 * * * *", "*/0 * * * *", "5-3 * * * *", "@never", "TZ=UTC"] {
            assert!(Schedule::parse(text, TimeZone::UTC).is_err(), "{text}");
        }
    }
}
