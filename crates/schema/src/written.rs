//! What of an object Go writes: an empty list or map of a field that is omitted when empty is told from an absent one
//! only in memory (encoding/json, `omitempty`).

use crate::types::{Presence, Schema, Shape, Struct, Types};
use keelson_meta::{Map, Object, Value};

impl Schema {
    /// The object as it reads when it has been written; none: it is that already.
    pub fn written(&self, object: &Object) -> Option<Object> {
        if !object.root.iter().any(|(_, value)| has_empty(value)) {
            return None;
        }
        let mut object = object.clone();
        members(&self.types, self.root(), &mut object.root);
        Some(object)
    }
}

/// Whether an empty list or map is anywhere in a value.
fn has_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
        Value::Object(map) => map.is_empty() || map.iter().any(|(_, value)| has_empty(value)),
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
        _ => {}
    }
}
