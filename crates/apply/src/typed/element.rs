//! The path elements of list items: by their key fields, or by their value.

use super::{MergeKind, zero};
use crate::fields::Element;
use keelson_meta::{Str, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{ListKind, Presence, Shape, Types};

/// Returns the path element of an item of a list of type `set` or `map`. The errors are upstream's.
pub(crate) fn element(types: &Types, list: &ListShape, item: &Value) -> Result<Element, String> {
    match &list.kind {
        ListKind::Map(keys) => keyed(types, list, keys, item),
        ListKind::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null"
                    .to_owned())
            }
            scalar => Ok(Element::Value(Box::new(scalar.clone()))),
        },
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
    }
}

fn keyed(types: &Types, list: &ListShape, keys: &[Str], item: &Value) -> Result<Element, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    if let [key] = keys
        && let Some(value) = map.get(key)
    {
        return Ok(Element::key_of_one(key.clone(), value.clone()));
    }
    let member = |key: &Str| {
        let value = map.get(key).cloned().or_else(|| default(types, list, key, keys.len() == 1));
        value.map(|value| (key.clone(), value))
    };
    if let [first, second] = keys
        && let (Some(first), Some(second)) = (member(first), member(second))
    {
        return Ok(Element::key_of_two(first, second));
    }
    let members: Vec<_> = keys.iter().filter_map(member).collect();
    if members.is_empty() {
        let names: Vec<String> = keys.iter().map(|k| keelson_meta::status::quote(k)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and \
             doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    Ok(Element::key(members))
}

/// Returns the default of an absent key. In upstream's OpenAPI, fields that Go always writes and
/// the name of a `LocalObjectReference` have their zero value as default.
fn default(types: &Types, list: &ListShape, key: &str, is_only: bool) -> Option<Value> {
    let Shape::Struct(id) = &list.item else { return None };
    let field = types.get(*id).field(key)?;
    if let Some(default) = &field.default {
        return Some(Value::clone(default));
    }
    let has_zero = match field.presence {
        Presence::Always => true,
        Presence::OmitEmpty => is_only && types.get(*id).name.ends_with(".LocalObjectReference"),
        Presence::Pointer | Presence::AlwaysNull => false,
    };
    let is_scalar = matches!(MergeKind::of(types, &field.shape), MergeKind::Scalar(_));
    (has_zero && is_scalar).then(|| zero(&field.shape).clone())
}

/// Returns the items of a list with their path elements, sorted by element. Items of the same
/// element keep the order of the list; items without an element are left out.
pub(crate) fn sorted_items<'v>(
    types: &Types,
    list: &ListShape,
    items: &'v [Value],
) -> Vec<(Element, &'v Value)> {
    let mut sorted = Vec::with_capacity(items.len());
    for item in items {
        sorted.extend(element(types, list, item).ok().map(|element| (element, item)));
    }
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    sorted
}
