//! JSON as values of the language, which borrow from it.

use super::{EvalError, Evaluated, List, Map, Text, Val};
use crate::types::{Declared, ListKind, Shape};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::Value;
use keelson_meta::time::{GoDuration, Timestamp};

static ATOMIC: ListKind = ListKind::Atomic;

/// The value that a piece of JSON is, by what the schema says of it.
#[inline]
pub fn adapt<'a>(value: &'a Value, declared: Option<&'a Declared>) -> Evaluated<'a> {
    let Some(declared) = declared else { return plain(value) };
    match (&declared.shape, value) {
        (Shape::Int, Value::Int(number)) => Ok(Val::Int(*number)),
        (Shape::String, Value::String(text)) => Ok(Val::String(Text::Borrowed(text))),
        (Shape::Bool, Value::Bool(flag)) => Ok(Val::Bool(*flag)),
        (Shape::Object(object), Value::Object(map)) => Ok(Val::Map(Map::Object(map, object))),
        (Shape::List(item, kind), Value::Array(items)) => {
            Ok(Val::List(List::Json { items, item: Some(item), kind }))
        }
        (Shape::Map(values), Value::Object(map)) => Ok(Val::Map(Map::Values(map, values))),
        (_, Value::Null) if declared.nullable => Ok(Val::Null),
        _ => other(value, declared),
    }
}

fn plain(value: &Value) -> Evaluated<'_> {
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

fn other<'a>(value: &'a Value, declared: &'a Declared) -> Evaluated<'a> {
    let fault = |wanted: &str| {
        let found = value.type_name();
        Err(EvalError::new(format!("invalid data, expected {wanted}, got {found}")))
    };
    if value.is_null() && !matches!(declared.shape, Shape::Dyn | Shape::Computed(_)) {
        return Err(EvalError::new("invalid data, got null for schema with nullable=false"));
    }
    match (&declared.shape, value) {
        (Shape::Dyn | Shape::Computed(_), _) => plain(value),
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
