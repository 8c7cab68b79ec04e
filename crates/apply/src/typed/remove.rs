//! Takes fields out of a value.

use super::Kind;
use super::element::element;
use crate::fields::FieldSet;
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Schema, Types};

/// Takes the paths of `gone`, and all below them, out of an object. A map of which nothing is left stays, empty;
/// a list becomes null, and so does a map that has nothing but such lists.
pub(crate) fn remove(schema: &Schema, object: &mut Map, gone: &FieldSet) {
    members(&schema.types, Kind::Struct(schema.root()), object, gone);
}

fn value(types: &Types, kind: Kind<'_>, value: &mut Value, gone: &FieldSet) {
    let is_nothing = match (kind, &mut *value) {
        (Kind::Struct(_) | Kind::Map(_) | Kind::Deduced, Value::Object(map)) => {
            members(types, kind, map, gone);
            let is_no_list =
                |value: &Value| matches!(value, Value::Null | Value::Array(_)) && value.is_empty();
            !map.is_empty() && map.iter().all(|(_, value)| is_no_list(value))
        }
        (Kind::List(list), Value::Array(all)) => {
            items(types, list, all, gone);
            all.is_empty()
        }
        // What is one value to its owners goes as a whole.
        (_, Value::Object(map)) => {
            *map = Map::new();
            false
        }
        (_, Value::Array(_)) => true,
        _ => false,
    };
    if is_nothing {
        *value = Value::Null;
    }
}

fn members(types: &Types, kind: Kind<'_>, map: &mut Map, gone: &FieldSet) {
    map.retain(|name, item| {
        let Some(node) = gone.field(name) else { return true };
        if node.is_member {
            return false;
        }
        if let Some(member) = kind.member(types, name).0 {
            value(types, member, item, &node.children);
        }
        true
    });
}

fn items(types: &Types, list: &ListShape, items: &mut Vec<Value>, gone: &FieldSet) {
    items.retain_mut(|item| {
        let Ok(element) = element(types, list, item) else { return true };
        let Some(node) = gone.node(&element) else { return true };
        if node.is_member {
            return false;
        }
        value(types, Kind::of(types, &list.item), item, &node.children);
        true
    });
}
