//! [`Element`]: one element of a field path, with upstream's order and text.

use crate::go_fmt;
use keelson_meta::status::quote;
use keelson_meta::{Str, Value};
use keelson_schema::json;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The key fields of an item of a list of type `map`, sorted by name.
pub type Key = Arc<[(Str, Value)]>;

/// One element of a field path.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of a struct or an entry of a map: `f:name`.
    Field(Str),
    /// An item of a list of type `map`: `k:{"name":"x"}`.
    Key(Key),
    /// An item of a list of type `set`: `v:"x"`.
    Value(Box<Value>),
    /// An item of an atomic list, by its index: `i:3`.
    Index(i64),
}

impl Element {
    /// Creates the element of a field or map entry.
    pub fn field(name: &str) -> Self {
        Element::Field(Str::new(name))
    }

    /// Creates the element of a list item with these key fields, in any order.
    pub fn key(mut members: Vec<(Str, Value)>) -> Self {
        members.sort_by(|a, b| a.0.cmp(&b.0));
        Element::Key(members.into())
    }

    /// Creates the element of a list item with one key field, the usual case, with one allocation.
    pub(crate) fn key_of_one(name: Str, value: Value) -> Self {
        Element::Key(Arc::from([(name, value)]))
    }

    /// Creates the element of a list item with two key fields, with one allocation.
    pub(crate) fn key_of_two(first: (Str, Value), second: (Str, Value)) -> Self {
        let is_sorted = first.0 <= second.0;
        Element::Key(Arc::from(if is_sorted { [first, second] } else { [second, first] }))
    }

    /// Compares this element with the field `name`.
    pub(super) fn compare_field(&self, name: &str) -> Ordering {
        match self {
            Element::Field(own) => own.as_str().cmp(name),
            _ => Ordering::Greater,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => compare_members(a, b),
            (Element::Value(a), Element::Value(b)) => compare_values(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

impl fmt::Display for Element {
    /// `.name`, `[name="x"]`, `[="x"]` or `[3]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(members) => {
                f.write_str("[")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", human(value))?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={}]", human(value)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn human(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(human).collect();
            format!("[{}]", parts.join(","))
        }
        Value::Object(map) => {
            map.sorted().into_iter().map(|(key, item)| format!("{key}={}", human(item))).collect()
        }
        scalar => go_fmt::plain(scalar),
    }
}

fn compare_members(left: &[(Str, Value)], right: &[(Str, Value)]) -> Ordering {
    for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
        let order = left_name.cmp(right_name).then_with(|| compare_values(left_value, right_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// Compares two values. The types are ordered: numbers, strings, booleans, lists, maps, null.
/// Integers and floats are compared as numbers.
pub fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Float(a), Value::Int(b)) => a.total_cmp(&(*b as f64)),
        (Value::Int(a), Value::Float(b)) => (*a as f64).total_cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Raw(a), Value::Raw(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unequal = a
                .iter()
                .zip(b)
                .map(|(x, y)| compare_values(x, y))
                .into_iter()
                .find(|order| *order != Ordering::Equal);
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let a = a.sorted();
            let b = b.sorted();
            let unequal =
                a.iter().zip(&b).map(|(x, y)| x.0.cmp(y.0).then_with(|| compare_values(x.1, y.1)));
            let unequal = unequal.into_iter().find(|order| *order != Ordering::Equal);
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) | Value::Raw(_) => 4,
        Value::Null => 5,
    }
}

/// Returns whether two values are equal, where an integer equals a float of the same value.
pub fn equal_values(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(a), Value::Int(b)) | (Value::Int(b), Value::Float(a)) => *a == *b as f64,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| equal_values(x, y))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, x)| b.get(key).is_some_and(|y| equal_values(x, y)))
        }
        // Raw JSON texts may differ although their values are equal.
        (Value::Raw(_), _) | (_, Value::Raw(_)) if left != right => {
            equal_values(&json::parse_raw(left.clone()), &json::parse_raw(right.clone()))
        }
        _ => left == right,
    }
}
