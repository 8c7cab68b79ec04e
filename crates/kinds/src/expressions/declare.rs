//! The CEL types of structural schemas (apiserver `cel/common.SchemaDeclType`).

use keelson_cel::{DeclField, DeclType, ListKind, ObjectType, Shape, escape};
use keelson_meta::{Map, Str, Value};
use keelson_schema::structural::DEPTH_MAX;
use std::sync::Arc;

/// Bytes of a request, which bound the size of unbounded values.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// Bytes of a character at most; the sizes of strings count bytes.
const CHARACTER_BYTES_MAX: u64 = 4;

/// Characters of the longest name in `metadata`.
const NAME_CHARS_MAX: u64 = 253;

/// The types of schemas that have a type of CEL.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The name of the type of `self` in error messages. kube-apiserver appends the nanoseconds of its
/// clock, for each schema.
const SELF_TYPE: &str = "selfType1";

/// Declares the type of an object, with `kind` and the names in its metadata.
pub(super) fn root(schema: &Map) -> DeclType {
    let found = typed(schema, "self", 0).map(|typed| typed.decl_type);
    found.map_or(DeclType::new(Shape::Dyn), |found| resource("self", found))
}

/// Declares the type of `self` in the rules of a schema. Also returns the bytes of JSON of its
/// smallest value. `None` for a schema without a type.
pub(super) fn own(schema: &Map, is_root: bool) -> Option<(DeclType, u64)> {
    let Typed { decl_type, json_bytes_min } = typed(schema, SELF_TYPE, 0)?;
    let decl_type = if is_root { resource(SELF_TYPE, decl_type) } else { decl_type };
    Some((decl_type, json_bytes_min))
}

/// Returns whether a schema names a type, without a look at the schemas inside it.
pub(super) fn has_type(schema: &Map) -> bool {
    let word = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    TYPES.contains(&word) || is_int_or_string(schema)
}

/// Returns how often a value of at least `json_bytes_min` bytes of JSON fits in one request.
pub(super) fn count_in_request(json_bytes_min: u64) -> u64 {
    REQUEST_BYTES_MAX / (json_bytes_min + 1)
}

fn resource(name: &str, decl_type: DeclType) -> DeclType {
    match decl_type {
        DeclType { shape: Shape::Object(object), nullable, size_max } => {
            let fields = with_type_meta(name, object.fields().to_vec());
            let shape = Shape::Object(Arc::new(ObjectType::new(name, fields)));
            DeclType { shape, nullable, size_max }
        }
        other => other,
    }
}

/// Declares the type of a schema without references. `name` is its name in messages.
pub fn decl_type(schema: &Map, name: &str) -> Option<DeclType> {
    typed(schema, name, 0).map(|typed| typed.decl_type)
}

/// Returns the type of a property of an object.
pub(super) fn property(of: &DeclType, name: &str) -> Option<Arc<DeclType>> {
    let Shape::Object(object) = &of.shape else { return None };
    let field = object.fields().iter().find(|field| field.property == name);
    field.map(|field| field.decl_type.clone())
}

/// A type and the bytes of JSON of its smallest value.
struct Typed {
    decl_type: DeclType,
    json_bytes_min: u64,
}

fn field(name: &str, decl_type: DeclType) -> Option<DeclField> {
    let escaped = escape(name)?;
    Some(DeclField {
        name: escaped.into(),
        property: Str::new(name),
        decl_type: Arc::new(decl_type),
    })
}

/// Returns the field under its unescaped name, where that is a CEL keyword that selectors allow.
fn unescaped(field: &DeclField) -> Option<DeclField> {
    let is_word = field.name == format!("__{}__", field.property);
    let is_literal = matches!(field.property.as_str(), "true" | "false" | "null" | "in");
    (is_word && !is_literal).then(|| DeclField { name: field.property.clone(), ..field.clone() })
}

fn with_type_meta(path: &str, mut fields: Vec<DeclField>) -> Vec<DeclField> {
    fields.retain(|field| !matches!(&*field.property, "kind" | "apiVersion" | "metadata"));
    let text = |size: u64| DeclType::new(Shape::String).with_size_max(size);
    let name = || text(NAME_CHARS_MAX * CHARACTER_BYTES_MAX);
    let names = ["name", "generateName"].map(|property| field(property, name()));
    let names = ObjectType::new(format!("{path}.metadata"), names.into_iter().flatten().collect());
    let metadata = DeclType::new(Shape::Object(Arc::new(names)));
    let unbounded = || text(REQUEST_BYTES_MAX - 2);
    let more =
        [field("kind", unbounded()), field("apiVersion", unbounded()), field("metadata", metadata)];
    fields.extend(more.into_iter().flatten());
    fields
}

/// Declares the type of a schema. `path` distinguishes object types.
fn typed(schema: &Map, path: &str, depth: usize) -> Option<Typed> {
    if depth > DEPTH_MAX {
        return None;
    }
    let word = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    let size = |name: &str| schema.get(name).and_then(Value::as_int).map(|size| size.max(0) as u64);
    let child = |name: &str, step: &str| {
        typed(schema.get(name)?.as_object()?, &format!("{path}.{step}"), depth + 1)
    };
    let (shape, size_max, json_bytes_min) = match word("type") {
        _ if is_int_or_string(schema) => {
            let chars = size("maxLength").map(|chars| chars.saturating_mul(CHARACTER_BYTES_MAX));
            (Shape::IntOrString, chars.unwrap_or(REQUEST_BYTES_MAX - 2), 1)
        }
        "array" => {
            let items = child("items", "@idx")?;
            // The brackets, and a comma after each item.
            let count = (REQUEST_BYTES_MAX - 2) / (items.json_bytes_min + 1);
            let shape = Shape::List(Arc::new(items.decl_type), list_kind(schema));
            (shape, size("maxItems").unwrap_or(count), 2)
        }
        "object" if schema.get("additionalProperties").is_some_and(|s| s.as_object().is_some()) => {
            let values = child("additionalProperties", "@elem")?;
            // For each entry: an empty key in quotes, a colon, a comma, and one spare byte.
            let count = (REQUEST_BYTES_MAX - 2) / (values.json_bytes_min + 6);
            let shape = Shape::Map(Arc::new(values.decl_type));
            (shape, size("maxProperties").unwrap_or(count), 2)
        }
        "object" => {
            let (shape, json_bytes_min) = object(schema, path, depth);
            (shape, 0, json_bytes_min)
        }
        "boolean" => (Shape::Bool, 0, 4),
        "integer" => (Shape::Int, 0, 1),
        "number" => (Shape::Double, 0, 1),
        "string" => string(schema, word("format"), size("maxLength")),
        _ => return None,
    };
    let nullable = is(schema, "nullable");
    Some(Typed { decl_type: DeclType { shape, nullable, size_max }, json_bytes_min })
}

fn is_int_or_string(schema: &Map) -> bool {
    // Built-in kinds have a format but no type here.
    let format = schema.get("format").and_then(Value::as_str);
    is(schema, "x-kubernetes-int-or-string") || format == Some("int-or-string")
}

fn is(schema: &Map, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn list_kind(schema: &Map) -> ListKind {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .unwrap_or_default()
                .iter()
                .filter_map(Value::as_str);
            ListKind::Map(keys.map(Str::new).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// Returns the shape of an object, and its bytes with only the required properties.
fn object(schema: &Map, path: &str, depth: usize) -> (Shape, u64) {
    let required = schema.get("required").and_then(Value::as_array).unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut fields = vec![];
    let mut bytes = 2;
    for (name, property) in properties.into_iter().flat_map(Map::iter) {
        let Some(property) = property.as_object() else { continue };
        let Some(found) = typed(property, &format!("{path}.{name}"), depth + 1) else { continue };
        let is_required = required.iter().any(|known| known.as_str() == Some(name));
        if is_required && !property.contains_key("default") {
            bytes += name.len() as u64 + found.json_bytes_min + 4;
        }
        let field = field(name, found.decl_type);
        fields.extend(field.as_ref().and_then(unescaped));
        fields.extend(field);
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&true.into()) {
        fields = with_type_meta(path, fields);
    }
    (Shape::Object(Arc::new(ObjectType::new(path, fields))), bytes)
}

/// Returns the shape of a string, its largest size and the bytes of the smallest one, by format.
fn string(schema: &Map, format: &str, chars_max: Option<u64>) -> (Shape, u64, u64) {
    let unbounded = REQUEST_BYTES_MAX - 2;
    match format {
        "byte" => (Shape::Bytes, chars_max.unwrap_or(unbounded), 2),
        "duration" => (Shape::Duration, 32, 3),
        "date" => (Shape::Date, 12, 12),
        "date-time" => (Shape::Timestamp, 32, 21),
        _ => {
            let words = schema.get("enum").and_then(Value::as_array).unwrap_or_default();
            let longest = words.iter().filter_map(Value::as_str).map(str::len).max();
            let bytes_max = match (chars_max, longest) {
                (Some(chars), _) => chars.saturating_mul(CHARACTER_BYTES_MAX),
                (None, Some(longest)) => longest as u64,
                (None, None) => unbounded,
            };
            (Shape::String, bytes_max, 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_cel::{Environment, Version};
    use keelson_meta::value;

    /// Returns by what factor the estimate of a rule exceeds the limit of one rule, in tenths.
    fn tenths(schema: Value, rule: &str) -> u64 {
        let decl_type = Arc::new(root(schema.as_object().unwrap()));
        let env =
            Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", decl_type);
        (env.compile(rule).unwrap().cost.max + 500_000) / 1_000_000
    }

    /// The expected factors are those in the errors of kube-apiserver 1.36.
    #[test]
    fn default_sizes_are_those_of_kube_apiserver() {
        let ones = |count: usize| vec!["1"; count].join(", ");
        let check = |item: Value, of_list: (usize, u64), of_map: u64| {
            let list = value!({"type": "array", "items": (item.clone())});
            let rule = |count| format!("self.all(x, [{}].all(y, y > 0))", ones(count));
            let found = tenths(list, &rule(of_list.0));
            assert!(found.abs_diff(of_list.1) <= 1, "{item:?}: {found}");
            let map = value!({"type": "object", "additionalProperties": (item.clone())});
            let found = tenths(map, &rule(320));
            assert!(found.abs_diff(of_map) <= 1, "{item:?}: {found}");
        };
        check(value!({"type": "boolean"}), (160, 512), 508);
        check(value!({"type": "integer"}), (80, 651), 725);
        check(value!({"type": "string"}), (160, 854), 635);
        check(value!({"type": "string", "format": "date"}), (320, 391), 282);
        check(value!({"type": "string", "format": "date-time"}), (320, 231), 188);
        check(value!({"type": "string", "format": "duration"}), (160, 640), 564);
        check(value!({"x-kubernetes-int-or-string": true}), (80, 651), 725);
        check(value!({"type": "object"}), (160, 854), 635);
        check(
            value!({"type": "object", "required": ["abc"], "properties": {
                "abc": {"type": "integer"}, "d": {"type": "integer"}}}),
            (320, 462),
            317,
        );
        check(
            value!({"type": "object", "required": ["abc"], "properties": {
                "abc": {"type": "integer", "default": 5}}}),
            (160, 854),
            635,
        );
        check(value!({"type": "array", "items": {"type": "integer"}}), (160, 854), 635);
    }

    #[test]
    fn text_is_measured_in_bytes() {
        let check = |item: Value, expected: u64| {
            let long = "a".repeat(400);
            let schema = value!({"type": "array", "maxItems": 10_000_000, "items": (item.clone())});
            let found = tenths(schema, &format!("self.all(x, x == '{long}')"));
            assert_eq!(found, expected, "{item:?}");
        };
        check(value!({"type": "string", "maxLength": 100}), 440);
        check(value!({"type": "string", "enum": ["abcdef", "b"]}), 50);
        check(value!({"type": "string", "maxLength": 7, "enum": ["abcdef", "b"]}), 70);
        check(value!({"x-kubernetes-int-or-string": true}), 440);
        check(value!({"x-kubernetes-int-or-string": true, "maxLength": 10}), 80);
    }

    #[test]
    fn objects_at_two_paths_have_two_types() {
        let part = value!({"type": "object", "properties": {"x": {"type": "integer"}}});
        let schema =
            value!({"type": "object", "properties": {"a": (part.clone()), "b": (part.clone())}});
        let decl_type = Arc::new(root(schema.as_object().unwrap()));
        let env =
            Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", decl_type);
        let error = env.compile("self.a == self.b").unwrap_err().to_string();
        assert!(error.contains("applied to '(self.a, self.b)'"), "{error}");
        assert!(env.compile("self.a == self.a && self.a.x == self.b.x").is_ok());
    }
}
