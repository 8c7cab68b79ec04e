//! Validates the schedules of CronJobs: five fields, or a descriptor such as `@daily`. The messages
//! are those of the Go library that upstream uses.

use crate::check::Field;
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, cron};

/// Time zones without an area.
const ZONES: &[&str] = &[
    "CET",
    "CST6CDT",
    "Cuba",
    "EET",
    "EST",
    "EST5EDT",
    "Egypt",
    "Eire",
    "Factory",
    "GB",
    "GB-Eire",
    "GMT",
    "GMT+0",
    "GMT-0",
    "GMT0",
    "Greenwich",
    "HST",
    "Hongkong",
    "Iceland",
    "Iran",
    "Israel",
    "Jamaica",
    "Japan",
    "Kwajalein",
    "Libya",
    "MET",
    "MST",
    "MST7MDT",
    "NZ",
    "NZ-CHAT",
    "Navajo",
    "PRC",
    "PST8PDT",
    "Poland",
    "Portugal",
    "ROC",
    "ROK",
    "Singapore",
    "Turkey",
    "UCT",
    "UTC",
    "Universal",
    "W-SU",
    "WET",
    "Zulu",
];

/// Validates `schedule`, `startingDeadlineSeconds` and `timeZone`.
pub(super) fn validate(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = spec.field("schedule");
    if at.not_empty(errors, "") {
        if let Err(why) = parse(at.text()) {
            at.invalid(errors, &why);
        }
        if at.text().contains("TZ") {
            let words = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            at.invalid(errors, words);
        }
    }
    spec.field("startingDeadlineSeconds").not_negative(errors);
    time_zone(&spec.field("timeZone"), errors);
}

fn time_zone(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    let name = at.text();
    if name.is_empty() {
        return at.invalid(errors, "timeZone must be nil or non-empty string");
    }
    if name.eq_ignore_ascii_case("local") {
        let words = "timeZone must be an explicit time zone as defined in \
                     https://www.iana.org/time-zones";
        at.invalid(errors, words);
    }
    if name != "Local" && !is_zone(name) {
        at.invalid(errors, &format!("unknown time zone {name}"));
    }
}

fn is_zone(name: &str) -> bool {
    match name.split_once('/') {
        // Names are compared by case: `time.LoadLocation` looks for a file.
        Some(_) => jiff::tz::db().get(name).is_ok_and(|zone| zone.iana_name() == Some(name)),
        None => ZONES.contains(&name),
    }
}

/// Checks the time zone of a schedule, as Go's `time.LoadLocation` does.
fn location(name: &str) -> Result<(), String> {
    match name {
        "" | "Local" => Ok(()),
        _ if name.contains("..") || name.starts_with(['/', '\\']) => {
            Err("time: invalid location name".to_owned())
        }
        _ if is_zone(name) => Ok(()),
        _ => Err(format!("unknown time zone {name}")),
    }
}

/// Parses a schedule. The error is that of the Go library.
fn parse(text: &str) -> Result<(), String> {
    let zoned = text.strip_prefix("CRON_").unwrap_or(text).strip_prefix("TZ=");
    let text = match zoned.map(|zoned| zoned.split_once(' ')) {
        Some(Some((zone, rest))) => {
            location(zone).map_err(|why| format!("provided bad location {zone}: {why}"))?;
            rest.trim()
        }
        // Upstream slices at the position of the space, which is -1 here, and reports the panic.
        Some(None) => {
            let why = "runtime error: slice bounds out of range [:-1]";
            return Err(format!("invalid schedule format: {why}"));
        }
        None => text,
    };
    if let Some(word) = text.strip_prefix('@') {
        return descriptor(text, word);
    }
    cron::Fields::parse(text).map(drop)
}

fn descriptor(text: &str, word: &str) -> Result<(), String> {
    let known =
        ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"].contains(&word);
    if known {
        return Ok(());
    }
    if let Some(span) = word.strip_prefix("every ") {
        return if is_duration(span) {
            Ok(())
        } else {
            let why = format!("time: invalid duration {}", quote(span));
            Err(format!("failed to parse duration {text}: {why}"))
        };
    }
    Err(format!("unrecognized descriptor: {text}"))
}

/// Returns whether Go parses a text such as `1h30m` as a duration.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if number.len() == rest.len() {
            return rest == "0";
        }
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let Some(unit) = units.iter().find(|unit| {
            number.strip_prefix(**unit).is_some_and(|after| {
                after.is_empty() || after.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            })
        }) else {
            return rest == "0";
        };
        rest = &number[unit.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_one_of_the_database() {
        for (name, expected) in [
            ("Europe/Berlin", true),
            ("America/Argentina/Ushuaia", true),
            ("US/Pacific", true),
            ("Europe/Atlantis", false),
            ("europe/berlin", false),
            ("UTC", true),
        ] {
            assert_eq!(is_zone(name), expected, "{name}");
        }
    }

    #[test]
    fn a_schedule_has_five_fields_or_is_a_word() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).err().unwrap_or_default(), expected, "{text}");
        };
        check("*/5 * * * *", "");
        check("0 0 1 jan mon-fri", "");
        check("@every 1h30m", "");
        check("@daily", "");
        check("TZ=Europe/Paris 0 * * * *", "");
        check("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("@sometimes", "unrecognized descriptor: @sometimes");
        check(
            "x * * * *",
            "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
        );
    }
}
