//! Decides on the type of a scalar, by the rules of YAML 1.1 as upstream has them.

use super::YamlError;
use super::parser::Tag;
use super::timestamp;
use base64::Engine;
use std::borrow::Cow;

/// A scalar, as upstream resolves it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that only fits 64 bits without a sign.
    Uint(u64),
    /// Possibly infinite, or not a number.
    Float(f64),
    Text(Cow<'a, str>),
}

/// Resolves a scalar.
pub(super) fn resolve(text: &str, tag: Tag, is_implicit: bool) -> Result<Scalar<'_>, YamlError> {
    match tag {
        Tag::None if is_implicit => return Ok(plain(text)),
        Tag::None | Tag::NonSpecific | Tag::Str | Tag::Merge | Tag::Other => {
            return Ok(Scalar::Text(Cow::Borrowed(text)));
        }
        Tag::Binary => return binary(text),
        Tag::Null | Tag::Bool | Tag::Int | Tag::Float | Tag::Timestamp => {}
    }
    let resolved = plain(text);
    // Upstream takes only texts that may be numbers for timestamps, and not those with a tag.
    let is_timestamp = tag == Tag::Timestamp && timestamp::is_timestamp(text);
    let found = match &resolved {
        Scalar::Null => Tag::Null,
        Scalar::Bool(_) => Tag::Bool,
        Scalar::Int(_) | Scalar::Uint(_) => Tag::Int,
        Scalar::Float(_) => Tag::Float,
        Scalar::Text(_) if is_timestamp => Tag::Timestamp,
        Scalar::Text(_) => Tag::Str,
    };
    match (tag, resolved) {
        (Tag::Float, Scalar::Int(number)) => Ok(Scalar::Float(number as f64)),
        (tag, resolved) if tag == found => Ok(resolved),
        (tag, _) => {
            let found = short_name(found);
            let wanted = short_name(tag);
            Err(YamlError::Tag { found, text: text.to_owned(), wanted })
        }
    }
}

fn short_name(tag: Tag) -> &'static str {
    match tag {
        Tag::Null => "!!null",
        Tag::Bool => "!!bool",
        Tag::Int => "!!int",
        Tag::Float => "!!float",
        Tag::Timestamp => "!!timestamp",
        _ => "!!str",
    }
}

/// Whether a plain scalar with this text is a string that upstream does not take for a timestamp.
pub(super) fn is_string(text: &str) -> bool {
    matches!(plain(text), Scalar::Text(_)) && !timestamp::is_timestamp(text)
}

/// Resolves a plain scalar without a tag.
pub(super) fn plain(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Scalar::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' => float_after_point(text),
        b'+' | b'-' | b'0'..=b'9' => number(text),
        _ => None,
    };
    number.unwrap_or(Scalar::Text(Cow::Borrowed(text)))
}

/// Parses a float that begins with a point, whose underscores must be between digits.
fn float_after_point(text: &str) -> Option<Scalar<'static>> {
    let bytes = text.as_bytes();
    let is_between_digits = |(at, byte): (usize, &u8)| {
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        *byte != b'_' || (is_digit(at - 1) && is_digit(at + 1))
    };
    if !bytes.iter().enumerate().skip(1).all(is_between_digits) {
        return None;
    }
    float(&text.replace('_', "")).map(Scalar::Float)
}

fn number(text: &str) -> Option<Scalar<'static>> {
    let text: Cow<'_, str> =
        if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    if let Some(magnitude) = integer(digits) {
        // Not all magnitudes fit an integer with a sign.
        let number = i128::from(magnitude) * if is_negative { -1 } else { 1 };
        if let Ok(number) = i64::try_from(number) {
            return Some(Scalar::Int(number));
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(Scalar::Uint(magnitude));
        }
    }
    if let Some(number) = float(&text) {
        return Some(Scalar::Float(number));
    }
    signed_binary(&text)
}

/// Parses an integer without a sign, in the base that its prefix names.
fn integer(digits: &str) -> Option<u64> {
    let (digits, base) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', _, ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', _, ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // A sign after the prefix is none.
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, base).ok() }
}

/// Parses a sign between the prefix and the digits of a binary number, as upstream does.
fn signed_binary(text: &str) -> Option<Scalar<'static>> {
    let digits = text.strip_prefix("0b")?;
    i64::from_str_radix(digits, 2).ok().map(Scalar::Int)
}

/// Parses a decimal float that is finite.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digit = !whole.is_empty() || !fraction.is_empty();
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    if !has_digit || !is_digits(whole) || !is_digits(fraction) || !is_exponent {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Decodes a scalar with the tag `!!binary`. As in upstream's JSON, each byte that is not UTF-8 is
/// replaced.
fn binary(text: &str) -> Result<Scalar<'static>, YamlError> {
    let digits: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(digits).map_err(|_| YamlError::Binary)?;
    let mut decoded = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        decoded.push_str(chunk.valid());
        decoded.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Ok(Scalar::Text(Cow::Owned(decoded)))
}
