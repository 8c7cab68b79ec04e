//! Structural schemas: the types of custom resources, read from `openAPIV3Schema` of
//! CustomResourceDefinitions (apiextensions `pkg/apiserver/schema`).
//!
//! The document is read into one tree of [`Node`]s. From the tree, [`Structural::schema`] makes the
//! [`Schema`](crate::Schema) by which objects are decoded, pruned, defaulted, merged and applied.
//! [`Structural::validate`] validates objects with upstream's error messages.

mod correlation;
mod defaults;
mod formats;
mod types;
mod validate;

pub use correlation::SchemaPart;
pub use defaults::embedded_resource_error;
pub use validate::list_map_key;

use keelson_meta::{Map, Str, Value, go_regex};
use regex::{Regex, RegexBuilder};
use std::sync::{LazyLock, OnceLock};

/// Maximum nesting of schemas.
pub const DEPTH_MAX: usize = 200;

/// The schema of one version of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    root: Node,
    /// Whether a schema below the root is an embedded resource.
    has_embedded_resources: bool,
    /// Whether a list has list type `set` or `map`.
    has_keyed_lists: bool,
}

/// A structural schema that is read on first use.
pub type LazyStructural = LazyLock<Structural, Box<dyn FnOnce() -> Structural + Send + Sync>>;

/// The `type` of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// A schema in the tree.
#[derive(Clone, Debug, Default)]
struct Node {
    kind: Option<Type>,
    nullable: bool,
    /// `x-kubernetes-int-or-string`.
    int_or_string: bool,
    /// `x-kubernetes-preserve_unknown-unknown-fields`.
    preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    embedded: bool,
    /// Sorted by name.
    properties: Vec<(Str, Node)>,
    /// Schema of the members that `properties` does not list.
    additional: AdditionalProperties,
    items: Option<Box<Node>>,
    default: Option<Box<Value>>,
    list: ListType,
    /// `x-kubernetes-map-type: atomic`.
    atomic: bool,
    /// Constraints that only few schemas have.
    validation: Option<Box<ValueValidation>>,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default)]
enum AdditionalProperties {
    /// Not specified.
    #[default]
    None,
    /// `false`: upstream does not prune such members; validation rejects them.
    Forbidden,
    /// `true`.
    Any,
    /// A schema.
    Schema(Box<Node>),
}

/// `x-kubernetes-list-type` with its keys.
#[derive(Clone, Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Box<[Str]>),
}

/// Constraints on values besides their type (upstream's `ValueValidation`).
#[derive(Clone, Debug, Default)]
struct ValueValidation {
    required: Box<[Str]>,
    enumeration: Box<[Value]>,
    numbers: Option<Box<NumberValidation>>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    pattern: Option<Box<Pattern>>,
    format: Option<Str>,
    /// Whether the format is known and applies to the type.
    format_applies: bool,
    /// Whether a string has a format, known or not, that server-side apply leaves to validation.
    is_formatted: bool,
    combinators: Option<Box<Combinators>>,
}

/// Constraints on numbers.
#[derive(Clone, Debug, Default)]
struct NumberValidation {
    /// The bound, and whether it is exclusive.
    minimum: Option<(Value, bool)>,
    maximum: Option<(Value, bool)>,
    multiple_of: Option<Value>,
}

/// `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Clone, Debug, Default)]
struct Combinators {
    all_of: Box<[Node]>,
    any_of: Box<[Node]>,
    one_of: Box<[Node]>,
    not: Option<Node>,
}

/// A pattern, compiled on first use. A compiled pattern takes about 20 kB, and most patterns of
/// most definitions are never used.
#[derive(Clone, Debug)]
struct Pattern {
    text: Str,
    regex: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Whether a text matches. An invalid pattern matches every text.
    fn is_match(&self, text: &str) -> bool {
        let regex = self.regex.get_or_init(|| regex(&self.text));
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

impl Structural {
    /// Reads the `openAPIV3Schema` of a version. Without a schema, objects may have any content.
    pub fn read(schema: Option<&Value>) -> Structural {
        let root = match schema.and_then(Value::as_object) {
            Some(schema) => Node::read(schema, 0),
            None => Node { preserve_unknown: true, kind: Some(Type::Object), ..Node::default() },
        };
        let has_embedded_resources = root.is_any_below(&|node| node.embedded);
        let has_keyed_lists = root.is_any_below(&|node| !matches!(node.list, ListType::Atomic));
        Structural { root, has_embedded_resources, has_keyed_lists }
    }

    /// Returns the schema for the validation of objects: formats that are unknown or belong to
    /// another type are ignored. The validation of defaults uses all formats, because upstream
    /// checks definitions before it drops such formats.
    #[must_use]
    pub fn for_objects(mut self) -> Structural {
        self.root.drop_formats();
        self
    }

    /// Returns the schema with unknown fields preserved (`spec.preserveUnknownFields`).
    #[must_use]
    pub fn preserving_unknown(mut self) -> Structural {
        self.root.preserve_unknown = true;
        self
    }
}

impl Node {
    /// Returns what a null item or value of this schema becomes.
    fn default_of_null(&self) -> Option<Box<Value>> {
        self.default.clone().filter(|_| !self.nullable)
    }

    /// Whether a schema of members or items, at any depth, matches.
    fn is_any_below(&self, is: &impl Fn(&Node) -> bool) -> bool {
        let additional = match &self.additional {
            AdditionalProperties::Schema(node) => Some(&**node),
            _ => None,
        };
        let properties = self.properties.iter().map(|(_, node)| node);
        let mut below = properties.chain(self.items.as_deref()).chain(additional);
        below.any(|node| is(node) || node.is_any_below(is))
    }

    /// See [`Structural::for_objects`].
    fn drop_formats(&mut self) {
        self.properties.iter_mut().for_each(|(_, node)| node.drop_formats());
        self.items.iter_mut().for_each(|node| node.drop_formats());
        if let AdditionalProperties::Schema(node) = &mut self.additional {
            node.drop_formats();
        }
        let Some(validation) = &mut self.validation else { return };
        if !validation.format_applies {
            validation.format = None;
        }
        let Some(combinators) = &mut validation.combinators else { return };
        let Combinators { all_of, any_of, one_of, not } = &mut **combinators;
        let nodes = all_of.iter_mut().chain(any_of).chain(one_of).chain(not);
        nodes.for_each(Node::drop_formats);
    }

    fn read(schema: &Map, depth: usize) -> Node {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        if depth > DEPTH_MAX {
            return Node { preserve_unknown: true, ..Node::default() };
        }
        let child = |value: &Value| value.as_object().map(|schema| Node::read(schema, depth + 1));
        let properties =
            schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter);
        let mut properties: Vec<(Str, Node)> =
            properties.filter_map(|(name, schema)| Some((name.clone(), child(schema)?))).collect();
        properties.shrink_to_fit();
        properties.sort_by(|(one, _), (other, _)| one.cmp(other));
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => AdditionalProperties::Any,
            Some(Value::Bool(false)) => AdditionalProperties::Forbidden,
            Some(value) => child(value).map_or(AdditionalProperties::None, |of| {
                AdditionalProperties::Schema(Box::new(of))
            }),
            None => AdditionalProperties::None,
        };
        let keys = strings(schema, "x-kubernetes-list-map-keys");
        let validation = ValueValidation::read(schema, depth);
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
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
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
            validation: validation.map(Box::new),
        }
    }

    fn property(&self, name: &str) -> Option<&Node> {
        let found = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name));
        found.ok().map(|place| &self.properties[place].1)
    }
}

/// The schema keywords of [`ValueValidation`].
const VALIDATION_KEYWORDS: [&str; 17] = [
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

impl ValueValidation {
    fn read(schema: &Map, depth: usize) -> Option<ValueValidation> {
        if !VALIDATION_KEYWORDS.iter().any(|name| schema.get(name).is_some()) {
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
            let list = schema
                .get(name)
                .and_then(Value::as_array)
                .unwrap_or_default()
                .iter()
                .filter_map(Value::as_object);
            list.map(|schema| Node::read(schema, depth + 1)).collect()
        };
        let text = |name: &str| match schema.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let is_any = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
        let numbers = is_any(&["minimum", "maximum", "multipleOf"]).then(|| {
            Box::new(NumberValidation {
                minimum: bound("minimum", "exclusiveMinimum"),
                maximum: bound("maximum", "exclusiveMaximum"),
                multiple_of: schema.get("multipleOf").filter(|value| !value.is_null()).cloned(),
            })
        });
        let combinators = is_any(&["allOf", "anyOf", "oneOf", "not"]).then(|| {
            let not = schema.get("not").and_then(Value::as_object);
            Box::new(Combinators {
                all_of: schemas("allOf"),
                any_of: schemas("anyOf"),
                one_of: schemas("oneOf"),
                not: not.map(|schema| Node::read(schema, depth + 1)),
            })
        });
        let list = schema.get("enum").and_then(Value::as_array).unwrap_or_default();
        Some(ValueValidation {
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
            format_applies: text("format").is_some_and(|format| format_applies(schema, &format)),
            is_formatted: text("format").is_some_and(|format| !matches!(&*format, "" | "byte")),
            format: text("format"),
            combinators,
        })
    }
}

/// Maximum size of a compiled pattern. It fits every pattern of a few repeated classes that Go
/// accepts.
const PATTERN_BYTES_MAX: usize = 64 << 20;

/// Maximum depth of a pattern, above that of any that Go accepts.
const PATTERN_DEPTH_MAX: u32 = 3_200;

/// Compiles a pattern with its meaning in Go's `regexp`: `\d` and the like match only ASCII.
pub(crate) fn regex(pattern: &str) -> Option<Regex> {
    let translated = go_regex::translate(pattern).ok()?;
    RegexBuilder::new(&translated.text)
        .size_limit(PATTERN_BYTES_MAX)
        .nest_limit(PATTERN_DEPTH_MAX)
        .build()
        .ok()
}

/// Whether a format applies to the type of its schema. Unknown formats and those of other types do
/// not.
fn format_applies(schema: &Map, format: &str) -> bool {
    match schema.get("type").and_then(Value::as_str) {
        Some("string") | None => formats::is_known(format),
        Some("integer") => matches!(format, "int32" | "int64"),
        Some("number") => matches!(format, "float" | "double"),
        Some(_) => false,
    }
}

/// Whether a format is known.
pub fn is_format(format: &str) -> bool {
    formats::is_known(format)
}

/// Whether a text is a valid pattern.
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
