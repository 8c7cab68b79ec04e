//! Which OpenAPI v3 schemas are structural (apiextensions `pkg/apiserver/schema/validation.go`).

use super::validate::at;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value};
use keelson_schema::structural::{DEPTH_MAX, Structural, is_pattern};
use std::collections::HashSet;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// What only a schema of values may say, and none that only asks more of them.
const FORBIDDEN_WHEN_SET: [(&str, &str); 11] = [
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("title", "must be empty to be structural"),
    ("type", "must be empty to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// Where a schema stands in another one.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Field,
    Item,
}

/// The faults of the schema of a whole object.
pub(super) fn root(schema: &Map, field: &str, errors: &mut ErrorList) {
    let mut found = ErrorList::new();
    value(schema, Place::Root, field, 0, &mut found);
    errors.extend(found);
}

fn text<'m>(schema: &'m Map, name: &str) -> &'m str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Map, name: &str) -> bool {
    schema.get(name) == Some(&true.into())
}

fn required(field: String, why: &str) -> FieldError {
    at(&field, FieldError::required(&Path::ROOT, why))
}

fn invalid(field: String, value: impl Into<Value>, why: &str) -> FieldError {
    at(&field, FieldError::invalid(&Path::ROOT, value, why))
}

fn forbidden(field: String, why: &str) -> FieldError {
    at(&field, FieldError::forbidden(&Path::ROOT, why))
}

/// The faults of a schema of values.
fn value(schema: &Map, place: Place, field: &str, depth: usize, errors: &mut ErrorList) {
    if depth > DEPTH_MAX {
        return;
    }
    of_type(schema, place, field, errors);
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Some(why) = pattern_fault(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(invalid(format!("{field}.pattern"), pattern, &why));
    }
    of_list(schema, field, errors);
    of_map(schema, field, errors);
    of_default(schema, field, errors);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, member) in properties.into_iter().flat_map(Map::iter) {
        let is_known =
            place == Place::Root && matches!(&**name, "metadata" | "kind" | "apiVersion");
        if let (Some(member), false) = (member.as_object(), is_known) {
            let field = format!("{field}.properties[{name}]");
            value(member, Place::Field, &field, depth + 1, errors);
        }
    }
    if let Some(values) = schema.get("additionalProperties") {
        let field = format!("{field}.additionalProperties");
        if properties.is_some_and(|properties| !properties.is_empty()) {
            let why = "additionalProperties and properties are mutual exclusive";
            errors.push(forbidden(field.clone(), why));
        } else if let Some(values) = values.as_object() {
            value(values, Place::Field, &field, depth + 1, errors);
        }
    }
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        value(items, Place::Item, &format!("{field}.items"), depth + 1, errors);
    }
    further(schema, field, flag(schema, "x-kubernetes-int-or-string"), depth, errors);
}

/// Why a pattern cannot be used, in the words of Go.
fn pattern_fault(pattern: &str) -> Option<String> {
    let go = keelson_cel::check_pattern(pattern).err();
    go.or_else(|| (!is_pattern(pattern)).then(|| "error parsing regexp".to_owned()))
}

fn of_type(schema: &Map, place: Place, field: &str, errors: &mut ErrorList) {
    let (kind, at_type) = (text(schema, "type"), || format!("{field}.type"));
    let is_open = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    match kind {
        "" if place == Place::Root => {
            errors.push(required(at_type(), "must not be empty at the root"));
        }
        "" if is_open => {}
        "" => errors.push(required(
            at_type(),
            match place {
                Place::Item => "must not be empty for specified array items",
                _ => "must not be empty for specified object fields",
            },
        )),
        kind if !TYPES.contains(&kind) => {
            errors.push(at(&at_type(), FieldError::not_supported(&Path::ROOT, kind, &TYPES)));
            if kind == "null" {
                let why = "type cannot be set to null, use nullable as an alternative";
                errors.push(forbidden(at_type(), why));
            }
        }
        "object" => {}
        kind if place == Place::Root => {
            errors.push(invalid(at_type(), kind, "must be object at the root"));
        }
        "array" if schema.get("items").is_none() => {
            errors.push(required(format!("{field}.items"), "must be specified"));
        }
        _ => {}
    }
}

fn of_list(schema: &Map, field: &str, errors: &mut ErrorList) {
    let list = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let keys: Vec<&str> = keys.unwrap_or_default().iter().filter_map(Value::as_str).collect();
    let (at_list, at_keys) = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys");
    let Some(list) = list else {
        if !keys.is_empty() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(required(format!("{field}.{at_list}"), why));
        }
        return;
    };
    if !["atomic", "set", "map"].contains(&list) {
        let error = FieldError::not_supported(&Path::ROOT, list, &["atomic", "set", "map"]);
        return errors.push(at(&format!("{field}.{at_list}"), error));
    }
    let kind = text(schema, "type");
    if kind != "array" {
        let why = "must be array if x-kubernetes-list-type is specified";
        return errors.push(invalid(format!("{field}.type"), kind, why));
    }
    let Some(items) = schema.get("items").and_then(Value::as_object) else { return };
    match list {
        "set" => {
            let has_members =
                items.get("properties").is_some() || items.get("additionalProperties").is_some();
            let is_atomic = text(items, "x-kubernetes-map-type") == "atomic";
            if text(items, "type") == "object" && has_members && !is_atomic {
                let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
                let given = items.get("x-kubernetes-map-type").cloned().unwrap_or_default();
                errors.push(invalid(format!("{field}.items.x-kubernetes-map-type"), given, why));
            }
        }
        "map" if keys.is_empty() => {
            let why = "must not be empty if x-kubernetes-list-type is map";
            errors.push(required(format!("{field}.{at_keys}"), why));
        }
        "map" => of_keys(items, &keys, field, errors),
        _ => {}
    }
}

fn of_keys(items: &Map, keys: &[&str], field: &str, errors: &mut ErrorList) {
    let kind = text(items, "type");
    if kind != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.push(invalid(format!("{field}.items.type"), kind, why));
    }
    let at_keys = format!("{field}.x-kubernetes-list-map-keys");
    let shown = || Value::Array(keys.iter().map(|key| Value::from(*key)).collect());
    let unique: HashSet<&&str> = keys.iter().collect();
    if unique.len() < keys.len() {
        errors.push(invalid(at_keys.clone(), shown(), "must not contain duplicate entries"));
    }
    let needed = items.get("required").and_then(Value::as_array).unwrap_or_default();
    for key in keys {
        let member = items.get("properties").and_then(|properties| properties.get(key));
        let Some(member) = member.and_then(Value::as_object) else {
            let why = "entries must all be names of item properties";
            errors.push(invalid(at_keys.clone(), shown(), why));
            continue;
        };
        let field = format!("{field}.items.properties[{key}]");
        let kind = text(member, "type");
        if matches!(kind, "object" | "array") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(invalid(format!("{field}.type"), kind, why));
        }
        let is_required = needed.iter().any(|name| name.as_str() == Some(key));
        if member.get("default").is_none() && !is_required {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                       required property";
            errors.push(required(format!("{field}.default"), why));
        }
    }
}

fn of_map(schema: &Map, field: &str, errors: &mut ErrorList) {
    let Some(map) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    let kind = text(schema, "type");
    if !["atomic", "granular"].contains(&map) {
        let error = FieldError::not_supported(&Path::ROOT, map, &["atomic", "granular"]);
        errors.push(at(&format!("{field}.x-kubernetes-map-type"), error));
    } else if kind != "object" {
        let why = "must be object if x-kubernetes-map-type is specified";
        errors.push(invalid(format!("{field}.type"), kind, why));
    }
}

/// A default must be a value that its own schema takes.
fn of_default(schema: &Map, field: &str, errors: &mut ErrorList) {
    let Some(default) = schema.get("default").filter(|default| !default.is_null()) else { return };
    let field = format!("{field}.default");
    let (faults, unknown) =
        Structural::read(Some(&Value::Object(schema.clone()))).check_value(default);
    if unknown {
        errors.push(invalid(field.clone(), default.clone(), "must not have unknown fields"));
    }
    for fault in faults.iter() {
        let place = format!(
            "{field}{}",
            if fault.field.is_empty() { String::new() } else { format!(".{}", fault.field) }
        );
        errors.push(FieldError { field: place, ..fault.clone() });
    }
}

/// What `allOf` and the like ask beside a schema.
fn further(
    schema: &Map,
    field: &str,
    is_int_or_string: bool,
    depth: usize,
    errors: &mut ErrorList,
) {
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(name).and_then(Value::as_array).unwrap_or_default();
        // Upstream writes an int-or-string so.
        let types: Vec<&str> = list.iter().filter_map(|s| s.str_at(&["type"])).collect();
        let is_idiom = is_int_or_string && name == "anyOf" && types == ["integer", "string"];
        for (i, asked) in list.iter().filter_map(Value::as_object).enumerate() {
            let field = format!("{field}.{name}[{i}]");
            if !is_idiom {
                condition(asked, &field, depth + 1, errors);
            }
        }
    }
    if let Some(not) = schema.get("not").and_then(Value::as_object) {
        condition(not, &format!("{field}.not"), depth + 1, errors);
    }
}

fn condition(schema: &Map, field: &str, depth: usize, errors: &mut ErrorList) {
    if depth > DEPTH_MAX {
        return;
    }
    let is_set = |value: &Value| !value.is_empty() && *value != Value::Bool(false);
    for (name, why) in FORBIDDEN_WHEN_SET {
        if schema.get(name).is_some_and(is_set) {
            errors.push(forbidden(format!("{field}.{name}"), why));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, member) in properties.into_iter().flat_map(Map::iter) {
        if let Some(member) = member.as_object() {
            condition(member, &format!("{field}.properties[{name}]"), depth + 1, errors);
        }
    }
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        condition(items, &format!("{field}.items"), depth + 1, errors);
    }
    further(schema, field, false, depth, errors);
}
