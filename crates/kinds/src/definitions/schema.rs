//! Which OpenAPI v3 schemas are structural (apiextensions `pkg/apiserver/schema/validation.go`).

use super::internal;
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

/// What no schema may say, and why.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
const METADATA: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// Where a schema stands in another one.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Field,
    Item,
}

/// What holds for a schema because of those around it.
#[derive(Clone, Copy)]
struct Scope<'a> {
    place: Place,
    depth: usize,
    /// It is part of the type or metadata of a resource.
    in_meta: bool,
    /// Where defaults must not be set.
    no_default: Option<&'a str>,
}

impl<'a> Scope<'a> {
    fn inner(self, place: Place) -> Scope<'a> {
        Scope { place, depth: self.depth + 1, ..self }
    }
}

/// The faults of the schema of a whole object.
pub(super) fn root(schema: &Map, field: &str, has_status: bool, errors: &mut ErrorList) {
    let mut found = ErrorList::new();
    if flag(schema, "nullable") {
        found.push(forbidden(format!("{field}.nullable"), "nullable cannot be true at the root"));
    }
    if has_status {
        with_status(schema, field, &mut found);
    }
    let scope = Scope { place: Place::Root, depth: 0, in_meta: false, no_default: None };
    value(schema, scope, field, &mut found);
    if found.is_empty() {
        defaults(schema, field, 0, &mut found);
    }
    errors.extend(found);
}

/// With a status subresource, the schema of `status` is taken out of the root, which must not say more of it.
fn with_status(schema: &Map, field: &str, errors: &mut ErrorList) {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status \
                   subresource is enabled";
        errors.push(invalid(format!("{field}.type"), kind, why));
    } else if schema.iter().any(|(name, value)| !may_stand_at_root(name, value)) {
        let fields = ROOT_FIELDS.join(" ");
        let why = format!(
            "only [{fields}] fields are allowed at the root of the schema if the status subresource is \
             enabled"
        );
        errors.push(invalid(field.to_owned(), internal::schema(schema), &why));
    }
}

/// The members that a root may have beside a status subresource, as upstream's internal type calls them.
const ROOT_FIELDS: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

fn may_stand_at_root(name: &str, value: &Value) -> bool {
    let is_set = !value.is_null() && *value != Value::Bool(false) && *value != Value::from("");
    let name = match name {
        "x-kubernetes-preserve-unknown-fields" => "XPreserveUnknownFields",
        "x-kubernetes-validations" => "XValidations",
        name => name,
    };
    // `false` for properties beyond those that are named is something to say, too.
    let is_set = is_set || (name == "additionalProperties" && !value.is_null());
    !is_set || ROOT_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name))
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
fn value(schema: &Map, scope: Scope<'_>, field: &str, errors: &mut ErrorList) {
    if scope.depth > DEPTH_MAX {
        return;
    }
    unsupported(schema, scope, field, errors);
    of_type(schema, scope.place, field, errors);
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Some(why) = pattern_fault(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(invalid(format!("{field}.pattern"), pattern, &why));
    }
    of_list(schema, field, errors);
    of_map(schema, field, errors);
    of_resource(schema, scope, field, errors);
    let is_resource = scope.place == Place::Root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, member) in properties.into_iter().flat_map(Map::iter) {
        let Some(member) = member.as_object() else { continue };
        let is_meta = is_resource && METADATA.contains(&name.as_str());
        let reason = format!("in top-level {name}");
        let mut inner = scope.inner(Place::Field);
        inner.in_meta |= is_meta;
        if is_meta && scope.place == Place::Root {
            inner.no_default = Some(&reason);
        }
        value(member, inner, &format!("{field}.properties[{name}]"), errors);
    }
    if let Some(values) = schema.get("additionalProperties") {
        of_additional(schema, values, scope, &format!("{field}.additionalProperties"), errors);
    }
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        value(items, scope.inner(Place::Item), &format!("{field}.items"), errors);
    }
    further(schema, field, flag(schema, "x-kubernetes-int-or-string"), scope.depth, errors);
}

fn of_additional(
    schema: &Map,
    values: &Value,
    scope: Scope<'_>,
    field: &str,
    errors: &mut ErrorList,
) {
    let has_properties = schema.get("properties").is_some_and(|properties| !properties.is_empty());
    if has_properties && *values != Value::Bool(true) {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(forbidden(field.to_owned(), why));
    }
    if scope.place == Place::Root {
        errors.push(forbidden(field.to_owned(), "must not be used at the root"));
    }
    if flag(schema, "x-kubernetes-embedded-resource") {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(forbidden(field.to_owned(), why));
    }
    if let Some(values) = values.as_object() {
        let mut inner = scope.inner(Place::Field);
        if scope.in_meta {
            inner.no_default = Some("inside additionalProperties applying to object metadata");
        }
        value(values, inner, field, errors);
    }
}

/// What JSON schemas may say, and these may not.
fn unsupported(schema: &Map, scope: Scope<'_>, field: &str, errors: &mut ErrorList) {
    let is_set = |name: &str| schema.get(name).is_some_and(|value| !value.is_empty());
    for name in UNSUPPORTED {
        if is_set(name) || (name == "additionalItems" && schema.get(name).is_some()) {
            errors.push(forbidden(format!("{field}.{name}"), &format!("{name} is not supported")));
        }
    }
    if flag(schema, "uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(forbidden(format!("{field}.uniqueItems"), why));
    }
    if let (Some(reason), true) =
        (scope.no_default, schema.get("default").is_some_and(|default| !default.is_null()))
    {
        errors.push(forbidden(format!("{field}.default"), &format!("must not be set {reason}")));
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(invalid(format!("{field}.{preserve}"), false, "must be true or undefined"));
    }
    let embedded = "x-kubernetes-embedded-resource";
    if scope.in_meta && flag(schema, embedded) {
        let why = "must not be used inside of resource meta";
        errors.push(forbidden(format!("{field}.{embedded}"), why));
    }
    if flag(schema, "x-kubernetes-int-or-string") {
        let why = "must be false if x-kubernetes-int-or-string is true";
        for name in [preserve, embedded] {
            if flag(schema, name) {
                errors.push(invalid(format!("{field}.{name}"), true, why));
            }
        }
    }
}

/// What a schema says of the type and metadata of a resource.
fn of_resource(schema: &Map, scope: Scope<'_>, field: &str, errors: &mut ErrorList) {
    let is_embedded = flag(schema, "x-kubernetes-embedded-resource");
    if scope.place != Place::Root && !is_embedded {
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    if is_embedded {
        let (kind, why) =
            (text(schema, "type"), "must be object if x-kubernetes-embedded-resource is true");
        match kind {
            "object" => {}
            "" => errors.push(required(format!("{field}.type"), why)),
            kind => errors.push(invalid(format!("{field}.type"), kind, why)),
        }
        let is_open = flag(schema, "x-kubernetes-preserve-unknown-fields");
        if !is_open && properties.is_none_or(Map::is_empty) {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                       x-kubernetes-preserve-unknown-fields";
            errors.push(required(format!("{field}.properties"), why));
        }
    }
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let member = properties.and_then(|properties| properties.get(name)?.as_object());
        let Some(member) = member else { continue };
        let field = format!("{field}.properties[{name}]");
        if text(member, "type") != wanted {
            let why = format!("must be {wanted}");
            errors.push(invalid(format!("{field}.type"), text(member, "type"), &why));
        }
        if name == "metadata" && scope.place == Place::Root && says_more_of_metadata(member) {
            let why = "must not specify anything other than name and generateName, but metadata is \
                       implicitly specified";
            errors.push(forbidden(field, why));
        }
    }
}

fn says_more_of_metadata(schema: &Map) -> bool {
    schema.iter().any(|(name, value)| match name.as_str() {
        "type" | "default" => false,
        "properties" => value.as_object().is_some_and(|properties| {
            properties.iter().any(|(name, _)| name != "name" && name != "generateName")
        }),
        _ => !value.is_empty() && *value != Value::Bool(false),
    })
}

/// The faults of all defaults.
fn defaults(schema: &Map, field: &str, depth: usize, errors: &mut ErrorList) {
    if depth > DEPTH_MAX {
        return;
    }
    of_default(schema, field, errors);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, member) in properties.into_iter().flat_map(Map::iter) {
        if let Some(member) = member.as_object() {
            defaults(member, &format!("{field}.properties[{name}]"), depth + 1, errors);
        }
    }
    for name in ["additionalProperties", "items"] {
        if let Some(inner) = schema.get(name).and_then(Value::as_object) {
            defaults(inner, &format!("{field}.{name}"), depth + 1, errors);
        }
    }
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
            if kind == "array" && schema.get("items").is_none() {
                errors.push(required(format!("{field}.items"), "must be specified"));
            }
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
    let why_map = "must be map if x-kubernetes-list-map-keys is non-empty";
    let Some(list) = list else {
        if !keys.is_empty() {
            errors.push(required(format!("{field}.{at_list}"), why_map));
        }
        return;
    };
    let kind = text(schema, "type");
    if kind != "array" {
        let why = "must be array if x-kubernetes-list-type is specified";
        errors.push(match kind {
            "" => required(format!("{field}.type"), why),
            kind => invalid(format!("{field}.type"), kind, why),
        });
    } else if !["atomic", "set", "map"].contains(&list) {
        let error = FieldError::not_supported(&Path::ROOT, list, &["atomic", "set", "map"]);
        errors.push(at(&format!("{field}.{at_list}"), error));
    } else if !keys.is_empty() && list != "map" {
        errors.push(invalid(format!("{field}.{at_list}"), list, why_map));
    }
    if list == "map" && keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(required(format!("{field}.{at_keys}"), why));
    }
    let Some(items) = schema.get("items").and_then(Value::as_object) else {
        if list == "map" {
            let why = "must have a schema if x-kubernetes-list-type is map";
            errors.push(required(format!("{field}.items"), why));
        }
        return;
    };
    if matches!(list, "map" | "set") && flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(forbidden(format!("{field}.items.nullable"), &why));
    }
    match list {
        "set" => {
            let is_atomic = text(items, "x-kubernetes-map-type") == "atomic";
            if text(items, "type") == "object" && !is_atomic {
                let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
                let field = format!("{field}.items.x-kubernetes-map-type");
                errors.push(invalid(field, Value::Null, why));
            }
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
        if flag(member, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(forbidden(format!("{field}.nullable"), why));
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
    }
    if kind != "object" {
        let why = "must be object if x-kubernetes-map-type is specified";
        errors.push(match kind {
            "" => required(format!("{field}.type"), why),
            kind => invalid(format!("{field}.type"), kind, why),
        });
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
    of_list(schema, field, errors);
    of_map(schema, field, errors);
    if let Some(why) = schema.get("pattern").and_then(Value::as_str).and_then(pattern_fault) {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(invalid(format!("{field}.pattern"), text(schema, "pattern"), &why));
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
