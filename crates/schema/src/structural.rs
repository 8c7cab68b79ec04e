//! Structural schemas: the types of custom resources, as CustomResourceDefinitions write them in
//! `openAPIV3Schema` (apiextensions `pkg/apiserver/schema`).
//!
//! One tree ([`Node`]) is read from the document. The engine's [`Schema`](crate::Schema) is made of it, by
//! which objects are decoded, pruned, given defaults, merged and applied; and it validates objects
//! ([`Structural::validate`]) in the words of upstream.

mod defaults;
mod formats;
mod types;
mod validate;

pub use defaults::resource_fault;
pub use validate::key_of;

use keelson_meta::{Map, Str, Value, go_regex};
use regex::Regex;
use std::sync::LazyLock;

/// How deep schemas may nest.
pub const DEPTH_MAX: usize = 200;

/// The schema of one version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    root: Node,
}

/// A schema that is read when it is first asked for.
pub type LazyStructural = LazyLock<Structural, Box<dyn FnOnce() -> Structural + Send + Sync>>;

/// The JSON type that a schema asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// One schema of the tree.
#[derive(Clone, Debug, Default)]
struct Node {
    kind: Option<Type>,
    nullable: bool,
    /// `x-kubernetes-int-or-string`.
    int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    preserve: bool,
    /// `x-kubernetes-embedded-resource`.
    embedded: bool,
    /// Sorted by name.
    properties: Vec<(Str, Node)>,
    /// Schema of the members that `properties` does not name.
    additional: Additional,
    items: Option<Box<Node>>,
    default: Option<Box<Value>>,
    list: ListType,
    /// `x-kubernetes-map-type: atomic`.
    atomic: bool,
    /// What few schemas have.
    checks: Option<Box<Checks>>,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default)]
enum Additional {
    /// Not given, or `false`.
    #[default]
    None,
    /// `true`.
    Any,
    /// A schema.
    Of(Box<Node>),
}

/// `x-kubernetes-list-type` with its keys.
#[derive(Clone, Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Box<[Str]>),
}

/// What values are asked beside their type.
#[derive(Clone, Debug, Default)]
struct Checks {
    required: Vec<Str>,
    enumeration: Vec<Value>,
    /// With whether the bound itself is outside.
    minimum: Option<(Value, bool)>,
    maximum: Option<(Value, bool)>,
    multiple_of: Option<Value>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    pattern: Option<(Str, Regex)>,
    format: Option<Str>,
    /// Whether the format is known and one of the type.
    format_counts: bool,
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Node>,
}

impl Structural {
    /// Reads the `openAPIV3Schema` of a version; absent is an object of which nothing is said.
    pub fn read(schema: Option<&Value>) -> Structural {
        let root = match schema.and_then(Value::as_object) {
            Some(schema) => Node::read(schema, 0),
            None => Node { preserve: true, kind: Some(Type::Object), ..Node::default() },
        };
        Structural { root }
    }

    /// The same schema as objects are validated by it: only formats that are known, and of the type that they stand
    /// beside, count. For defaults all do, since a definition is checked before upstream takes them out.
    #[must_use]
    pub fn of_objects(mut self) -> Structural {
        self.root.drop_formats();
        self
    }

    /// The same schema in which members that it does not know are kept (`spec.preserveUnknownFields`).
    #[must_use]
    pub fn preserving(mut self) -> Structural {
        self.root.preserve = true;
        self
    }
}

impl Node {
    /// See [`Structural::of_objects`].
    fn drop_formats(&mut self) {
        self.properties.iter_mut().for_each(|(_, node)| node.drop_formats());
        self.items.iter_mut().for_each(|node| node.drop_formats());
        if let Additional::Of(node) = &mut self.additional {
            node.drop_formats();
        }
        let Some(checks) = &mut self.checks else { return };
        if !checks.format_counts {
            checks.format = None;
        }
        let Checks { all_of, any_of, one_of, not, .. } = &mut **checks;
        let nodes = all_of.iter_mut().chain(any_of).chain(one_of).chain(not);
        nodes.for_each(Node::drop_formats);
    }

    fn read(schema: &Map, depth: usize) -> Node {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        if depth > DEPTH_MAX {
            return Node { preserve: true, ..Node::default() };
        }
        let child = |value: &Value| value.as_object().map(|schema| Node::read(schema, depth + 1));
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flat_map(Map::iter);
        let mut properties: Vec<(Str, Node)> =
            properties.filter_map(|(name, schema)| Some((name.clone(), child(schema)?))).collect();
        properties.sort_by(|(one, _), (other, _)| one.cmp(other));
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(value) => child(value).map_or(Additional::None, |of| Additional::Of(Box::new(of))),
            None => Additional::None,
        };
        let keys = strings(schema, "x-kubernetes-list-map-keys");
        let checks = Checks::read(schema, depth);
        Node {
            kind: match text("type") {
                "object" => Some(Type::Object),
                "array" => Some(Type::Array),
                "string" => Some(Type::String),
                "integer" => Some(Type::Integer),
                "number" => Some(Type::Number),
                "boolean" => Some(Type::Boolean),
                _ => None,
            },
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional,
            items: schema.get("items").and_then(child).map(Box::new),
            default: schema.get("default").filter(|v| !v.is_null()).cloned().map(Box::new),
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(keys.into()),
                _ => ListType::Atomic,
            },
            atomic: text("x-kubernetes-map-type") == "atomic",
            checks: checks.map(Box::new),
        }
    }

    fn property(&self, name: &str) -> Option<&Node> {
        let found = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name));
        found.ok().map(|place| &self.properties[place].1)
    }
}

/// The members of a schema that make [`Checks`].
const CHECKED: [&str; 17] = [
    "required",
    "enum",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "format",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

impl Checks {
    fn read(schema: &Map, depth: usize) -> Option<Checks> {
        if !CHECKED.iter().any(|name| schema.get(name).is_some()) {
            return None;
        }
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        let count = |name: &str| {
            let number = schema.get(name)?;
            number.as_int().map(|number| u64::try_from(number).unwrap_or(0))
        };
        let bound = |name: &str, exclusive: &str| {
            let number = schema.get(name).filter(|value| !value.is_null())?;
            Some((number.clone(), flag(exclusive)))
        };
        let schemas = |name: &str| {
            let list = schema.get(name).and_then(Value::as_array).unwrap_or_default();
            let list = list.iter().filter_map(Value::as_object);
            list.map(|schema| Node::read(schema, depth + 1)).collect()
        };
        let text = |name: &str| match schema.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let pattern = text("pattern").and_then(|text| Some((text.clone(), regex(&text)?)));
        let list = schema.get("enum").and_then(Value::as_array).unwrap_or_default();
        Some(Checks {
            required: strings(schema, "required"),
            enumeration: list.to_vec(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: schema.get("multipleOf").filter(|value| !value.is_null()).cloned(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            pattern,
            format_counts: text("format").is_some_and(|format| counts(schema, &format)),
            format: text("format"),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: schema.get("not").and_then(Value::as_object).map(|s| Node::read(s, depth + 1)),
        })
    }
}

/// A pattern as Go's `regexp` reads it: `\d` and the like are of ASCII only.
pub(crate) fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(&go_regex::translate(pattern).ok()?.text).ok()
}

/// Whether a format counts for members of objects: that of another type, or one that is not known, does not.
fn counts(schema: &Map, format: &str) -> bool {
    let is_of_text = formats::has(format, "").is_some();
    match schema.get("type").and_then(Value::as_str) {
        Some("string") | None => is_of_text,
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) => false,
    }
}

/// Whether a format means anything.
pub fn is_format(format: &str) -> bool {
    formats::has(format, "").is_some()
}

/// Whether a text is a pattern that can be used.
pub fn is_pattern(pattern: &str) -> bool {
    regex(pattern).is_some()
}

fn strings(schema: &Map, name: &str) -> Vec<Str> {
    let list = schema.get(name).and_then(Value::as_array).unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    list.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn classes_of_patterns_are_of_ascii_only() {
        let check = |pattern: &str, text: &str, expected: bool| {
            let found = regex(pattern).map(|regex| regex.is_match(text));
            assert_eq!(found, Some(expected), "{pattern} on {text}");
        };
        check(r"^\d$", "5", true);
        check(r"^\d$", "\u{665}", false);
        check(r"^\w+$", "az_9", true);
        check(r"^\w$", "\u{e9}", false);
        check(r"^\W$", "\u{e9}", true);
        check(r"^\s$", "\t", true);
        check(r"^\s$", "\u{a0}", false);
        check(r"^[\d-]$", "\u{665}", false);
        check("(?i)^abc$", "aBC", true);
        check("^[[:alpha:]]$", "\u{e9}", false);
        assert!(regex(r"a\Z").is_none() && regex("(?=a)").is_none());
    }

    /// Faults as kube-apiserver 1.36 tells them.
    #[test]
    fn formats_of_other_types_and_unknown_ones_do_not_count() {
        let check = |schema: Value, given: Value, expected: &[&str]| {
            let schema = value!({"type": "object", "properties": {"f": (schema)}});
            let object: Map = [(Str::from("f"), given)].into_iter().collect();
            let faults = Structural::read(Some(&schema)).of_objects().validate(&object, None);
            let messages: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
            let expected: Vec<String> = expected.iter().map(|why| format!("f: {why}")).collect();
            assert_eq!(messages, expected, "{schema:?}");
        };
        let typed = |kind: &str, format: &str| value!({"type": (kind), "format": (format)});
        let of = |kind: &str, given: &str| {
            format!("Invalid value: \"{given}\": f in body must be of type {kind}: \"{given}\"")
        };
        check(typed("integer", "date-time"), "aaa".into(), &[&of("integer", "string")]);
        check(typed("integer", "double"), true.into(), &[&of("integer", "boolean")]);
        check(typed("integer", "int32"), true.into(), &[&of("int32", "")]);
        check(typed("number", "int32"), value!({}), &[&of("number", "object")]);
        check(typed("number", "double"), value!({}), &[&of("double", "")]);
        check(typed("boolean", "int64"), "".into(), &[&of("boolean", "string")]);
        check(typed("object", "date-time"), value!([]), &[&of("object", "array")]);
        check(typed("string", "int32"), 1.into(), &[&of("string", "integer")]);
        check(typed("string", "made-up"), value!(["a"]), &[&of("string", "array")]);
        check(typed("string", "date-time"), 1.into(), &[&of("date-time", "int64")]);
        let untyped = |format: &str| value!({"x-kubernetes-preserve-unknown-fields": true, "format": (format)});
        check(untyped("int32"), true.into(), &[]);
        check(untyped("date-time"), true.into(), &[&of("date-time", "")]);
        let either =
            |format: &str| value!({"x-kubernetes-int-or-string": true, "format": (format)});
        check(either("int32"), 1.5.into(), &[&of("integer,string", "number")]);
        check(either("date-time"), value!([]), &[&of("integer,string", "array")]);
        check(either("date-time"), "aaa".into(), &[&of("date-time", "aaa")]);
    }

    /// As kube-apiserver 1.36 tells it: doubles are looked for only among objects.
    #[test]
    fn items_of_a_map_that_are_no_objects_are_told_of() {
        let schema = value!({"type": "object", "properties": {"f": {"type": "array",
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}});
        let object: Map =
            [(Str::from("f"), value!([1.5, 1.5, {"k": "a"}, {"k": "a"}]))].into_iter().collect();
        let faults = Structural::read(Some(&schema)).validate(&object, None);
        let messages: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
        let typed = |at: usize| {
            format!(
                "f[{at}]: Invalid value: \"number\": f[{at}] in body must be of type object: \"number\""
            )
        };
        let other = "f[0]: Invalid value: 1.5: must be an object for an array of list-type map";
        assert_eq!(messages, [typed(0), typed(1), other.to_owned()]);
    }
}
