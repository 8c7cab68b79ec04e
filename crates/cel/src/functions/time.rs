//! The functions of timestamps and durations.

use super::Implementation;
use crate::value::{EvalError, EvalResult, Val};
use keelson_meta::time::Timestamp;

/// 0001-01-01T00:00:00Z.
const SECONDS_MIN: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z.
const SECONDS_MAX: i64 = 253_402_300_799;

/// Returns the timestamp if RFC 3339 can represent it, an overflow error otherwise.
pub(crate) fn in_range(time: Timestamp) -> Result<Timestamp, EvalError> {
    if (SECONDS_MIN..=SECONDS_MAX).contains(&time.seconds) {
        return Ok(time);
    }
    Err(EvalError::new("timestamp overflow"))
}

/// Formats a timestamp as RFC 3339 with as many decimals as needed.
pub(crate) fn text(time: Timestamp) -> String {
    let seconds = time.truncated().to_string();
    if time.nanos == 0 {
        return seconds;
    }
    let decimals = format!("{:09}", time.nanos);
    format!("{}.{}Z", seconds.trim_end_matches('Z'), decimals.trim_end_matches('0'))
}

/// A component of a timestamp or duration.
#[derive(Clone, Copy)]
enum Part {
    FullYear,
    Month,
    DayOfYear,
    DayOfMonth,
    Date,
    DayOfWeek,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "getFullYear" => |args| part(args, Part::FullYear),
        "getMonth" => |args| part(args, Part::Month),
        "getDayOfYear" => |args| part(args, Part::DayOfYear),
        "getDayOfMonth" => |args| part(args, Part::DayOfMonth),
        "getDate" => |args| part(args, Part::Date),
        "getDayOfWeek" => |args| part(args, Part::DayOfWeek),
        "getHours" => |args| part(args, Part::Hours),
        "getMinutes" => |args| part(args, Part::Minutes),
        "getSeconds" => |args| part(args, Part::Seconds),
        "getMilliseconds" => |args| part(args, Part::Milliseconds),
        _ => return None,
    })
}

fn part<'a>(args: &[Val<'a>], part: Part) -> EvalResult<'a> {
    match args {
        [Val::Timestamp(time)] => Ok(Val::Int(of_time(*time, part))),
        [Val::Timestamp(time), Val::String(zone)] => {
            let offset = offset_seconds(*time, zone.as_str())?;
            let local = Timestamp::new(time.seconds + offset, time.nanos);
            Ok(Val::Int(of_time(local, part)))
        }
        [Val::Duration(span)] => Ok(Val::Int(match part {
            Part::Hours => span.0 / 3_600_000_000_000,
            Part::Minutes => span.0 / 60_000_000_000,
            Part::Seconds => span.0 / 1_000_000_000,
            Part::Milliseconds => span.0 / 1_000_000,
            _ => return Err(EvalError::no_overload()),
        })),
        _ => Err(EvalError::no_overload()),
    }
}

fn of_time(time: Timestamp, part: Part) -> i64 {
    let date = time.date();
    let second = time.seconds.rem_euclid(86_400);
    match part {
        Part::FullYear => date.year,
        Part::Month => date.month - 1,
        Part::DayOfYear => date.day_of_year - 1,
        Part::DayOfMonth => date.day - 1,
        Part::Date => date.day,
        // 1970-01-01 was a Thursday.
        Part::DayOfWeek => (time.seconds.div_euclid(86_400) + 4).rem_euclid(7),
        Part::Hours => second / 3600,
        Part::Minutes => second / 60 % 60,
        Part::Seconds => second % 60,
        Part::Milliseconds => i64::from(time.nanos / 1_000_000),
    }
}

/// Returns the offset of a time zone in seconds, from an IANA name or from text such as `+05:30`.
fn offset_seconds(time: Timestamp, zone: &str) -> Result<i64, EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let invalid = || EvalError::new(format!("invalid time zone offset: {zone}"));
        let hours_number: i64 = hours.parse().map_err(|_| invalid())?;
        let minutes: i64 = minutes.parse().map_err(|_| invalid())?;
        let sign = if hours.starts_with('-') { -1 } else { 1 };
        if hours_number.abs() > 1_000_000 || minutes.abs() > 1_000_000 {
            return Err(invalid());
        }
        return Ok(hours_number * 3600 + sign * minutes * 60);
    }
    if zone.is_empty() || zone == "UTC" {
        return Ok(0);
    }
    let unknown = || EvalError::new(format!("unknown time zone {zone}"));
    let zone = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    let at = jiff::Timestamp::from_second(time.seconds).map_err(|_| unknown())?;
    Ok(i64::from(zone.to_offset(at).seconds()))
}
