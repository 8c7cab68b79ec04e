//! Converts JSON to CEL values, which borrow from it.

use super::{EvalError, EvalResult, List, Map, Text, Val};
use crate::types::{DeclType, ListKind, Shape};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::Value;
use keelson_meta::time::{GoDuration, Timestamp};

static ATOMIC: ListKind = ListKind::Atomic;

/// Converts JSON to a CEL value, by its declared type if there is one. Data that does not match the
/// type is an error.
#[inline]
pub fn adapt<'a>(value: &'a Value, decl_type: Option<&'a DeclType>) -> EvalResult<'a> {
    let Some(decl_type) = decl_type else { return plain(value) };
    match (&decl_type.shape, value) {
        (Shape::Int, Value::Int(number)) => Ok(Val::Int(*number)),
        (Shape::String, Value::String(text)) => Ok(Val::String(Text::Borrowed(text))),
        (Shape::Bool, Value::Bool(flag)) => Ok(Val::Bool(*flag)),
        (Shape::Object(object), Value::Object(map)) => Ok(Val::Map(Map::Object(map, object))),
        (Shape::List(item, kind), Value::Array(items)) => {
            Ok(Val::List(List::Json { items, item: Some(item), kind }))
        }
        (Shape::Map(values), Value::Object(map)) => Ok(Val::Map(Map::Values(map, values))),
        (_, Value::Null) if decl_type.nullable => Ok(Val::Null),
        _ => other(value, decl_type),
    }
}

fn plain(value: &Value) -> EvalResult<'_> {
    Ok(match value {
        Value::Null => Val::Null,
        Value::Bool(flag) => Val::Bool(*flag),
        Value::Int(number) => Val::Int(*number),
        Value::Float(number) => Val::Double(*number),
        Value::String(text) => Val::String(Text::Borrowed(text)),
        Value::Array(items) => Val::List(List::Json { items, item: None, kind: &ATOMIC }),
        Value::Object(map) => Val::Map(Map::Plain(map)),
        Value::Raw(text) => Val::String(Text::Borrowed(text)),
    })
}

fn other<'a>(value: &'a Value, decl_type: &'a DeclType) -> EvalResult<'a> {
    let fault = |wanted: &str| {
        let found = value.type_name();
        Err(EvalError::new(format!("invalid data, expected {wanted}, got {found}")))
    };
    if value.is_null() && !matches!(decl_type.shape, Shape::Dyn | Shape::CheckedAs(_)) {
        return Err(EvalError::new("invalid data, got null for schema with nullable=false"));
    }
    match (&decl_type.shape, value) {
        (Shape::Dyn | Shape::CheckedAs(_), _) => plain(value),
        (Shape::IntOrString, Value::Int(_) | Value::String(_)) => plain(value),
        (Shape::IntOrString, _) => fault("XIntOrString value to be either a string or integer"),
        (Shape::Double, Value::Float(number)) => Ok(Val::Double(*number)),
        (Shape::Double, Value::Int(number)) => Ok(Val::Double(*number as f64)),
        (Shape::Int, Value::Float(number)) if number.fract() == 0.0 => Ok(Val::Int(*number as i64)),
        (Shape::Bytes, Value::String(text)) => {
            STANDARD.decode(text.as_str()).map(|bytes| Val::Bytes(bytes.into())).map_err(|error| {
                EvalError::new(format!("Invalid byte formatted string {text}: {error}"))
            })
        }
        (Shape::Timestamp, Value::String(text)) => {
            Timestamp::parse(text).map(Val::Timestamp).map_err(|error| {
                EvalError::new(format!("Invalid date-time formatted string {text}: {error}"))
            })
        }
        (Shape::Date, Value::String(text)) => {
            Timestamp::parse(&format!("{text}T00:00:00Z")).map(Val::Timestamp).map_err(|error| {
                EvalError::new(format!("Invalid date formatted string {text}: {error}"))
            })
        }
        (Shape::Duration, Value::String(text)) => GoDuration::parse(text)
            .map(Val::Duration)
            .map_err(|error| EvalError::new(format!("Invalid duration {text}: {error}"))),
        (Shape::Object(_) | Shape::Map(_), _) => {
            fault("a map for the provided schema with type=object")
        }
        (Shape::List(..), _) => fault("an array for the provided schema with type=array"),
        (Shape::String, _) => fault("a string"),
        (Shape::Bool, _) => fault("a boolean"),
        _ => fault("a number"),
    }
}
