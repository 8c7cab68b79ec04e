//! [`Schema::encoded_form`]: an object as it decodes after it was encoded. In memory, an empty list
//! or map of an `omitempty` field differs from an absent one, and RawExtension values are kept as
//! text.

use crate::json;
use crate::types::{Presence, Schema, Shape, Struct, Types};
use keelson_meta::{Map, Object, Str, Value};

impl Schema {
    /// Returns the object as it decodes after it was encoded, `None` if that is the same.
    pub fn encoded_form(&self, object: &Object) -> Option<Object> {
        // Managed fields are kept as text too, and stay so.
        let differs = |(name, value): (&Str, &Value)| match name.as_str() {
            "metadata" => has_differences::<false>(value),
            _ => has_differences::<true>(value),
        };
        if !object.root.iter().any(differs) {
            return None;
        }
        let mut object = object.clone();
        members(&self.types, self.root(), &mut object.root);
        Some(object)
    }
}

/// Whether a value contains an empty list or map or, with `TEXT`, a value kept as text.
fn has_differences<const TEXT: bool>(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_differences::<TEXT>),
        Value::Object(map) => {
            map.is_empty() || map.iter().any(|(_, value)| has_differences::<TEXT>(value))
        }
        Value::Raw(_) => TEXT,
        _ => false,
    }
}

fn members(types: &Types, struct_type: &Struct, map: &mut Map) {
    map.retain(|name, value| {
        let Some(field) = struct_type.field(name) else { return true };
        let is_many = matches!(field.shape, Shape::List(_) | Shape::Map(_));
        if is_many && field.presence == Presence::OmitEmpty && value.is_empty() {
            return false;
        }
        normalize(types, &field.shape, value);
        true
    });
}

fn normalize(types: &Types, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(map)) => members(types, types.get(*id), map),
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| normalize(types, &list.item, item));
        }
        (Shape::Map(shape), Value::Object(map)) => {
            map.iter_mut().for_each(|(_, value)| normalize(types, &shape.value, value));
        }
        (Shape::RawExtension, value) => *value = json::parse_raw(std::mem::take(value)),
        _ => {}
    }
}
