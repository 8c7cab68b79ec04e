//! Durations and times.

use super::{CONVENTIONS_NAMING, CONVENTIONS_UNITS};
use crate::definition::{Field, Version};
use crate::finding::{Check, Report, Rule, Severity};
use crate::words;

pub static DURATION: Rule = Rule {
    id: "duration-string",
    severity: Severity::Error,
    section: CONVENTIONS_UNITS,
    summary: "A duration is an integer with its unit in the name.",
    advice: "Clients in other languages have no parser of Go's durations. Use an integer such as timeoutSeconds.",
    check: Check::Field(duration),
};

pub static NAME: Rule = Rule {
    id: "time-name",
    severity: Severity::Warning,
    section: CONVENTIONS_NAMING,
    summary: "The field with the time of an event is called somethingTime.",
    advice: "Call it after the event: startTime, not startedAt or startTimestamp.",
    check: Check::Field(name),
};

pub static FORMAT: Rule = Rule {
    id: "time-format",
    severity: Severity::Warning,
    section: CONVENTIONS_NAMING,
    summary: "A time is a string in the format date-time.",
    advice: "Add `format: date-time` (Go: metav1.Time), so that other texts are refused.",
    check: Check::Field(format),
};

/// Last words of names of durations.
const DURATIONS: [&str; 5] = ["timeout", "interval", "duration", "period", "ttl"];
/// What descriptions of durations say, in lower case.
const DURATION_WORDS: [&str; 6] = [
    "parseduration",
    "go duration",
    "golang duration",
    "metav1.duration",
    "time.duration",
    "gep-2257",
];
/// Parts of patterns that durations have.
const DURATION_PATTERNS: [&str; 6] = ["ms|", "|ms", "h|m", "m|h", "s|m", "m|s"];
/// Last words of names of times.
const TIMES: [&str; 5] = ["time", "timestamp", "stamp", "date", "at"];
/// What descriptions of times say, in lower case.
const TIME_WORDS: [&str; 5] = ["timestamp", "rfc3339", "rfc 3339", "iso 8601", "iso8601"];

fn is_plain_string(field: &Field<'_>) -> bool {
    field.kind() == "string" && !field.has("enum") && !field.has("format")
}

fn duration(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let is_format = field.kind() == "string" && field.text("format") == "duration";
    let is_duration = is_format || (is_plain_string(field) && looks_like_duration(field));
    if is_duration {
        let message =
            match field.is_named() && DURATIONS.contains(&words::last(field.name).as_str()) {
                true => format!(
                    "the duration is a string; write an integer {:?}",
                    format!("{}Seconds", field.name)
                ),
                false => "the duration is a string; write an integer with its unit in the name"
                    .to_owned(),
            };
        report.field(version, field, "type", message);
    }
}

fn looks_like_duration(field: &Field<'_>) -> bool {
    let pattern = field.text("pattern");
    let has_digits = pattern.contains("0-9") || pattern.contains("\\d");
    if has_digits && DURATION_PATTERNS.iter().any(|part| pattern.contains(part)) {
        return true;
    }
    let description = field.text("description").to_lowercase();
    // Of a list or map, the description is that of the whole.
    let is_named = field.is_named();
    is_named
        && (DURATION_WORDS.iter().any(|word| description.contains(word))
            || DURATIONS.contains(&words::last(field.name).as_str()))
}

fn name(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if !field.is_named() || field.kind() != "string" || field.text("format") != "date-time" {
        return;
    }
    let last = words::last(field.name);
    if last != "time" {
        let message = format!("the time {:?} is not called somethingTime", field.name);
        report.field(version, field, "", message);
    }
}

fn format(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let description = field.text("description").to_lowercase();
    let is_time = field.is_named()
        && is_plain_string(field)
        && !field.has("pattern")
        // Some take a time or a duration before now.
        && !description.contains("duration")
        && TIMES.contains(&words::last(field.name).as_str())
        && TIME_WORDS.iter().any(|word| description.contains(word));
    if is_time {
        report.field(version, field, "type", "the time has no format date-time");
    }
}
