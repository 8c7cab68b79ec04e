//! Checks that schemas are structural (apiextensions `pkg/apiserver/schema`, `NewStructural` and
//! `ValidateStructural`): every value has a type, and `anyOf`, `allOf`, `oneOf` and `not` only add
//! value validations.

use super::members::{flag, forbidden, invalid, listed, named, required, text};
use keelson_meta::{ErrorList, Map, Value};
use keelson_schema::structural::{DEPTH_MAX, is_pattern};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Valid patterns that are cached.
const VALID_PATTERNS_MAX: usize = 512;
/// Bytes of a pattern that is cached.
const VALID_PATTERN_BYTES_MAX: usize = 512;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const QUANTIFIERS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// Fields that a structural schema cannot have, in upstream's order.
const UNSUPPORTED: [(&str, &str); 7] = [
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("additionalItems", "additionalItems"),
    ("patternProperties", "patternProperties"),
    ("definitions", "definitions"),
    ("dependencies", "dependencies"),
];

/// Fields that a schema inside a logical operator (`anyOf` and the like) must not have.
const FORBIDDEN: [(&str, &str); 13] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (PRESERVE, "must be false to be structural"),
    (EMBEDDED, "must be false to be structural"),
    (INT_OR_STRING, "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// The position of a schema in the enclosing one.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Root,
    Field,
    Item,
}

/// Returns why a schema cannot be converted to a structural schema.
pub(super) fn unsupported(schema: &Map, depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return None;
    }
    let is_set = |name: &str| match schema.get(name) {
        Some(Value::Bool(_)) => true,
        value => value.is_some_and(|value| !value.is_empty()),
    };
    if let Some((_, shown)) = UNSUPPORTED.iter().find(|(name, _)| is_set(name)) {
        return Some(format!("OpenAPIV3Schema '{shown}' is not supported"));
    }
    let inner = |inner: &Map| unsupported(inner, depth + 1);
    let member = |name: &str| schema.get(name).and_then(Value::as_object).and_then(inner);
    QUANTIFIERS
        .iter()
        .find_map(|name| listed(schema, name).find_map(inner))
        .or_else(|| member("not"))
        .or_else(|| member("additionalProperties"))
        .or_else(|| {
            let why = format!("internal error: '{PRESERVE}' must be true or undefined");
            (schema.get(PRESERVE) == Some(&Value::Bool(false))).then_some(why)
        })
        .or_else(|| member("items"))
        .or_else(|| named(schema, "properties").find_map(|(_, member)| inner(member)))
}

/// Validates the structural schema of an object. Sorts the errors by message.
pub(super) fn validate(schema: &Map, field: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    invariants(schema, Position::Root, 0, field, &mut errors);
    complete_values(schema, Some(schema), field, field, 0, &mut errors);
    errors.sort();
    errors
}

fn invariants(schema: &Map, position: Position, depth: usize, field: &str, errors: &mut ErrorList) {
    if depth > DEPTH_MAX {
        return;
    }
    let items = schema.get("items").filter(|items| !items.is_null());
    if text(schema, "type") == "array" && items.is_none() {
        errors.push(required(format!("{field}.items"), "must be specified"));
    }
    if let Some(items) = items.and_then(Value::as_object) {
        invariants(items, Position::Item, depth + 1, &format!("{field}.items"), errors);
    }
    for (name, member) in named(schema, "properties") {
        let field = format!("{field}.properties[{name}]");
        invariants(member, Position::Field, depth + 1, &field, errors);
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| !values.is_null()) {
        let field = format!("{field}.additionalProperties");
        if position == Position::Root {
            errors.push(forbidden(field.clone(), "must not be used at the root"));
        }
        if let Some(values) = values.as_object() {
            invariants(values, Position::Field, depth + 1, &field, errors);
        }
    }
    if flag(schema, INT_OR_STRING) {
        let why = "must be false if x-kubernetes-int-or-string is true";
        for name in [PRESERVE, EMBEDDED] {
            if flag(schema, name) {
                errors.push(invalid(format!("{field}.{name}"), true, why));
            }
        }
    }
    // Two forms of an int-or-string may have types inside `anyOf`.
    let skips_any = is_int_or_string(schema);
    let skips_first = listed(schema, "allOf").next().is_some_and(is_int_or_string);
    value_validation(schema, skips_any, skips_first, depth, field, errors);
    validate_type(schema, position, field, errors);
    validate_embedded_resource(schema, position, field, errors);
}

/// Returns whether `anyOf` has exactly the form of an int-or-string: an integer, then a string.
fn is_int_or_string(schema: &Map) -> bool {
    let is_type = |inner: &Map, kind: &str| {
        text(inner, "type") == kind
            && inner.iter().all(|(name, value)| name == "type" || value.is_empty())
    };
    let all: Vec<&Map> = listed(schema, "anyOf").collect();
    matches!(all[..], [one, two] if is_type(one, "integer") && is_type(two, "string"))
}

fn validate_type(schema: &Map, position: Position, field: &str, errors: &mut ErrorList) {
    let kind = text(schema, "type");
    let is_embedded = flag(schema, EMBEDDED);
    let at_type = || format!("{field}.type");
    if is_embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => required(at_type(), why),
            kind => invalid(at_type(), kind, why),
        });
    } else if kind.is_empty() && !flag(schema, INT_OR_STRING) && !flag(schema, PRESERVE) {
        let why = match position {
            Position::Root => "must not be empty at the root",
            Position::Item => "must not be empty for specified array items",
            Position::Field => "must not be empty for specified object fields",
        };
        errors.push(required(at_type(), why));
    }
    let has_values = schema.get("additionalProperties").is_some_and(|values| !values.is_null());
    if is_embedded && has_values {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(forbidden(format!("{field}.additionalProperties"), why));
    }
    if position == Position::Root && !kind.is_empty() && kind != "object" {
        errors.push(invalid(at_type(), kind, "must be object at the root"));
    }
}

/// Validates the type and metadata fields of a root schema or embedded resource.
fn validate_embedded_resource(
    schema: &Map,
    position: Position,
    field: &str,
    errors: &mut ErrorList,
) {
    let is_embedded = flag(schema, EMBEDDED);
    if position != Position::Root && !is_embedded {
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let member = properties.and_then(|properties| properties.get(name)?.as_object());
        let Some(member) = member else { continue };
        let field = format!("{field}.properties[{name}]");
        if text(member, "type") != wanted {
            let why = format!("must be {wanted}");
            errors.push(invalid(format!("{field}.type"), text(member, "type"), &why));
        }
        if name == "metadata" && position == Position::Root && restricts_more_of_metadata(member) {
            let why = "must not specify anything other than name and generateName, but metadata is \
                       implicitly specified";
            errors.push(forbidden(field, why));
        }
    }
    if is_embedded && !flag(schema, PRESERVE) && properties.is_none_or(Map::is_empty) {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.push(required(format!("{field}.properties"), why));
    }
}

fn restricts_more_of_metadata(schema: &Map) -> bool {
    schema.iter().any(|(name, value)| match name.as_str() {
        "type" | "default" => false,
        "properties" => value.as_object().is_some_and(|properties| {
            properties.iter().any(|(name, _)| name != "name" && name != "generateName")
        }),
        // An empty value counts as set where upstream distinguishes it from nil.
        "additionalProperties"
        | "externalDocs"
        | "items"
        | "not"
        | "required"
        | "x-kubernetes-list-map-keys"
        | "x-kubernetes-validations" => !value.is_null(),
        // A number counts as set, even 0.
        _ => !value.is_empty() || value.as_int().is_some(),
    })
}

/// Validates the value validations of a schema.
fn value_validation(
    schema: &Map,
    skips_any: bool,
    skips_first_of_all: bool,
    depth: usize,
    field: &str,
    errors: &mut ErrorList,
) {
    let mut nested_in = |name: &str, skips_all: bool, skips_first: bool| {
        for (i, inner) in listed(schema, name).enumerate().filter(|_| !skips_all) {
            let field = format!("{field}.{name}[{i}]");
            nested(inner, skips_first && i == 0, depth + 1, &field, errors);
        }
    };
    nested_in("anyOf", skips_any, false);
    nested_in("allOf", false, skips_first_of_all);
    nested_in("oneOf", false, false);
    if let Some(not) = schema.get("not").and_then(Value::as_object) {
        nested(not, false, depth + 1, &format!("{field}.not"), errors);
    }
    if let Some(why) = schema.get("pattern").and_then(Value::as_str).and_then(pattern_error) {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(invalid(format!("{field}.pattern"), text(schema, "pattern"), &why));
    }
}

/// Returns the error of an invalid pattern, with Go's message. Caches valid patterns: compiling
/// them would dominate the validation of a definition, and the definitions of a cluster share many.
fn pattern_error(pattern: &str) -> Option<String> {
    static VALID: Mutex<BTreeSet<Box<str>>> = Mutex::new(BTreeSet::new());
    let good = || VALID.lock().unwrap_or_else(PoisonError::into_inner);
    if good().contains(pattern) {
        return None;
    }
    let go = keelson_cel::check_pattern(pattern).err();
    let error = go.or_else(|| (!is_pattern(pattern)).then(|| "error parsing regexp".to_owned()));
    if error.is_none() && pattern.len() <= VALID_PATTERN_BYTES_MAX {
        let mut good = good();
        if good.len() == VALID_PATTERNS_MAX {
            good.clear();
        }
        good.insert(pattern.into());
    }
    error
}

/// Validates a schema inside a logical operator.
fn nested(schema: &Map, skips_any: bool, depth: usize, field: &str, errors: &mut ErrorList) {
    if depth > DEPTH_MAX {
        return;
    }
    value_validation(schema, skips_any, false, depth, field, errors);
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        nested(items, false, depth + 1, &format!("{field}.items"), errors);
    }
    for (name, member) in named(schema, "properties") {
        nested(member, false, depth + 1, &format!("{field}.properties[{name}]"), errors);
    }
    for (name, why) in FORBIDDEN {
        let is_set = schema.get(name).is_some_and(|value| match name {
            "default" | "additionalProperties" => !value.is_null(),
            _ => !value.is_empty(),
        });
        if is_set {
            errors.push(forbidden(format!("{field}.{name}"), why));
        }
    }
    if schema.get("properties").is_some_and(|properties| properties.get("metadata").is_some()) {
        let why = "must not be specified in a nested context";
        errors.push(forbidden(format!("{field}.properties[metadata]"), why));
    }
}

/// Checks that every field inside a logical operator is also a field of the schema itself. The
/// first path is that of the schema, the second that of the operator.
fn complete_values(
    operand: &Map,
    schema: Option<&Map>,
    field: &str,
    operand_field: &str,
    depth: usize,
    errors: &mut ErrorList,
) {
    if depth > DEPTH_MAX {
        return;
    }
    if let Some(not) = operand.get("not").and_then(Value::as_object) {
        complete(not, schema, field, &format!("{operand_field}.not"), depth, errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (i, inner) in listed(operand, name).enumerate() {
            let operand_field = format!("{operand_field}.{name}[{i}]");
            complete(inner, schema, field, &operand_field, depth, errors);
        }
    }
}

fn complete(
    operand: &Map,
    schema: Option<&Map>,
    field: &str,
    operand_field: &str,
    depth: usize,
    errors: &mut ErrorList,
) {
    let Some(known) = schema else {
        let why = format!("because it is defined in {operand_field}");
        return errors.push(required(field.to_owned(), &why));
    };
    complete_values(operand, schema, field, operand_field, depth + 1, errors);
    if let Some(items) = operand.get("items").and_then(Value::as_object) {
        let known = known.get("items").and_then(Value::as_object);
        let fields = (format!("{field}.items"), format!("{operand_field}.items"));
        complete(items, known, &fields.0, &fields.1, depth + 1, errors);
    }
    for (name, member) in named(operand, "properties") {
        let known = known.get("properties").and_then(|known| known.get(name)?.as_object());
        let step = format!(".properties[{name}]");
        let fields = (format!("{field}{step}"), format!("{operand_field}{step}"));
        complete(member, known, &fields.0, &fields.1, depth + 1, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn root_metadata_restricts_only_names() {
        let check = |member: Value, expected: bool| {
            let schema = member.as_object().expect("a schema");
            assert_eq!(restricts_more_of_metadata(schema), expected, "{member:?}");
        };
        for (member, expected) in [
            (value!({"type": "object", "properties": {}}), false),
            (value!({"properties": {"name": {"type": "string"}}}), false),
            (value!({"properties": {"labels": {"type": "object"}}}), true),
            (value!({"additionalProperties": false}), true),
            (value!({"additionalProperties": {}}), true),
            (value!({"items": {}}), true),
            (value!({"not": {}}), true),
            (value!({"required": []}), true),
            (value!({"x-kubernetes-validations": []}), true),
            (value!({"maxLength": 0}), true),
            (value!({"anyOf": []}), false),
            (value!({"nullable": false}), false),
            (value!({"format": ""}), false),
        ] {
            check(member, expected);
        }
    }
}
