//! What of an object Go writes: an empty list or map of a field that is omitted when empty is told from an absent one
//! only in memory (encoding/json, `omitempty`), and a value that is kept as text is one like others.

use crate::json;
use crate::types::{Presence, Schema, Shape, Struct, Types};
use keelson_meta::{Map, Object, Str, Value};

impl Schema {
    /// The object as it reads when it has been written; none: it is that already.
    pub fn written(&self, object: &Object) -> Option<Object> {
        // The owners of fields are kept as text too, and stay so.
        let differs = |(name, value): (&Str, &Value)| match name.as_str() {
            "metadata" => has_empty::<false>(value),
            _ => has_empty::<true>(value),
        };
        if !object.root.iter().any(differs) {
            return None;
        }
        let mut object = object.clone();
        members(&self.types, self.root(), &mut object.root);
        Some(object)
    }
}

/// Whether an empty list or map is anywhere in a value, or, with `TEXT`, a value that is kept as text.
fn has_empty<const TEXT: bool>(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty::<TEXT>),
        Value::Object(map) => {
            map.is_empty() || map.iter().any(|(_, value)| has_empty::<TEXT>(value))
        }
        Value::Raw(_) => TEXT,
        _ => false,
    }
}

fn members(types: &Types, of: &Struct, map: &mut Map) {
    map.retain(|name, value| {
        let Some(field) = of.field(name) else { return true };
        let is_many = matches!(field.shape, Shape::List(_) | Shape::Map(_));
        if is_many && field.presence == Presence::OmitEmpty && value.is_empty() {
            return false;
        }
        below(types, &field.shape, value);
        true
    });
}

fn below(types: &Types, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(map)) => members(types, types.get(*id), map),
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| below(types, &list.item, item));
        }
        (Shape::Map(of), Value::Object(map)) => {
            map.iter_mut().for_each(|(_, value)| below(types, &of.value, value));
        }
        (Shape::RawExtension, value) => *value = json::expanded(std::mem::take(value)),
        _ => {}
    }
}
