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
use std::sync::{LazyLock, OnceLock};

/// How deep schemas may nest.
pub const DEPTH_MAX: usize = 200;

/// The schema of one version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    root: Node,
    /// Whether a schema below the root is of an embedded resource.
    has_resources: bool,
    /// Whether a list is a set or a map.
    has_keyed_lists: bool,
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
    /// Not given.
    #[default]
    None,
    /// `false`: upstream does not prune such members, and refuses them.
    Forbidden,
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
    required: Box<[Str]>,
    enumeration: Box<[Value]>,
    numbers: Option<Box<Numbers>>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    pattern: Option<Box<Pattern>>,
    format: Option<Str>,
    /// Whether the format is known and one of the type.
    format_counts: bool,
    /// Whether a text has a format, known or not, that server-side apply leaves to the validation.
    is_formatted: bool,
    combined: Option<Box<Combined>>,
}

/// What numbers are asked.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// With whether the bound itself is outside.
    minimum: Option<(Value, bool)>,
    maximum: Option<(Value, bool)>,
    multiple_of: Option<Value>,
}

/// Schemas that are asked together.
#[derive(Clone, Debug, Default)]
struct Combined {
    all_of: Box<[Node]>,
    any_of: Box<[Node]>,
    one_of: Box<[Node]>,
    not: Option<Node>,
}

/// A pattern. It is compiled when a text is first compared with it: compiled, it takes some 20 kB, and of most
/// definitions most patterns are never asked.
#[derive(Clone, Debug)]
struct Pattern {
    text: Str,
    regex: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Whether a text matches. Every text does where the pattern cannot be used.
    fn is_match(&self, text: &str) -> bool {
        let regex = self.regex.get_or_init(|| regex(&self.text));
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

impl Structural {
    /// Reads the `openAPIV3Schema` of a version; absent is an object of which nothing is said.
    pub fn read(schema: Option<&Value>) -> Structural {
        let root = match schema.and_then(Value::as_object) {
            Some(schema) => Node::read(schema, 0),
            None => Node { preserve: true, kind: Some(Type::Object), ..Node::default() },
        };
        let has_resources = root.is_any_below(&|node| node.embedded);
        let has_keyed_lists = root.is_any_below(&|node| !matches!(node.list, ListType::Atomic));
        Structural { root, has_resources, has_keyed_lists }
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
    /// Whether one of the schemas of members and items, at any depth, is such.
    fn is_any_below(&self, is: &impl Fn(&Node) -> bool) -> bool {
        let additional = match &self.additional {
            Additional::Of(node) => Some(&**node),
            _ => None,
        };
        let properties = self.properties.iter().map(|(_, node)| node);
        let mut below = properties.chain(self.items.as_deref()).chain(additional);
        below.any(|node| is(node) || node.is_any_below(is))
    }

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
        let Some(combined) = &mut checks.combined else { return };
        let Combined { all_of, any_of, one_of, not } = &mut **combined;
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
        properties.shrink_to_fit();
        properties.sort_by(|(one, _), (other, _)| one.cmp(other));
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => Additional::Forbidden,
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
        let is_any = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
        let numbers = is_any(&["minimum", "maximum", "multipleOf"]).then(|| {
            Box::new(Numbers {
                minimum: bound("minimum", "exclusiveMinimum"),
                maximum: bound("maximum", "exclusiveMaximum"),
                multiple_of: schema.get("multipleOf").filter(|value| !value.is_null()).cloned(),
            })
        });
        let combined = is_any(&["allOf", "anyOf", "oneOf", "not"]).then(|| {
            let not = schema.get("not").and_then(Value::as_object);
            Box::new(Combined {
                all_of: schemas("allOf"),
                any_of: schemas("anyOf"),
                one_of: schemas("oneOf"),
                not: not.map(|schema| Node::read(schema, depth + 1)),
            })
        });
        let list = schema.get("enum").and_then(Value::as_array).unwrap_or_default();
        Some(Checks {
            required: strings(schema, "required").into(),
            enumeration: list.into(),
            numbers,
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            pattern: text("pattern").map(|text| Box::new(Pattern { text, regex: OnceLock::new() })),
            format_counts: text("format").is_some_and(|format| counts(schema, &format)),
            is_formatted: text("format").is_some_and(|format| !matches!(&*format, "" | "byte")),
            format: text("format"),
            combined,
        })
    }
}

/// A pattern as Go's `regexp` reads it: `\d` and the like are of ASCII only.
pub(crate) fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(&go_regex::translate(pattern).ok()?.text).ok()
}

/// Whether a format counts for members of objects: that of another type, or one that is not known, does not.
fn counts(schema: &Map, format: &str) -> bool {
    match schema.get("type").and_then(Value::as_str) {
        Some("string") | None => formats::is_known(format),
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) => false,
    }
}

/// Whether a format means anything.
pub fn is_format(format: &str) -> bool {
    formats::is_known(format)
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
#[path = "structural/tests.rs"]
mod tests;
