//! Values whose JSON form is text with rules of its own: bytes, quantities, times and durations.

use crate::conform::TypeError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Str, Value, quantity};

/// Base64 text; line breaks are skipped as Go skips them.
pub(crate) fn bytes(text: Str) -> Result<Value, TypeError> {
    if text.contains(['\n', '\r']) {
        let joined: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
        return bytes(Str::from(joined));
    }
    match STANDARD.decode(text.as_bytes()) {
        Ok(_) => Ok(Value::String(text)),
        Err(error) => Err(TypeError(format!(
            "illegal base64 data at input byte {}",
            base64_error_offset(text.len(), &error)
        ))),
    }
}

/// The byte that Go's decoder names.
fn base64_error_offset(length: usize, error: &base64::DecodeError) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) => *at,
        base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
            length - length % 4
        }
    }
}

/// A quantity in canonical form; a number is one too.
pub(crate) fn quantity(value: &Value) -> Result<Value, TypeError> {
    let canonical = match value {
        Value::String(text) => quantity::canonical(text),
        other => {
            let mut text = vec![];
            crate::json::write_value(other, &mut text);
            quantity::canonical(&String::from_utf8_lossy(&text))
        }
    };
    canonical.map(Value::from).map_err(|error| TypeError(error.to_string()))
}

/// A time to the second, in UTC.
pub(crate) fn time(text: &str) -> Result<Value, TypeError> {
    Timestamp::parse(text).map(|time| Value::from(time.to_string())).map_err(TypeError)
}

/// A time to the microsecond, in UTC.
pub(crate) fn micro_time(text: &str) -> Result<Value, TypeError> {
    Timestamp::parse_micro(text)
        .map(|time| Value::from(time.micro().to_string()))
        .map_err(TypeError)
}

/// A duration in canonical form.
pub(crate) fn duration(text: &str) -> Result<Value, TypeError> {
    GoDuration::parse(text).map(|span| Value::from(span.to_string())).map_err(TypeError)
}
