//! Validates the defaults in a schema against the schema (apiextensions
//! `pkg/apiserver/schema/defaulting`, `ValidateDefaults`).

use super::members::{at, flag, invalid, listed, named, text};
use super::open_api;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value, value};
use keelson_schema::structural::{self, DEPTH_MAX, Structural};

const METADATA: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// The position of a schema.
#[derive(Clone, Copy)]
struct Position<'p> {
    field: &'p str,
    depth: usize,
    is_root: bool,
    /// The path from the enclosing resource, if the schema is in its type or metadata.
    meta: Option<&'p Meta<'p>>,
}

/// A path into the type or metadata of a resource; `None` is a list item.
struct Meta<'p> {
    step: Option<&'p str>,
    parent: Option<&'p Meta<'p>>,
}

/// Validates all defaults in the schema of an object.
pub fn validate(schema: &Map, field: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    walk(schema, Position { field, depth: 0, is_root: true, meta: None }, &mut errors);
    errors
}

/// Returns whether a schema or one inside it has a default.
pub(super) fn is_any(schema: &Map, depth: usize) -> bool {
    let inner = |inner: &Map| depth < DEPTH_MAX && is_any(inner, depth + 1);
    let members = ["items", "additionalProperties", "not"];
    schema.get("default").is_some_and(|default| !default.is_null())
        || members.iter().any(|name| schema.get(name).and_then(Value::as_object).is_some_and(inner))
        || ["allOf", "anyOf", "oneOf"].iter().any(|name| listed(schema, name).any(inner))
        || named(schema, "properties").any(|(_, member)| inner(member))
}

fn walk(schema: &Map, position: Position<'_>, errors: &mut ErrorList) {
    if position.depth > DEPTH_MAX {
        return;
    }
    let is_resource = position.is_root || flag(schema, "x-kubernetes-embedded-resource");
    let meta = position.meta.filter(|_| !is_resource);
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        validate_default(schema, default, Position { meta, ..position }, errors);
    }
    let field = position.field;
    let depth = position.depth + 1;
    // Upstream does not validate defaults in `additionalProperties`.
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        let step = meta.map(|parent| Meta { step: None, parent: Some(parent) });
        let field = format!("{field}.items");
        walk(items, Position { field: &field, depth, is_root: false, meta: step.as_ref() }, errors);
    }
    for (name, member) in named(schema, "properties") {
        let is_meta = meta.is_some() || (is_resource && METADATA.contains(&name));
        let step = is_meta.then_some(Meta { step: Some(name), parent: meta });
        let field = format!("{field}.properties[{name}]");
        walk(
            member,
            Position { field: &field, depth, is_root: false, meta: step.as_ref() },
            errors,
        );
    }
}

fn validate_default(schema: &Map, default: &Value, position: Position<'_>, errors: &mut ErrorList) {
    let field = format!("{}.default", position.field);
    let read = Structural::read(Some(&Value::Object(schema.clone()))).for_defaults();
    let found = match position.meta {
        Some(meta) => {
            if let Some(why) = structural::embedded_resource_error(&resource(meta, default)) {
                let why = format!("must result in valid metadata: {why}");
                return errors.push(invalid(field, default.clone(), &why));
            }
            read.check_value(default)
        }
        None => {
            let read = if position.is_root { read.embedded() } else { read };
            if read.has_unknown(default) {
                let why = "must not have unknown fields";
                errors.push(invalid(field.clone(), default.clone(), why));
            }
            match text(schema, "type") {
                "" => read.check_default(default),
                kind if open_api::TYPES.contains(&kind) => read.check_default(default),
                unknown => return errors.push(unknown_type_error(unknown, default, &field)),
            }
        }
    };
    for fault in found.iter() {
        let field = match fault.field.as_str() {
            "" | "<nil>" => field.clone(),
            // The path of a map value starts with a dot.
            inner => format!("{field}.{}", inner.trim_start_matches('.')),
        };
        errors.push(FieldError { field, ..fault.clone() });
    }
}

/// Returns the error of a default whose schema has an unknown type.
fn unknown_type_error(kind: &str, default: &Value, field: &str) -> FieldError {
    let given = match default {
        Value::Int(_) => "integer",
        Value::Float(_) => "number",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    };
    let why = format!(" in body must be of type {kind}: \"{given}\"");
    at(field, FieldError::type_invalid(&Path::ROOT, given, &why))
}

/// Builds a resource that has the default at its path.
fn resource(meta: &Meta<'_>, default: &Value) -> Map {
    let mut value = default.clone();
    let mut at = Some(meta);
    while let Some(Meta { step, parent }) = at {
        value = match step {
            None => Value::Array(vec![value]),
            Some(name) => Value::Object(Map::from_iter([((*name).into(), value)])),
        };
        at = *parent;
    }
    let mut root = value!({"apiVersion": "validation/v1", "kind": "Validation"});
    if let (Value::Object(root), Value::Object(inner)) = (&mut root, value) {
        for (name, value) in inner.iter() {
            root.insert(name.clone(), value.clone());
        }
    }
    match root {
        Value::Object(root) => root,
        _ => Map::new(),
    }
}
