//! Validation of objects against their structural schema, in the words and in the order of upstream
//! (kube-openapi `pkg/validation/validate`, apiextensions `pkg/apiserver/validation`, `schema/objectmeta` and
//! `schema/listtype`). What is asked of a value beside its type is in `checks.rs`.

mod checks;

use super::{Additional, Checks, ListType, Node, Structural, Type};
use checks::type_name;
use keelson_meta::object_meta::validate_object_meta;
use keelson_meta::{ErrorList, FieldError, GroupVersion, Map, Path, Str, Value, names};
use std::collections::{HashMap, HashSet};

/// Where upstream puts faults of which it does not know the field.
pub(super) const NOWHERE: Path<'static> = Path::new("<nil>");

/// What upstream takes for the path of the root where it writes the dot before a map's value.
const NAMELESS: Path<'static> = Path::new("");

/// Members of every object, whose types are checked elsewhere.
const TYPE_AND_META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A value that is validated. A whole object is a map, which is not copied to be validated.
#[derive(Clone, Copy)]
pub(super) enum Given<'v> {
    Object(&'v Map),
    Other(&'v Value),
}

impl<'v> From<&'v Value> for Given<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Object(map) => Given::Object(map),
            other => Given::Other(other),
        }
    }
}

impl Given<'_> {
    pub(super) fn is(self, other: &Value) -> bool {
        match (self, other) {
            (Given::Object(map), Value::Object(other)) => map == other,
            (Given::Object(_), _) => false,
            (Given::Other(value), other) => value == other,
        }
    }

    pub(super) fn to_value(self) -> Value {
        match self {
            Given::Object(map) => Value::Object(map.clone()),
            Given::Other(value) => value.clone(),
        }
    }
}

impl Structural {
    /// The faults of an object. The types of its kind, apiVersion and metadata are checked elsewhere, and
    /// members that an update leaves as they were are not checked (validation ratcheting).
    pub fn validate(&self, obj: &Map, old: Option<&Map>) -> ErrorList {
        let mut found = ErrorList::new();
        self.root.given(Given::Object(obj), old.map(Given::Object), &Path::ROOT, &mut found);
        let mut errors = ErrorList::new();
        found.drop_repeated();
        for fault in found {
            let is_root = fault.field.is_empty();
            let field = if is_root { NOWHERE.to_string() } else { fault.field.clone() };
            errors.push(FieldError { field, ..fault });
        }
        if !self.has_resources && !self.has_keyed_lists {
            return errors;
        }
        let members = || {
            let nodes = self.root.properties.iter();
            let own = nodes.filter(|(name, _)| !TYPE_AND_META.contains(&name.as_str()));
            own.filter_map(|(name, node)| Some((name, node, obj.get(name)?)))
        };
        if self.has_resources {
            for (name, node, value) in members() {
                node.resources(value, &Path::ROOT.field(name), type_members, &mut errors);
            }
        }
        if self.has_keyed_lists {
            for (name, node, value) in members() {
                node.lists(value, &Path::ROOT.field(name), &mut errors);
            }
        }
        errors
    }
}

/// The items of a list before an update, by their keys: of other lists than maps nothing is known.
struct Before<'v> {
    keys: &'v [Str],
    /// By the text of their keys.
    items: HashMap<Vec<u8>, &'v Value>,
}

impl<'v> Before<'v> {
    fn of(list: &'v ListType, old: Option<Given<'v>>) -> Before<'v> {
        let ListType::Map(keys) = list else { return Before { keys: &[], items: HashMap::new() } };
        let Some(Given::Other(Value::Array(old))) = old else {
            return Before { keys: &[], items: HashMap::new() };
        };
        let items = old.iter().filter_map(|item| Some((key_of(keys, item)?, item)));
        Before { keys, items: items.collect() }
    }

    fn find(&self, item: &Value) -> Option<&'v Value> {
        let key = key_of(self.keys, item).filter(|_| !self.items.is_empty())?;
        self.items.get(&key).copied()
    }
}

/// The text of the keys of an item of a map; none when it has not all of them.
pub fn key_of(keys: &[Str], item: &Value) -> Option<Vec<u8>> {
    let mut text = vec![];
    for key in keys {
        crate::json::write_value(item.get(key)?, &mut text);
        text.push(b',');
    }
    Some(text)
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    fn takes(self, value: Given<'_>) -> bool {
        let given = type_name(value);
        given == self.name() || (self == Type::Number && given == "integer")
    }
}

impl Node {
    /// The faults of a value that was `old` before the update, if that is known. Returns how much of the schema
    /// the value was compared with: where all alternatives of an `anyOf` fail, upstream reports the faults of
    /// the one with the highest such count.
    pub(super) fn value(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        if old == Some(value) {
            return 0;
        }
        self.given(value.into(), old.map(Given::from), path, errors)
    }

    /// See [`Node::value`]. The steps and their counts are those of upstream's validators.
    pub(super) fn given(
        &self,
        given: Given<'_>,
        old: Option<Given<'_>>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let checks = self.checks.as_deref();
        let mut count = self.check_type(given, path, errors);
        if let Given::Other(Value::Null) = given {
            checks.inspect(|checks| checks.of_enumeration(given, path, errors));
            return count;
        }
        count += 2 + checks.map_or(0, |checks| checks.of_schemas(given, path, errors));
        count += match given {
            Given::Other(Value::String(text)) => {
                1 + checks.map_or(0, |checks| checks.of_text(text, path, errors))
            }
            Given::Other(value @ (Value::Int(_) | Value::Float(_))) => {
                match checks {
                    Some(checks) => checks.of_number(self, value, path, errors),
                    None => Checks::default().of_range(self, value, path, errors),
                }
                2
            }
            Given::Other(Value::Array(items)) => self.check_items(items, old, path, errors),
            _ => 0,
        };
        checks.inspect(|checks| checks.of_enumeration(given, path, errors));
        if let Given::Object(map) = given {
            let old = old.and_then(|old| match old {
                Given::Object(map) => Some(map),
                Given::Other(_) => None,
            });
            count += 1 + self.check_members(map, old, path, errors);
        }
        count + 2
    }

    /// Whether decoding would leave a part of a value out.
    pub(super) fn has_unknown(&self, value: &Value) -> bool {
        match value {
            Value::Object(map) => {
                let is_type = |name: &str| {
                    self.embedded && matches!(name, "apiVersion" | "kind" | "metadata")
                };
                let members = map.iter().filter(|(name, _)| !is_type(name));
                let mut members = members.map(|(name, value)| (self.property(name), value));
                members.any(|(node, value)| match (node, &self.additional) {
                    (Some(node), _) => node.has_unknown(value),
                    (None, Additional::Of(node)) => node.has_unknown(value),
                    (None, Additional::Any) => false,
                    (None, Additional::Forbidden) => has_members(value),
                    (None, Additional::None) => !self.preserve,
                })
            }
            Value::Array(items) => match &self.items {
                Some(node) => items.iter().any(|item| node.has_unknown(item)),
                None => !self.preserve && items.iter().any(has_members),
            },
            _ => false,
        }
    }

    /// Whether a value is of the schema's type. Counts one when there is a type, and one more when it fits.
    fn check_type(&self, value: Given<'_>, path: &Path<'_>, errors: &mut ErrorList) -> u32 {
        let is_typed = self.int_or_string || self.kind.is_some();
        if !is_typed && self.format().is_none() {
            return 0;
        }
        let given = type_name(value);
        let wanted = match value {
            Given::Other(Value::Null) if self.nullable || !is_typed => None,
            Given::Other(Value::Null) => Some((self.type_names(), given)),
            _ => self.misformed(value).or_else(|| self.mistyped(value).map(|of| (of, given))),
        };
        let Some((wanted, given)) = wanted else { return 2 };
        errors.push_with(|| {
            let why = format!("{path} in body must be of type {wanted}: \"{given}\"");
            FieldError::type_invalid(path, given, &why)
        });
        1
    }

    fn type_names(&self) -> &'static str {
        if self.int_or_string { "integer,string" } else { self.kind.map_or("", Type::name) }
    }

    fn takes(&self, value: Given<'_>) -> bool {
        match self.int_or_string {
            true => matches!(type_name(value), "integer" | "string"),
            false => self.kind.is_some_and(|kind| kind.takes(value)),
        }
    }

    /// The type that a value should have and has not.
    fn mistyped(&self, value: Given<'_>) -> Option<&'static str> {
        let is_number =
            self.int_or_string || matches!(self.kind, Some(Type::Integer | Type::Number));
        // Upstream leaves these to the format.
        let is_formatted = matches!(value, Given::Other(Value::String(_) | Value::Array(_)));
        let is_checked = (self.int_or_string || self.kind.is_some())
            && (is_number || !is_formatted || self.format().is_none());
        (is_checked && !self.takes(value)).then(|| self.type_names())
    }

    fn format(&self) -> Option<&str> {
        self.checks.as_ref()?.format.as_deref().filter(|format| !format.is_empty())
    }

    /// The format that a value should have and the one it has, where its type is another and it is neither
    /// text nor a list.
    fn misformed(&self, value: Given<'_>) -> Option<(&str, &'static str)> {
        let format = self.format()?;
        let given = match value {
            Given::Other(Value::String(_) | Value::Array(_)) => return None,
            Given::Other(Value::Int(_)) => "int64",
            Given::Other(Value::Float(_)) => "float64",
            _ => "",
        };
        (!self.takes(value) && given != format).then_some((format, given))
    }

    fn check_items(
        &self,
        items: &[Value],
        old: Option<Given<'_>>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let mut count = 2;
        if let Some(node) = &self.items {
            let before = Before::of(&self.list, old);
            for (i, item) in items.iter().enumerate() {
                count += node.value(item, before.find(item), &path.index(i), errors);
            }
        }
        if let Some(checks) = &self.checks {
            let limits = ("items", checks.min_items, checks.max_items);
            checks.of_count(items.len(), limits, path, errors);
        }
        count
    }

    fn check_members(
        &self,
        map: &Map,
        old: Option<&Map>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let mut count = 0;
        if let Some(checks) = &self.checks {
            let limits = ("properties", checks.min_properties, checks.max_properties);
            checks.of_count(map.len(), limits, path, errors);
        }
        for (name, value) in map.iter() {
            let of_map = if path.is_root() { &NAMELESS } else { path };
            let (node, around) = match (self.property(name), &self.additional) {
                (Some(node), _) => (node, path),
                (None, Additional::Of(node)) => (&**node, of_map),
                (None, Additional::Forbidden) => {
                    errors.push_with(|| {
                        let place = of_map.field(name);
                        let why = format!("{place} in body is a forbidden property");
                        FieldError::invalid(path, name.as_str(), &why)
                    });
                    continue;
                }
                (None, _) => continue,
            };
            let old = old.and_then(|old| old.get(name));
            count += node.value(value, old, &around.field(name), errors);
        }
        let required = self.checks.iter().flat_map(|checks| checks.required.iter());
        for name in required.filter(|name| map.get(name).is_none()) {
            errors.push_with(|| FieldError::required(&path.field(name), ""));
        }
        count
    }

    /// Items that stand twice in sets and maps.
    fn lists(&self, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter() {
                    let node = self.property(name).or(match &self.additional {
                        Additional::Of(node) => Some(node),
                        _ => None,
                    });
                    if let Some(node) = node {
                        node.lists(value, &path.field(name), errors);
                    }
                }
            }
            Value::Array(items) => {
                self.duplicates(items, path, errors);
                if let Some(node) = &self.items {
                    for (i, item) in items.iter().enumerate() {
                        node.lists(item, &path.index(i), errors);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether all items of a map are objects, or nothing; tells of the first one that is not.
    fn are_objects(items: &[Value], path: &Path<'_>, errors: &mut ErrorList) -> bool {
        let is_other = |item: &Value| !matches!(item, Value::Object(_) | Value::Null);
        let other = items.iter().enumerate().find(|(_, item)| is_other(item));
        let Some((i, item)) = other else { return true };
        errors.push_with(|| {
            let why = "must be an object for an array of list-type map";
            FieldError::invalid(&path.index(i), item.clone(), why)
        });
        false
    }

    /// Items that stand twice in a set or map.
    fn duplicates(&self, items: &[Value], path: &Path<'_>, errors: &mut ErrorList) {
        let keys: &[Str] = match &self.list {
            ListType::Atomic => return,
            ListType::Set => &[],
            ListType::Map(keys) => keys,
        };
        if !keys.is_empty() && !Self::are_objects(items, path, errors) {
            return;
        }
        let key_of = |item: &Value| match (keys, item) {
            ([], item) => item.clone(),
            (_, Value::Object(map)) => {
                let node = self.items.as_deref();
                let members = keys.iter().filter_map(|key| {
                    let default = || node?.property(key)?.default.as_deref().cloned();
                    Some((key.clone(), map.get(key).cloned().or_else(default)?))
                });
                Value::Object(members.collect())
            }
            (_, item) => item.clone(),
        };
        let (mut seen, mut told) = (HashSet::new(), HashSet::new());
        for (i, item) in items.iter().enumerate() {
            let key = key_of(item);
            let mut text = vec![];
            crate::json::write_value(&key, &mut text);
            if !seen.insert(text.clone()) && told.insert(text) {
                errors.push_with(|| FieldError::duplicate(&path.index(i), key.sorted()));
            }
        }
    }
}

/// Whether there is an object with members in a value.
fn has_members(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => items.iter().any(has_members),
        _ => false,
    }
}

/// The faults of the kind, apiVersion and metadata that every resource within a resource has.
pub(super) fn type_members(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for name in ["apiVersion", "kind"] {
        let (field, value) = (path.field(name), map.get(name));
        let why = match value.and_then(Value::as_str) {
            None => {
                errors.push_with(|| FieldError::required(&field, ""));
                continue;
            }
            Some("") => "must not be empty".to_owned(),
            Some(text) if name == "apiVersion" => match GroupVersion::parse(text) {
                Some(_) => continue,
                None => format!("unexpected GroupVersion string: {text}"),
            },
            Some(text) => match names::is_dns1035_label(&text.to_lowercase()) {
                faults if faults.is_empty() => continue,
                faults => {
                    format!("may have mixed case, but should otherwise match: {}", faults.join(","))
                }
            },
        };
        let value = value.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&field, value, &why));
    }
    let Some(metadata) = map.get("metadata").and_then(Value::as_object) else { return };
    let mut metadata = metadata.clone();
    if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        metadata.insert("name", "fakename");
    }
    let namespaced = metadata.get("namespace").is_some_and(|namespace| !namespace.is_empty());
    let rule = names::name_is_path_segment;
    errors.extend(validate_object_meta(&metadata, namespaced, rule, &path.field("metadata")));
}
