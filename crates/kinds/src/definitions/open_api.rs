//! Validates every schema in a definition, structural or not (apiextensions
//! `pkg/apis/apiextensions/validation`, `ValidateCustomResourceDefinitionOpenAPISchema`).

use super::members::{flag, forbidden, invalid, listed, named, not_supported, text};
use super::{lists, rules};
use keelson_meta::{ErrorList, Map, Value};
use keelson_schema::structural::DEPTH_MAX;
use std::collections::HashSet;

pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Fields of JSON schemas that are not supported.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
const METADATA: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// What a schema inherits from the schemas around it.
#[derive(Clone, Copy)]
struct Scope<'a> {
    is_root: bool,
    depth: usize,
    /// Whether it is part of the type or metadata of a resource.
    in_metadata: bool,
    /// Why defaults must not be set.
    no_default: Option<&'a str>,
}

const ROOT: Scope<'static> =
    Scope { is_root: true, depth: 0, in_metadata: false, no_default: None };

/// The result of a validation.
#[derive(Default)]
struct Findings {
    errors: ErrorList,
    /// The paths of invalid schemas and of the schemas around them.
    invalid: HashSet<String>,
}

/// Validates a schema and all schemas inside it.
pub(super) fn validate(schema: &Map, field: &str) -> ErrorList {
    let mut found = Findings::default();
    check(schema, ROOT, field, &mut found);
    found.errors
}

/// Returns the paths of invalid schemas and of the schemas around them. CEL errors there may only
/// be a consequence.
pub fn invalid_schema_fields(schema: &Map, field: &str) -> HashSet<String> {
    let mut found = Findings::default();
    check(schema, ROOT, field, &mut found);
    found.invalid
}

fn check(schema: &Map, scope: Scope<'_>, field: &str, found: &mut Findings) {
    if scope.depth > DEPTH_MAX {
        return;
    }
    let before = found.errors.len();
    schemas_in(schema, scope, field, found);
    let errors = &mut found.errors;
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(invalid(format!("{field}.{preserve}"), false, "must be true or undefined"));
    }
    lists::validate(schema, field, errors);
    rules::validate(schema, field, errors);
    if errors.len() > before || errors.is_full() {
        found.invalid.insert(field.to_owned());
    }
}

fn schemas_in(schema: &Map, scope: Scope<'_>, field: &str, found: &mut Findings) {
    unsupported(schema, scope, field, &mut found.errors);
    let inner = Scope { is_root: false, depth: scope.depth + 1, ..scope };
    additional(schema, inner, field, found);
    let is_resource = scope.is_root || flag(schema, "x-kubernetes-embedded-resource");
    for (name, member) in named(schema, "properties") {
        let is_meta = is_resource && METADATA.contains(&name);
        let reason = format!("in top-level {name}");
        let no_default = if is_meta && scope.is_root { Some(&*reason) } else { scope.no_default };
        let inner = Scope { in_metadata: scope.in_metadata || is_meta, no_default, ..inner };
        check(member, inner, &format!("{field}.properties[{name}]"), found);
    }
    if let Some(not) = schema.get("not").and_then(Value::as_object) {
        check(not, inner, &format!("{field}.not"), found);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (i, member) in listed(schema, name).enumerate() {
            check(member, inner, &format!("{field}.{name}[{i}]"), found);
        }
    }
    for (name, member) in named(schema, "definitions") {
        check(member, inner, &format!("{field}.definitions[{name}]"), found);
    }
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        check(items, inner, &format!("{field}.items"), found);
    }
    for (name, member) in named(schema, "dependencies") {
        check(member, inner, &format!("{field}.dependencies[{name}]"), found);
    }
}

fn unsupported(schema: &Map, scope: Scope<'_>, field: &str, errors: &mut ErrorList) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(not_supported(format!("{field}.type"), kind, &TYPES));
    }
    let has_default = schema.get("default").is_some_and(|default| !default.is_null());
    if let (Some(reason), true) = (scope.no_default, has_default) {
        errors.push(forbidden(format!("{field}.default"), &format!("must not be set {reason}")));
    }
    for name in UNSUPPORTED {
        let is_set = schema.get(name).is_some_and(|value| match name {
            // An empty value is set too.
            "additionalItems" | "dependencies" | "$ref" => !value.is_null(),
            _ => !value.is_empty(),
        });
        if is_set {
            errors.push(forbidden(format!("{field}.{name}"), &format!("{name} is not supported")));
        }
    }
    if kind == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.push(forbidden(format!("{field}.type"), why));
    }
    if schema.get("items").is_some_and(|items| items.as_array().is_some()) {
        let why = "items must be a schema object and not an array";
        errors.push(forbidden(format!("{field}.items"), why));
    }
    let embedded = "x-kubernetes-embedded-resource";
    if scope.in_metadata && flag(schema, embedded) {
        let why = "must not be used inside of resource meta";
        errors.push(forbidden(format!("{field}.{embedded}"), why));
    }
    if flag(schema, "uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(forbidden(format!("{field}.uniqueItems"), why));
    }
}

/// Validates `additionalProperties`.
fn additional(schema: &Map, scope: Scope<'_>, field: &str, found: &mut Findings) {
    let Some(values) = schema.get("additionalProperties").filter(|values| !values.is_null()) else {
        return;
    };
    let field = format!("{field}.additionalProperties");
    let has_properties = schema.get("properties").is_some_and(|properties| !properties.is_empty());
    if has_properties && *values != Value::Bool(true) {
        let why = "additionalProperties and properties are mutual exclusive";
        found.errors.push(forbidden(field.clone(), why));
    }
    let Some(values) = values.as_object() else { return };
    let mut scope = scope;
    if scope.in_metadata {
        scope.no_default = Some("inside additionalProperties applying to object metadata");
    }
    check(values, scope, &field, found);
}
