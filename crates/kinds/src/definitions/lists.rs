//! Validates `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type`.

use super::members::{flag, forbidden, invalid, not_supported, required, text, wrong_type};
use keelson_meta::{ErrorList, Map, Value};
use std::collections::HashSet;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const LIST_TYPES: [&str; 3] = ["atomic", "set", "map"];
const MAP_TYPES: [&str; 2] = ["atomic", "granular"];

/// Validates one schema, without the schemas inside it.
pub(super) fn validate(schema: &Map, field: &str, errors: &mut ErrorList) {
    if let Some(map) = schema.get(MAP_TYPE).and_then(Value::as_str) {
        if text(schema, "type") != "object" {
            let why = "must be object if x-kubernetes-map-type is specified";
            errors.push(wrong_type(schema, field, why));
        }
        if !MAP_TYPES.contains(&map) {
            errors.push(not_supported(format!("{field}.{MAP_TYPE}"), map, &MAP_TYPES));
        }
    }
    let list = schema.get(LIST_TYPE).and_then(Value::as_str);
    if let Some(list) = list {
        if text(schema, "type") != "array" {
            let why = "must be array if x-kubernetes-list-type is specified";
            errors.push(wrong_type(schema, field, why));
        }
        if !LIST_TYPES.contains(&list) {
            errors.push(not_supported(format!("{field}.{LIST_TYPE}"), list, &LIST_TYPES));
        }
    }
    let keys: Vec<&str> = schema
        .get(KEYS)
        .and_then(Value::as_array)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let why = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list {
        _ if keys.is_empty() => {}
        None => errors.push(required(format!("{field}.{LIST_TYPE}"), why)),
        Some("map") => {}
        Some(other) => errors.push(invalid(format!("{field}.{LIST_TYPE}"), other, why)),
    }
    let items = schema.get("items").and_then(Value::as_object);
    match list {
        Some("map") => validate_map(schema, items, &keys, field, errors),
        Some("set") => {
            if let Some(items) = items {
                if text(schema, "type") == "array" {
                    validate_set(items, field, errors);
                }
                nullable_items(items, "set", field, errors);
            }
        }
        _ => {}
    }
}

/// Validates the items of a list of type `set`: they must be atomic.
fn validate_set(items: &Map, field: &str, errors: &mut ErrorList) {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    match text(items, "type") {
        "array" if !matches!(text(items, LIST_TYPE), "" | "atomic") => {
            let field = format!("{field}.items.{LIST_TYPE}");
            errors.push(invalid(field, text(items, LIST_TYPE), why));
        }
        "object" if text(items, MAP_TYPE) != "atomic" => {
            // Upstream shows the list type as the value.
            let shown = items.get(LIST_TYPE).cloned().unwrap_or_default();
            errors.push(invalid(format!("{field}.items.{MAP_TYPE}"), shown, why));
        }
        _ => {}
    }
}

fn nullable_items(items: &Map, list: &str, field: &str, errors: &mut ErrorList) {
    if flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(forbidden(format!("{field}.items.nullable"), &why));
    }
}

fn validate_map(
    schema: &Map,
    items: Option<&Map>,
    keys: &[&str],
    field: &str,
    errors: &mut ErrorList,
) {
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(required(format!("{field}.{KEYS}"), why));
    }
    let Some(items) = items else {
        if schema.get("items").is_none() {
            let why = "must have a schema if x-kubernetes-list-type is map";
            errors.push(required(format!("{field}.items"), why));
        }
        return;
    };
    let kind = text(items, "type");
    match kind {
        "object" => validate_keys(items, keys, field, errors),
        kind => {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            errors.push(invalid(format!("{field}.items.type"), kind, why));
        }
    }
    nullable_items(items, "map", field, errors);
    let needed = items.get("required").and_then(Value::as_array).unwrap_or_default();
    for key in keys {
        let Some(member) = property(items, key) else { continue };
        let field = format!("{field}.items.properties[{key}]");
        let is_required = needed.iter().any(|name| name.as_str() == Some(key));
        if !is_required && member.get("default").is_none_or(Value::is_null) {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                       required property";
            errors.push(required(format!("{field}.default"), why));
        }
        if flag(member, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(forbidden(format!("{field}.nullable"), why));
        }
    }
}

fn property<'m>(items: &'m Map, key: &str) -> Option<&'m Map> {
    items.get("properties")?.get(key)?.as_object()
}

fn validate_keys(items: &Map, keys: &[&str], field: &str, errors: &mut ErrorList) {
    let mut seen = HashSet::new();
    let shown = || Value::Array(keys.iter().map(|key| Value::from(*key)).collect());
    let at_keys = || format!("{field}.{KEYS}");
    for key in keys {
        match property(items, key) {
            Some(member) if matches!(text(member, "type"), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let field = format!("{field}.items.properties[{key}].type");
                // Upstream shows the type of the items as the value.
                errors.push(invalid(field, text(items, "type"), why));
            }
            Some(_) => {}
            None => {
                let why = "entries must all be names of item properties";
                errors.push(invalid(at_keys(), shown(), why));
            }
        }
        if !seen.insert(*key) {
            errors.push(invalid(at_keys(), shown(), "must not contain duplicate entries"));
        }
    }
}
