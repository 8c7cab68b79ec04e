//! Encodes and decodes path elements as the keys of a FieldsV1 tree.

use super::Element;
use keelson_meta::{Str, Value};
use keelson_schema::json;
use std::fmt;

/// Why a FieldsV1 tree cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(pub String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

/// Appends the element as a key of FieldsV1.
pub(super) fn write_element(element: &Element, out: &mut Vec<u8>) {
    match element {
        Element::Field(name) => {
            out.extend_from_slice(b"f:");
            out.extend_from_slice(name.as_bytes());
        }
        Element::Key(members) => {
            out.extend_from_slice(b"k:{");
            for (i, (name, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                json::write_string(name, out);
                out.push(b':');
                json::write_value(value, out);
            }
            out.push(b'}');
        }
        Element::Value(value) => {
            out.extend_from_slice(b"v:");
            json::write_value(value, out);
        }
        Element::Index(index) => out.extend_from_slice(format!("i:{index}").as_bytes()),
    }
}

/// Parses the usual elements without a JSON parser: fields, and keys and values of plain text and
/// integers. `None` means only that [`parse_element`] must be tried.
pub(super) fn parse_plain(text: &str) -> Option<Element> {
    if let Some(name) = text.strip_prefix("f:") {
        return Some(Element::field(name));
    }
    if let Some(value) = text.strip_prefix("v:") {
        let (value, rest) = plain_value(value)?;
        return rest.is_empty().then_some(Element::Value(Box::new(value)));
    }
    let mut rest = text.strip_prefix("k:{")?;
    let mut members: Vec<(Str, Value)> = vec![];
    loop {
        let (name, after) = plain_text(rest)?;
        let (value, after) = plain_value(after.strip_prefix(':')?)?;
        if members.last().is_some_and(|(last, _)| last.as_str() >= name) {
            return None;
        }
        match after {
            "}" if members.is_empty() => return Some(Element::key_of_one(Str::new(name), value)),
            "}" => {
                members.push((Str::new(name), value));
                return Some(Element::Key(members.into()));
            }
            _ => rest = after.strip_prefix(',')?,
        }
        members.push((Str::new(name), value));
    }
}

/// Splits off a quoted text without characters that JSON escapes. Returns it and the rest.
fn plain_text(text: &str) -> Option<(&str, &str)> {
    let body = text.strip_prefix('"')?;
    let end = body.find('"')?;
    let is_plain =
        |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'<' | b'>' | b'&');
    let inner = &body[..end];
    let rest = &body[end + 1..];
    inner.bytes().all(is_plain).then_some((inner, rest))
}

/// Splits off a plain text or an integer. Returns it and the rest.
fn plain_value(text: &str) -> Option<(Value, &str)> {
    if text.starts_with('"') {
        return plain_text(text).map(|(inner, rest)| (Value::from(inner), rest));
    }
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let is_canonical = digits == "0" || !digits.starts_with('0');
    // Leave a number with a point, a sign or an exponent to `parse_element`.
    let is_complete = rest.is_empty() || rest.starts_with([',', '}']);
    let number: i64 = digits.parse().ok().filter(|_| is_canonical && is_complete)?;
    Some((Value::Int(number), rest))
}

/// Parses a key; `None` when its prefix is unknown.
pub(super) fn parse_element(text: &str) -> Result<Option<Element>, DecodeError> {
    let Some((prefix, rest)) = text.split_at_checked(2) else {
        return Err(DecodeError("key must be 2 characters long:".to_owned()));
    };
    if prefix.as_bytes()[1] != b':' {
        return Err(DecodeError(format!("missing colon: {text}")));
    }
    let parsed = |rest: &str| match json::parse(rest.as_bytes()) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => Err(DecodeError(format!("{text}: {error}"))),
    };
    Ok(Some(match prefix.as_bytes()[0] {
        b'f' => Element::field(rest),
        b'v' => Element::Value(Box::new(parsed(rest)?)),
        b'k' => match parsed(rest)? {
            Value::Object(map) => Element::key(map.into_iter().collect()),
            _ => return Err(DecodeError(format!("{text}: expected a map"))),
        },
        b'i' => match rest.parse() {
            Ok(index) => Element::Index(index),
            Err(_) => return Err(DecodeError(format!("{text}: expected a whole number"))),
        },
        _ => return Ok(None),
    }))
}
