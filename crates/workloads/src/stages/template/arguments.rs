//! What functions of templates are called with, and how they compare values.

use super::TemplateFacts;
use super::printf::go_type;
use keelson_meta::{Map, Value};
use std::cmp::Ordering;

/// A function of templates. Its error does not name it.
pub type Function = fn(&Arguments<'_>) -> Result<Value, String>;
/// Functions by their names.
pub type Table = &'static [(&'static str, Function)];

/// What a function is called with.
pub struct Arguments<'a> {
    pub all: Vec<Value>,
    pub facts: &'a TemplateFacts,
}

impl Arguments<'_> {
    pub fn at(&self, place: usize) -> Result<&Value, String> {
        self.all.get(place).ok_or_else(|| format!("it needs {} arguments", place + 1))
    }

    pub fn text(&self, place: usize) -> Result<&str, String> {
        match self.at(place)? {
            Value::String(text) => Ok(text),
            Value::Null => Ok(""),
            other => Err(format!("argument {} is a {}, no string", place + 1, go_type(other))),
        }
    }

    /// Returns a number. A text counts as the number in it, as in sprig.
    pub fn int(&self, place: usize) -> Result<i64, String> {
        self.at(place).map(int_of)
    }

    /// Returns a number that is a count of things, at most `max`.
    pub fn count(&self, place: usize, max: usize) -> Result<usize, String> {
        let count = usize::try_from(self.int(place)?).unwrap_or(0);
        if count <= max { Ok(count) } else { Err(format!("{count} is more than {max}")) }
    }

    pub fn list(&self, place: usize) -> Result<&[Value], String> {
        match self.at(place)? {
            Value::Array(items) => Ok(items),
            Value::Null => Ok(&[]),
            other => Err(format!("argument {} is a {}, no list", place + 1, go_type(other))),
        }
    }

    pub fn map(&self, place: usize) -> Result<Map, String> {
        match self.at(place)? {
            Value::Object(map) => Ok(map.clone()),
            Value::Null => Ok(Map::new()),
            other => Err(format!("argument {} is a {}, no map", place + 1, go_type(other))),
        }
    }
}

/// Whether a value counts as true: it is neither nil, false, 0 nor empty.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Int(number) => *number != 0,
        Value::Float(number) => *number != 0.0,
        Value::String(text) | Value::Raw(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Whether two values are equal.
pub fn is_equal(left: &Value, right: &Value) -> bool {
    match order(left, right) {
        Some(order) => order.is_eq(),
        None => left == right,
    }
}

/// Compares two numbers or two texts; `None`: they cannot be compared.
pub fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            float_of(left).partial_cmp(&float_of(right))
        }
        _ => None,
    }
}

/// Returns a value as an integer.
pub fn int_of(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        Value::Float(number) => *number as i64,
        Value::Bool(flag) => i64::from(*flag),
        Value::String(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => text.parse::<f64>().map_or(0, |number| number as i64),
        },
        _ => 0,
    }
}

/// Returns a value as a float.
pub fn float_of(value: &Value) -> f64 {
    match value {
        Value::Float(number) => *number,
        Value::String(text) => {
            text.parse::<f64>().ok().filter(|one| one.is_finite()).unwrap_or(0.0)
        }
        other => int_of(other) as f64,
    }
}
