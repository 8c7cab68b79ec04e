//! The string formats that upstream validates (kube-openapi `pkg/validation/strfmt`). All other
//! formats are ignored.

use keelson_meta::go_url::Url;
use keelson_meta::time::GoDuration;
use keelson_meta::{Timestamp, go_mail, ip, names};
use regex::Regex;
use std::net::Ipv6Addr;
use std::sync::{LazyLock, OnceLock};

/// Formats that are defined by a pattern.
const FORMATS: &[(&str, &str)] = &[
    ("words of time", r"(\d+)\s*([A-Za-zµ]+)"),
    (
        "hostname",
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    ),
    ("uuid", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
    ("uuid3", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
    ("uuid4", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ("uuid5", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    (
        "rgbcolor",
        r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
    ),
    ("ssn pattern", r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
];

/// Compiled on first use; together they take megabytes.
static PATTERNS: LazyLock<Vec<OnceLock<Option<Regex>>>> =
    LazyLock::new(|| FORMATS.iter().map(|_| OnceLock::new()).collect());

/// Returns the pattern of a format, if it has one.
fn pattern(format: &str) -> Option<&'static Regex> {
    let at = FORMATS.iter().position(|(name, _)| *name == format)?;
    PATTERNS[at].get_or_init(|| super::regex(FORMATS[at].1)).as_ref()
}

/// Whether a text matches the pattern of a format. Returns `None` for a format without a pattern.
fn matches(format: &str, text: &str) -> Option<bool> {
    pattern(format).map(|pattern| pattern.is_match(text))
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
        "email" => go_mail::is_address(text),
        "uri" => Url::check(text).is_ok(),
        "ipv4" => text.contains('.') && is_address(text),
        "ipv6" => text.contains(':') && is_address(text),
        "mac" => is_hardware_address(text),
        "ssn" => text.len() == 11 && matches("ssn pattern", text) == Some(true),
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

/// Go durations, and texts with amounts of units somewhere in them, such as `3 days`.
fn is_duration(text: &str) -> bool {
    GoDuration::parse(text).is_ok()
        || pattern("words of time").is_some_and(|pattern| has_amounts(pattern, text))
}

fn has_amounts(pattern: &Regex, text: &str) -> bool {
    let mut has_unit = false;
    for found in pattern.captures_iter(text) {
        // Upstream's factor is an int.
        if found[1].parse::<i64>().is_err() {
            return false;
        }
        has_unit |= is_unit(&found[2].to_lowercase());
    }
    has_unit
}

/// Whether a word is a unit of time, or begins with the name of one.
fn is_unit(word: &str) -> bool {
    const SHORT: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const LONG: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    SHORT.contains(&word) || LONG.iter().any(|name| word.starts_with(name))
}

/// `ParseIPSloppy`: IPv4 addresses may have leading zeros, unless they end an IPv6 address.
fn is_address(text: &str) -> bool {
    match text.contains(':') {
        true => text.parse::<Ipv6Addr>().is_ok(),
        false => ip::parse_ip(text).is_some(),
    }
}

/// `net.ParseMAC`: 6, 8 or 20 bytes, with colons or hyphens between bytes, dots between pairs of
/// them, or nothing.
fn is_hardware_address(text: &str) -> bool {
    let digits = match text.bytes().find(|byte| !byte.is_ascii_hexdigit()) {
        None => text.len(),
        Some(separator) => {
            let width = match separator {
                b':' | b'-' => 2,
                b'.' => 4,
                _ => return false,
            };
            let mut groups = text.split(char::from(separator));
            if !groups.clone().all(|group| group.len() == width) {
                return false;
            }
            let is_hex = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !groups.clone().all(is_hex) {
                return false;
            }
            groups.by_ref().map(str::len).sum()
        }
    };
    matches!(digits, 12 | 16 | 40)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// Each line was recorded from a kube-apiserver 1.36.3: a text, and whether a field of a custom
    /// resource with that format accepts it.
    #[test]
    fn formats_accept_what_a_kube_apiserver_accepts() {
        let mut count = 0;
        for line in include_str!("formats.jsonl").lines() {
            let line = json::parse(line.as_bytes()).expect("a line of JSON").value;
            let text = |name: &str| line.str_at(&[name]).expect("a text");
            let format = text("format");
            let text = text("text");
            let accepted = line.get("accepted").and_then(keelson_meta::Value::as_bool);
            assert_eq!(Some(has(format, text).unwrap_or(true)), accepted, "{format} {text:?}");
            count += 1;
        }
        assert!(count > 200, "only {count} lines");
    }
}
