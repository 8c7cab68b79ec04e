//! Defaults in a schema must be values that it takes (apiextensions `pkg/apiserver/schema/defaulting`,
//! `ValidateDefaults`).

use super::members::{at, flag, invalid, listed, named, text};
use super::open_api;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value, value};
use keelson_schema::structural::{self, DEPTH_MAX, Structural};

const METADATA: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// Where a schema stands.
#[derive(Clone, Copy)]
struct Place<'p> {
    field: &'p str,
    depth: usize,
    is_root: bool,
    /// The members from the resource around it, where it is in that resource's type or metadata.
    meta: Option<&'p Meta<'p>>,
}

/// A way into the type or metadata of a resource; `None` is an item of a list.
struct Meta<'p> {
    step: Option<&'p str>,
    before: Option<&'p Meta<'p>>,
}

/// The faults of all defaults in the schema of a whole object.
pub fn faults(schema: &Map, field: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    walk(schema, Place { field, depth: 0, is_root: true, meta: None }, &mut errors);
    errors
}

/// Whether a schema, or one in it, names a default.
pub(super) fn is_any(schema: &Map, depth: usize) -> bool {
    let inner = |inner: &Map| depth < DEPTH_MAX && is_any(inner, depth + 1);
    let members = ["items", "additionalProperties", "not"];
    schema.get("default").is_some_and(|default| !default.is_null())
        || members.iter().any(|name| schema.get(name).and_then(Value::as_object).is_some_and(inner))
        || ["allOf", "anyOf", "oneOf"].iter().any(|name| listed(schema, name).any(inner))
        || named(schema, "properties").any(|(_, member)| inner(member))
}

fn walk(schema: &Map, place: Place<'_>, errors: &mut ErrorList) {
    if place.depth > DEPTH_MAX {
        return;
    }
    let is_resource = place.is_root || flag(schema, "x-kubernetes-embedded-resource");
    let meta = place.meta.filter(|_| !is_resource);
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        of_default(schema, default, Place { meta, ..place }, errors);
    }
    let (field, depth) = (place.field, place.depth + 1);
    // Those in additionalProperties are not looked at.
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        let step = meta.map(|before| Meta { step: None, before: Some(before) });
        let field = format!("{field}.items");
        walk(items, Place { field: &field, depth, is_root: false, meta: step.as_ref() }, errors);
    }
    for (name, member) in named(schema, "properties") {
        let is_meta = meta.is_some() || (is_resource && METADATA.contains(&name));
        let step = is_meta.then_some(Meta { step: Some(name), before: meta });
        let field = format!("{field}.properties[{name}]");
        walk(member, Place { field: &field, depth, is_root: false, meta: step.as_ref() }, errors);
    }
}

fn of_default(schema: &Map, default: &Value, place: Place<'_>, errors: &mut ErrorList) {
    let field = format!("{}.default", place.field);
    let read = Structural::read(Some(&Value::Object(schema.clone()))).for_defaults();
    let found = match place.meta {
        Some(meta) => {
            if let Some(why) = structural::embedded_resource_error(&resource(meta, default)) {
                let why = format!("must result in valid metadata: {why}");
                return errors.push(invalid(field, default.clone(), &why));
            }
            read.check_value(default)
        }
        None => {
            let read = if place.is_root { read.embedded() } else { read };
            if read.has_unknown(default) {
                let why = "must not have unknown fields";
                errors.push(invalid(field.clone(), default.clone(), why));
            }
            match text(schema, "type") {
                "" => read.check_default(default),
                kind if open_api::TYPES.contains(&kind) => read.check_default(default),
                unknown => return errors.push(of_unknown_type(unknown, default, &field)),
            }
        }
    };
    for fault in found.iter() {
        let place = match fault.field.as_str() {
            "" | "<nil>" => field.clone(),
            // That of a value of a map begins with a dot.
            inner => format!("{field}.{}", inner.trim_start_matches('.')),
        };
        errors.push(FieldError { field: place, ..fault.clone() });
    }
}

/// No value is of a type that there is not.
fn of_unknown_type(kind: &str, default: &Value, field: &str) -> FieldError {
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

/// A resource in which a default stands in its place.
fn resource(meta: &Meta<'_>, default: &Value) -> Map {
    let (mut value, mut at) = (default.clone(), Some(meta));
    while let Some(Meta { step, before }) = at {
        value = match step {
            None => Value::Array(vec![value]),
            Some(name) => Value::Object(Map::from_iter([((*name).into(), value)])),
        };
        at = *before;
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
