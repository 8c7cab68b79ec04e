//! Removes fields from an object.

use super::MergeKind;
use super::element::element;
use crate::fields::FieldSet;
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Schema, Types};

/// Removes the paths of `removed` and all below them. A map or list of which nothing is left
/// becomes null (1.36.0 to 1.36.2 left it empty).
pub(crate) fn remove(schema: &Schema, object: &mut Map, removed: &FieldSet) {
    members(&schema.types, MergeKind::Struct(schema.root()), object, removed);
}

fn value(types: &Types, kind: MergeKind<'_>, value: &mut Value, removed: &FieldSet) {
    match (kind, &mut *value) {
        (MergeKind::Struct(_) | MergeKind::Map(_) | MergeKind::Deduced, Value::Object(map)) => {
            members(types, kind, map, removed);
        }
        (MergeKind::List(list), Value::Array(all)) => items(types, list, all, removed),
        // An atomic value is removed as a whole.
        (_, Value::Object(_) | Value::Array(_)) => *value = Value::Null,
        _ => {}
    }
    if matches!(value, Value::Object(_) | Value::Array(_)) && value.is_empty() {
        *value = Value::Null;
    }
}

fn members(types: &Types, kind: MergeKind<'_>, map: &mut Map, removed: &FieldSet) {
    map.retain(|name, item| {
        let Some(node) = removed.field(name) else { return true };
        if node.is_member {
            return false;
        }
        if let Some(member) = kind.member(types, name).0 {
            value(types, member, item, &node.children);
        }
        true
    });
}

fn items(types: &Types, list: &ListShape, items: &mut Vec<Value>, removed: &FieldSet) {
    items.retain_mut(|item| {
        let Ok(element) = element(types, list, item) else { return true };
        let Some(node) = removed.node(&element) else { return true };
        if node.is_member {
            return false;
        }
        value(types, MergeKind::of(types, &list.item), item, &node.children);
        true
    });
}
