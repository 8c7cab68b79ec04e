//! Types with a text form of their own: bytes, quantities, times and durations.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Str, Value, quantity};

/// A type error with Go's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError(pub String);

/// Go's decoder ignores trailing bits.
const LAX: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Checks base64 text. Line breaks are removed, as Go does.
pub(crate) fn bytes(text: Str) -> Result<Value, TypeError> {
    if text.contains(['\n', '\r']) {
        let joined: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
        return bytes(Str::from(joined)).map_err(|_| bad_base64(&text));
    }
    match LAX.decode(text.as_bytes()) {
        Ok(bytes) if has_trailing_bits(&text) => Ok(Value::from(STANDARD.encode(bytes))),
        Ok(_) => Ok(Value::String(text)),
        Err(_) => Err(bad_base64(&text)),
    }
}

/// Encodes bytes as base64.
pub(crate) fn encoded(bytes: &[u8]) -> Value {
    Value::from(STANDARD.encode(bytes))
}

/// Whether the last character may have trailing bits.
fn has_trailing_bits(text: &str) -> bool {
    match text.trim_end_matches('=').as_bytes().last() {
        Some(last) if text.ends_with("==") => !b"AQgw".contains(last),
        Some(last) if text.ends_with('=') => !b"AEIMQUYcgkosw048".contains(last),
        _ => false,
    }
}

fn bad_base64(text: &str) -> TypeError {
    let at = base64_error_offset(text.as_bytes());
    TypeError(format!("illegal base64 data at input byte {at}"))
}

/// Returns the offset that Go's decoder reports for a text that is not base64: it reads groups of
/// four characters and skips line breaks.
fn base64_error_offset(text: &[u8]) -> usize {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let skip_breaks = |at: usize| {
        let rest = text.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|byte| is_break(byte)).count()
    };
    let mut in_group = 0;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => {
                in_group = (in_group + 1) % 4;
            }
            byte if is_break(byte) => {}
            b'=' if in_group == 2 => {
                let second = skip_breaks(at + 1);
                return match text.get(second) {
                    None => text.len(),
                    Some(b'=') => skip_breaks(second + 1),
                    Some(_) => second - 1,
                };
            }
            b'=' if in_group == 3 => return skip_breaks(at + 1),
            _ => return at,
        }
        at += 1;
    }
    at - in_group
}

/// Returns a quantity in canonical form. Numbers are accepted too.
pub(crate) fn quantity(value: &Value) -> Result<Value, TypeError> {
    let canonical = match value {
        Value::String(text) if is_plain_quantity(text) => return Ok(value.clone()),
        Value::String(text) => quantity::canonical(text),
        other => {
            let mut text = vec![];
            crate::json_writer::write_value(other, &mut text);
            quantity::canonical(&String::from_utf8_lossy(&text))
        }
    };
    canonical.map(Value::from).map_err(|error| TypeError(error.to_string()))
}

/// Rounds the amounts of a ResourceList up to 1m.
pub(crate) fn round_to_milli(amounts: &mut keelson_meta::Map) {
    for (_, amount) in amounts.iter_mut() {
        let text = amount.as_str().filter(|text| may_be_below_milli(text));
        let rounded = text.and_then(|text| quantity::canonical_milli(text).ok());
        if let Some(rounded) = rounded {
            *amount = Value::from(rounded);
        }
    }
}

/// Whether a canonical quantity may have less than thousandths.
fn may_be_below_milli(text: &str) -> bool {
    text.ends_with(['n', 'u']) || text.contains("e-") || text.contains("E-")
}

/// Whether a quantity is known to be canonical: one to three digits without a leading 0, and a
/// suffix. A larger suffix cannot express such an amount, because suffixes differ by a factor of
/// 1000 or 1024. From 8Ei on upstream caps an amount.
fn is_plain_quantity(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    matches!(digits, 1..=3)
        && !number.starts_with('0')
        && matches!(
            suffix,
            "" | "n"
                | "u"
                | "m"
                | "k"
                | "M"
                | "G"
                | "T"
                | "P"
                | "E"
                | "Ki"
                | "Mi"
                | "Gi"
                | "Ti"
                | "Pi"
        )
}

/// Returns a time in UTC with seconds.
pub(crate) fn time(text: Str) -> Result<Value, TypeError> {
    let time = Timestamp::parse(&text).map_err(TypeError)?;
    // A valid text of this form is canonical already.
    if matches!(text.as_bytes(), [_, _, _, _, b'-', _, _, b'-', _, _, b'T', .., b'Z'])
        && text.len() == "2006-01-02T15:04:05Z".len()
    {
        return Ok(Value::String(text));
    }
    Ok(Value::from(time.to_string()))
}

/// Returns a time in UTC with microseconds.
pub(crate) fn micro_time(text: Str) -> Result<Value, TypeError> {
    let time = Timestamp::parse_micro(&text).map_err(TypeError)?;
    // A valid text of this form is canonical already.
    if let [date @ .., b'.', _, _, _, _, _, _, b'Z'] = text.as_bytes()
        && date.len() == "2006-01-02T15:04:05".len()
        && date[10] == b'T'
    {
        return Ok(Value::String(text));
    }
    Ok(Value::from(time.micro().to_string()))
}

/// Returns a duration in canonical form.
pub(crate) fn duration(text: &str) -> Result<Value, TypeError> {
    GoDuration::parse(text).map(|span| Value::from(span.to_string())).map_err(TypeError)
}

/// Returns a number of a custom resource; a whole float becomes an integer, as Go prints it.
pub(crate) fn number(value: Value) -> Value {
    match value {
        Value::Float(number) => double(number),
        value => value,
    }
}

/// Returns a float; a whole one becomes an integer, as Go prints it.
pub(crate) fn double(number: f64) -> Value {
    let is_whole = number.fract() == 0.0 && number.abs() < 9.2e18;
    if is_whole && !(number == 0.0 && number.is_sign_negative()) {
        return Value::Int(number as i64);
    }
    Value::Float(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_quantities_taken_as_canonical_are_canonical() {
        for number in [1, 7, 10, 99, 100, 512, 900, 999] {
            for suffix in ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti"]
            {
                let text = format!("{number}{suffix}");
                assert!(is_plain_quantity(&text), "{text}");
                assert_eq!(quantity::canonical(&text).as_ref(), Ok(&text));
            }
        }
        for text in ["", "0", "01", "1024Ki", "1000", "1.5", "-1", "1e3", "1x", "m"] {
            assert!(!is_plain_quantity(text), "{text}");
        }
    }

    #[test]
    fn a_time_is_printed_in_utc() {
        for (given, want) in [
            ("2026-03-14T09:26:53Z", "2026-03-14T09:26:53Z"),
            ("2026-03-14T09:26:53.5Z", "2026-03-14T09:26:53Z"),
            ("2026-03-14T09:26:53+01:00", "2026-03-14T08:26:53Z"),
        ] {
            assert_eq!(time(Str::new(given)), Ok(Value::from(want)), "{given}");
        }
        assert!(time(Str::new("2026-13-14T09:26:53Z")).is_err());
    }

    #[test]
    fn a_micro_time_has_six_digits_and_is_printed_in_utc() {
        for (given, want) in [
            ("2026-03-14T09:26:53.123456Z", "2026-03-14T09:26:53.123456Z"),
            ("2026-03-14T09:26:53.100000+01:00", "2026-03-14T08:26:53.100000Z"),
        ] {
            assert_eq!(micro_time(Str::new(given)), Ok(Value::from(want)), "{given}");
        }
        for bad in [
            "2026-13-14T09:26:53.123456Z",
            "2026-03-14 09:26:53.123456Z",
            "2026-03-14T09:26:53.5Z",
            ".",
        ] {
            assert!(micro_time(Str::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn trailing_base64_bits_are_dropped() {
        for (given, want) in
            [("Ag==", "Ag=="), ("Ah==", "Ag=="), ("AQI=", "AQI="), ("AQJ=", "AQI="), ("", "")]
        {
            assert_eq!(bytes(Str::new(given)), Ok(Value::from(want)), "{given}");
        }
    }

    /// As recorded of a kube-apiserver 1.36.
    #[test]
    fn an_error_of_base64_has_the_offset_of_go() {
        for (text, at) in [
            ("A$==", 1),
            ("...base64 encoded data...", 0),
            ("x", 0),
            ("eHg", 0),
            ("=", 0),
            ("AAA=A", 4),
            ("AAAA AAAA", 4),
            ("\n\nAA%A", 4),
            ("AAAA\nA-AA", 6),
            ("AAAAA", 4),
            ("AAAA=", 4),
            ("AA=A", 2),
            ("AA=", 3),
            ("AA==A", 4),
        ] {
            let error = bytes(Str::new(text)).map_err(|error| error.0);
            assert_eq!(error, Err(format!("illegal base64 data at input byte {at}")), "{text:?}");
        }
    }
}
