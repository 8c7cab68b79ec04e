//! The string formats that upstream validates (kube-openapi `pkg/validation/strfmt`). All other
//! formats are ignored.

use keelson_meta::{Timestamp, ip, names};
use regex::Regex;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{LazyLock, OnceLock};

/// Formats that are defined by a pattern.
const FORMATS: &[(&str, &str)] = &[
    ("go duration", r"^[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+$"),
    (
        "words of time",
        r"^[+-]?(\d+(\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|m|h|d|w|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?|weeks?|wks?|milliseconds?|millis?|nanoseconds?|nanos?|microseconds?|micros?)$",
    ),
    ("email", r"^[^\s@<>,;]+@[A-Za-z0-9]([A-Za-z0-9.\-]*[A-Za-z0-9])?$"),
    (
        "hostname",
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    ),
    ("mac", r"^([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){0,2})$"),
    ("uuid", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
    ("uuid3", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
    ("uuid4", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ("uuid5", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ("uri", r"^([A-Za-z][A-Za-z0-9+.\-]*:[^\s]+|/[^\s]*)$"),
    ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    (
        "rgbcolor",
        r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
    ),
    ("ssn", r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
];

/// Compiled on first use; together they take megabytes.
static PATTERNS: LazyLock<Vec<OnceLock<Option<Regex>>>> =
    LazyLock::new(|| FORMATS.iter().map(|_| OnceLock::new()).collect());

/// Whether a text matches the pattern of a format. Returns `None` for a format without a pattern.
fn matches(format: &str, text: &str) -> Option<bool> {
    let at = FORMATS.iter().position(|(name, _)| *name == format)?;
    let regex = PATTERNS[at].get_or_init(|| super::regex(FORMATS[at].1));
    regex.as_ref().map(|regex| regex.is_match(text))
}

/// Whether a format is validated.
pub(super) fn is_known(format: &str) -> bool {
    FORMATS.iter().any(|(name, _)| *name == format) || has(format, "").is_some()
}

/// Whether a text has a format. Returns `None` for an unknown format.
pub(super) fn has(format: &str, text: &str) -> Option<bool> {
    if format != "hostname"
        && let Some(matches) = matches(format, text)
    {
        return Some(matches);
    }
    Some(match format {
        "date" => is_date(text),
        "date-time" | "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => ip::parse_cidr(text).is_some(),
        "byte" => is_base64(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "creditcard" => is_credit_card(text),
        "password" => true,
        "k8s-short-name" => names::is_dns1123_label(text).is_empty(),
        "k8s-long-name" => names::is_dns1123_subdomain(text).is_empty(),
        _ => return None,
    })
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_ok()
}

/// Strict RFC 3339, in upper or lower case.
fn is_date_time(text: &str) -> bool {
    Timestamp::parse(&text.to_ascii_uppercase()).is_ok()
}

/// Go durations, and amounts of a unit such as `3 days`.
fn is_duration(text: &str) -> bool {
    text == "0"
        || ["go duration", "words of time"].iter().any(|name| matches(name, text) == Some(true))
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255
        && matches("hostname", text) == Some(true)
        && text.split('.').all(|label| label.len() <= 63)
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(is_word)
}

fn plain_digits(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = plain_digits(text);
    if digits.len() != 10 {
        return false;
    }
    let value = |(place, c): (usize, char)| match c {
        'X' | 'x' if place == 9 => Some(10),
        c => c.to_digit(10),
    };
    let sum: Option<u32> = digits
        .chars()
        .enumerate()
        .map(|(place, c)| Some(value((place, c))? * (u32::try_from(place).ok()? + 1)))
        .sum();
    sum.is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits = plain_digits(text);
    let weigh = |(place, c): (usize, char)| {
        Some(c.to_digit(10)? * if place.is_multiple_of(2) { 1 } else { 3 })
    };
    let sum: Option<u32> = digits.chars().enumerate().map(weigh).sum();
    digits.len() == 13 && sum.is_some_and(|sum| sum % 10 == 0)
}

fn is_credit_card(text: &str) -> bool {
    let digits = plain_digits(text);
    let weigh = |(place, c): (usize, char)| {
        let digit = c.to_digit(10)?;
        let double = if place % 2 == 1 { digit * 2 } else { digit };
        Some(if double > 9 { double - 9 } else { double })
    };
    let sum: Option<u32> = digits.chars().rev().enumerate().map(weigh).sum();
    (13..=16).contains(&digits.len()) && sum.is_some_and(|sum| sum % 10 == 0)
}
