//! Equality and ordering of values, also between numeric types.

use crate::meter;
use crate::types::{ListKind, Type};
use crate::value::{EvalError, List, Map, Opaque, Val};
use keelson_meta::{Str, Value};
use std::cmp::Ordering;

impl Val<'_> {
    /// Whether `self == other` in CEL; false when the comparison fails.
    pub fn equals(&self, other: &Val<'_>) -> bool {
        meter::begin(0);
        equal(self, other).unwrap_or(false)
    }
}

/// Whether two values are equal. Values of different types are not, except that numbers compare by
/// value.
pub(crate) fn equal(left: &Val<'_>, right: &Val<'_>) -> Result<bool, EvalError> {
    Ok(match (left, right) {
        (Val::Int(left), Val::Int(right)) => left == right,
        (Val::String(left), Val::String(right)) => equal_bytes(left.as_str(), right.as_str())?,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        (Val::Null, Val::Null) => true,
        (
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
        ) => compare_numbers(left, right) == Some(Ordering::Equal),
        (Val::Bytes(left), Val::Bytes(right)) => equal_bytes(left, right)?,
        (Val::Timestamp(left), Val::Timestamp(right)) => left == right,
        (Val::Duration(left), Val::Duration(right)) => left == right,
        (Val::List(left), Val::List(right)) => equal_lists(left, right)?,
        (Val::Map(left), Val::Map(right)) => equal_maps(left, right)?,
        (Val::Type(left), Val::Type(right)) => left.runtime_name() == right.runtime_name(),
        (Val::Optional(left), Val::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => equal(left, right)?,
            (None, None) => true,
            _ => false,
        },
        (Val::Opaque(left), Val::Opaque(right)) => equal_opaque(left, right),
        _ => false,
    })
}

fn equal_bytes<T: AsRef<[u8]> + ?Sized>(left: &T, right: &T) -> Result<bool, EvalError> {
    let left = left.as_ref();
    let right = right.as_ref();
    if left.len() != right.len() {
        return Ok(false);
    }
    meter::read(left.len())?;
    Ok(left == right)
}

fn equal_opaque(left: &Opaque<'_>, right: &Opaque<'_>) -> bool {
    match (left, right) {
        (Opaque::Quantity(left), Opaque::Quantity(right)) => left == right,
        (Opaque::Url(left), Opaque::Url(right)) => left == right,
        (Opaque::Ip(left), Opaque::Ip(right)) => left == right,
        (Opaque::Cidr(left), Opaque::Cidr(right)) => left == right,
        (Opaque::Semver(left), Opaque::Semver(right)) => left == right,
        (Opaque::Format(left), Opaque::Format(right)) => std::ptr::eq(*left, *right),
        (Opaque::Authorizer(left), Opaque::Authorizer(right)) => left == right,
        _ => false,
    }
}

fn equal_lists(left: &List<'_>, right: &List<'_>) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    if let List::Json { items, kind: ListKind::Map(keys), .. } = left {
        return equal_map_lists(left, right, items, keys);
    }
    if matches!(left, List::Json { kind: ListKind::Set, .. }) {
        return equal_set_lists(left, right);
    }
    for (left, right) in left.iter().zip(right.iter()) {
        meter::item()?;
        if !equal(&left?, &right?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares lists of list type `set`, regardless of order. Items are sorted by key, to avoid
/// quadratic time on large sets.
fn equal_set_lists(left: &List<'_>, right: &List<'_>) -> Result<bool, EvalError> {
    let sorted = |list: &List<'_>| {
        let mut keys = vec![];
        for item in list.iter() {
            meter::item()?;
            keys.push(crate::value::Key::of(&item?));
        }
        keys.sort();
        Ok::<_, EvalError>(keys)
    };
    Ok(sorted(left)? == sorted(right)?)
}

/// Returns the values of the key properties of an item as text; items with different keys have
/// different texts.
pub(crate) fn item_key(item: &Value, keys: &[Str]) -> String {
    let mut out = String::new();
    for key in keys {
        match item.get(key) {
            Some(Value::String(text)) => out.push_str(&format!("{text:?}")),
            Some(Value::Int(number)) => out.push_str(&number.to_string()),
            Some(other) => out.push_str(&format!("{other:?}")),
            None => {}
        }
        out.push('\u{0}');
    }
    out
}

/// Compares lists of list type `map`: items with equal keys are compared, regardless of order.
fn equal_map_lists(
    left: &List<'_>,
    right: &List<'_>,
    items: &[Value],
    keys: &[Str],
) -> Result<bool, EvalError> {
    let List::Json { items: others, .. } = right else {
        return Ok(false);
    };
    let places: std::collections::HashMap<String, usize> =
        others.iter().enumerate().map(|(at, item)| (item_key(item, keys), at)).collect();
    for (at, item) in items.iter().enumerate() {
        meter::item()?;
        let Some(place) = places.get(&item_key(item, keys)) else { return Ok(false) };
        let (Some(here), Some(there)) = (left.get(at), right.get(*place)) else { return Ok(false) };
        if !equal(&here?, &there?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(left: &Map<'_>, right: &Map<'_>) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for key in left.keys() {
        meter::item()?;
        let (Some(here), Some(there)) = (left.find(&key), right.find(&key)) else {
            return Ok(false);
        };
        if !equal(&here?, &there?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn compare_numbers(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Val::Int(left), Val::Int(right)) => left.cmp(right),
        (Val::Uint(left), Val::Uint(right)) => left.cmp(right),
        (Val::Double(left), Val::Double(right)) => left.partial_cmp(right)?,
        (Val::Int(left), Val::Uint(right)) => i128::from(*left).cmp(&i128::from(*right)),
        (Val::Uint(left), Val::Int(right)) => i128::from(*left).cmp(&i128::from(*right)),
        (Val::Double(left), Val::Int(right)) => compare_double(*left, i128::from(*right))?,
        (Val::Double(left), Val::Uint(right)) => compare_double(*left, i128::from(*right))?,
        (Val::Int(left), Val::Double(right)) => {
            compare_double(*right, i128::from(*left))?.reverse()
        }
        (Val::Uint(left), Val::Double(right)) => {
            compare_double(*right, i128::from(*left))?.reverse()
        }
        _ => return None,
    })
}

/// Compares a double with an integer, which is converted to a double as upstream does.
fn compare_double(double: f64, whole: i128) -> Option<Ordering> {
    double.partial_cmp(&(whole as f64))
}

/// Returns the order of two values; `None` when one is NaN, an error for types without an order.
pub(crate) fn compare(left: &Val<'_>, right: &Val<'_>) -> Result<Option<Ordering>, EvalError> {
    Ok(Some(match (left, right) {
        (
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
        ) => return Ok(compare_numbers(left, right)),
        (Val::String(left), Val::String(right)) => {
            compare_bytes(left.as_str().as_bytes(), right.as_str().as_bytes())?
        }
        (Val::Bool(left), Val::Bool(right)) => left.cmp(right),
        (Val::Bytes(left), Val::Bytes(right)) => compare_bytes(left, right)?,
        (Val::Timestamp(left), Val::Timestamp(right)) => left.cmp(right),
        (Val::Duration(left), Val::Duration(right)) => left.cmp(right),
        _ => return Err(EvalError::no_overload()),
    }))
}

fn compare_bytes(left: &[u8], right: &[u8]) -> Result<Ordering, EvalError> {
    meter::read(left.len().min(right.len()))?;
    Ok(left.cmp(right))
}

/// Whether two types are equal at evaluation, where type parameters are unknown.
pub(crate) fn same_type(left: &Type, right: &Type) -> bool {
    left.runtime_name() == right.runtime_name()
}
