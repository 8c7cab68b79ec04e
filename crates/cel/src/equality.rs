//! Equality and order of values, across the types of numbers.

use crate::types::{ListKind, Type};
use crate::value::{EvalError, List, Map, Opaque, Text, Val};
use keelson_meta::{Str, Value};
use std::cmp::Ordering;

impl Val<'_> {
    /// Whether it equals another value as `==` has it.
    pub fn equals(&self, other: &Val<'_>) -> bool {
        crate::steps::begin();
        equal(self, other).unwrap_or(false)
    }
}

/// Whether two values are equal; values of different types are not, but numbers are by their value.
pub(crate) fn equal(one: &Val<'_>, two: &Val<'_>) -> Result<bool, EvalError> {
    Ok(match (one, two) {
        (Val::Int(one), Val::Int(two)) => one == two,
        (Val::String(one), Val::String(two)) => one.as_str() == two.as_str(),
        (Val::Bool(one), Val::Bool(two)) => one == two,
        (Val::Null, Val::Null) => true,
        (
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
        ) => compare_numbers(one, two) == Some(Ordering::Equal),
        (Val::Bytes(one), Val::Bytes(two)) => one == two,
        (Val::Timestamp(one), Val::Timestamp(two)) => one == two,
        (Val::Duration(one), Val::Duration(two)) => one == two,
        (Val::List(one), Val::List(two)) => equal_lists(one, two)?,
        (Val::Map(one), Val::Map(two)) => equal_maps(one, two)?,
        (Val::Type(one), Val::Type(two)) => one.runtime_name() == two.runtime_name(),
        (Val::Optional(one), Val::Optional(two)) => match (one, two) {
            (Some(one), Some(two)) => equal(one, two)?,
            (None, None) => true,
            _ => false,
        },
        (Val::Opaque(one), Val::Opaque(two)) => equal_opaque(one, two),
        _ => false,
    })
}

fn equal_opaque(one: &Opaque<'_>, two: &Opaque<'_>) -> bool {
    match (one, two) {
        (Opaque::Quantity(one), Opaque::Quantity(two)) => one == two,
        (Opaque::Url(one), Opaque::Url(two)) => one == two,
        (Opaque::Ip(one), Opaque::Ip(two)) => one == two,
        (Opaque::Cidr(one), Opaque::Cidr(two)) => one == two,
        (Opaque::Semver(one), Opaque::Semver(two)) => one == two,
        (Opaque::Format(one), Opaque::Format(two)) => std::ptr::eq(*one, *two),
        (Opaque::Authorizer(one), Opaque::Authorizer(two)) => one == two,
        _ => false,
    }
}

fn equal_lists(one: &List<'_>, two: &List<'_>) -> Result<bool, EvalError> {
    if one.len() != two.len() {
        return Ok(false);
    }
    if let List::Json { items, kind: ListKind::Map(keys), .. } = one {
        return equal_keyed(one, two, items, keys);
    }
    if matches!(one, List::Json { kind: ListKind::Set, .. }) {
        return equal_sets(one, two);
    }
    for (one, two) in one.iter().zip(two.iter()) {
        crate::steps::take()?;
        if !equal(&one?, &two?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lists of type `set`: the order does not count. Items are sorted by their keys, so that large sets
/// cost no more than their size allows.
fn equal_sets(one: &List<'_>, two: &List<'_>) -> Result<bool, EvalError> {
    let sorted = |list: &List<'_>| {
        let mut keys = vec![];
        for item in list.iter() {
            crate::steps::take()?;
            keys.push(crate::value::Key::of(&item?));
        }
        keys.sort();
        Ok::<_, EvalError>(keys)
    };
    Ok(sorted(one)? == sorted(two)?)
}

/// The values of the key properties of an item, as text that tells items apart.
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

/// Lists of type `map`: items with equal keys are compared, whatever their order.
fn equal_keyed(
    one: &List<'_>,
    two: &List<'_>,
    items: &[Value],
    keys: &[Str],
) -> Result<bool, EvalError> {
    let List::Json { items: others, .. } = two else {
        return Ok(false);
    };
    let places: std::collections::HashMap<String, usize> =
        others.iter().enumerate().map(|(at, item)| (item_key(item, keys), at)).collect();
    for (at, item) in items.iter().enumerate() {
        crate::steps::take()?;
        let Some(place) = places.get(&item_key(item, keys)) else { return Ok(false) };
        let (Some(here), Some(there)) = (one.get(at), two.get(*place)) else { return Ok(false) };
        if !equal(&here?, &there?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(one: &Map<'_>, two: &Map<'_>) -> Result<bool, EvalError> {
    if one.len() != two.len() {
        return Ok(false);
    }
    for key in one.keys() {
        crate::steps::take()?;
        let (Some(here), Some(there)) = (one.find(&key), two.find(&key)) else {
            return Ok(false);
        };
        if !equal(&here?, &there?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn compare_numbers(one: &Val<'_>, two: &Val<'_>) -> Option<Ordering> {
    Some(match (one, two) {
        (Val::Int(one), Val::Int(two)) => one.cmp(two),
        (Val::Uint(one), Val::Uint(two)) => one.cmp(two),
        (Val::Double(one), Val::Double(two)) => one.partial_cmp(two)?,
        (Val::Int(one), Val::Uint(two)) => i128::from(*one).cmp(&i128::from(*two)),
        (Val::Uint(one), Val::Int(two)) => i128::from(*one).cmp(&i128::from(*two)),
        (Val::Double(one), Val::Int(two)) => double_with(*one, i128::from(*two))?,
        (Val::Double(one), Val::Uint(two)) => double_with(*one, i128::from(*two))?,
        (Val::Int(one), Val::Double(two)) => double_with(*two, i128::from(*one))?.reverse(),
        (Val::Uint(one), Val::Double(two)) => double_with(*two, i128::from(*one))?.reverse(),
        _ => return None,
    })
}

/// A double against a whole number, which is rounded to a double when both are of one size, as upstream
/// does.
fn double_with(double: f64, whole: i128) -> Option<Ordering> {
    double.partial_cmp(&(whole as f64))
}

/// The order of two values of types that have one; NaN is in no order.
pub(crate) fn compare(one: &Val<'_>, two: &Val<'_>) -> Result<Option<Ordering>, EvalError> {
    Ok(Some(match (one, two) {
        (
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
            Val::Int(_) | Val::Uint(_) | Val::Double(_),
        ) => return Ok(compare_numbers(one, two)),
        (Val::String(one), Val::String(two)) => compare_text(one, two),
        (Val::Bool(one), Val::Bool(two)) => one.cmp(two),
        (Val::Bytes(one), Val::Bytes(two)) => one.cmp(two),
        (Val::Timestamp(one), Val::Timestamp(two)) => one.cmp(two),
        (Val::Duration(one), Val::Duration(two)) => one.cmp(two),
        _ => return Err(EvalError::no_overload()),
    }))
}

fn compare_text(one: &Text<'_>, two: &Text<'_>) -> Ordering {
    one.as_str().cmp(two.as_str())
}

/// Whether two types are one at evaluation, where parameters do not count.
pub(crate) fn same_type(one: &Type, two: &Type) -> bool {
    one.runtime_name() == two.runtime_name()
}
