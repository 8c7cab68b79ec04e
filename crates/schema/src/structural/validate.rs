//! Validates objects against their structural schema, with upstream's error messages and order
//! (kube-openapi `pkg/validation/validate`, apiextensions `pkg/apiserver/validation`,
//! `schema/objectmeta` and `schema/listtype`). Constraints besides the type are in
//! `value_validation.rs`.

mod value_validation;

use super::{AdditionalProperties, ListType, Node, Structural, Type, ValueValidation};
use keelson_meta::object_meta::validate_object_meta;
use keelson_meta::{ErrorList, FieldError, GroupVersion, Map, Path, Str, Value, names};
use std::collections::{HashMap, HashSet};
use value_validation::type_name;

/// The field of upstream's errors that have none.
pub(super) const NO_FIELD: Path<'static> = Path::new("<nil>");

/// The path of the root in upstream's errors about map values, where it writes a dot before the
/// key.
const EMPTY_PATH: Path<'static> = Path::new("");

/// Fields of every object, whose types are checked elsewhere.
const TYPE_AND_METADATA: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A value to validate. An object is passed as its map, to avoid a copy.
#[derive(Clone, Copy)]
pub(super) enum ValueRef<'v> {
    Object(&'v Map),
    Other(&'v Value),
}

impl<'v> From<&'v Value> for ValueRef<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Object(map) => ValueRef::Object(map),
            other => ValueRef::Other(other),
        }
    }
}

impl ValueRef<'_> {
    pub(super) fn is(self, other: &Value) -> bool {
        match (self, other) {
            (ValueRef::Object(map), Value::Object(other)) => map == other,
            (ValueRef::Object(_), _) => false,
            (ValueRef::Other(value), other) => value == other,
        }
    }

    pub(super) fn to_value(self) -> Value {
        match self {
            ValueRef::Object(map) => Value::Object(map.clone()),
            ValueRef::Other(value) => value.clone(),
        }
    }
}

impl Structural {
    /// Validates an object. The types of kind, apiVersion and metadata are checked elsewhere.
    /// Values that are unchanged since `old` are not checked (validation ratcheting).
    pub fn validate(&self, obj: &Map, old: Option<&Map>) -> ErrorList {
        let mut found = ErrorList::new();
        self.root.validate_value(
            ValueRef::Object(obj),
            old.map(ValueRef::Object),
            &Path::ROOT,
            &mut found,
        );
        let mut errors = ErrorList::new();
        found.drop_repeated();
        for fault in found {
            let is_root = fault.field.is_empty();
            let field = if is_root { NO_FIELD.to_string() } else { fault.field.clone() };
            errors.push(FieldError { field, ..fault });
        }
        if !self.has_embedded_resources && !self.has_keyed_lists {
            return errors;
        }
        if self.has_embedded_resources {
            for (name, node, value) in self.members(obj) {
                node.visit_embedded(
                    value,
                    &Path::ROOT.field(name),
                    validate_type_meta,
                    &mut errors,
                );
            }
        }
        // Ratcheting: an object that has repeated items already may be changed as before.
        if self.has_keyed_lists && old.is_none_or(|old| self.repeated_items(old).is_empty()) {
            errors.extend(self.repeated_items(obj));
        }
        errors
    }

    /// Returns the errors of repeated items in lists of type `set` or `map`.
    fn repeated_items(&self, obj: &Map) -> ErrorList {
        let mut errors = ErrorList::new();
        for (name, node, value) in self.members(obj) {
            node.check_list_types(value, &Path::ROOT.field(name), &mut errors);
        }
        errors
    }

    /// Returns the members of an object beside its type and metadata, with their schemas.
    fn members<'a>(&'a self, obj: &'a Map) -> impl Iterator<Item = (&'a Str, &'a Node, &'a Value)> {
        let nodes = self.root.properties.iter();
        let own = nodes.filter(|(name, _)| !TYPE_AND_METADATA.contains(&name.as_str()));
        own.filter_map(|(name, node)| Some((name, node, obj.get(name)?)))
    }
}

/// A check of an embedded resource.
pub(super) type EmbeddedCheck = fn(&Map, &Path<'_>, &mut ErrorList);

/// The items of a list of list type `map` before an update, by key. Items of other lists cannot be
/// correlated.
pub(super) struct OldItems<'v> {
    keys: &'v [Str],
    /// By [`list_map_key`].
    items: HashMap<Vec<u8>, &'v Value>,
}

impl<'v> OldItems<'v> {
    pub(super) fn of(list: &'v ListType, old: Option<ValueRef<'v>>) -> OldItems<'v> {
        let ListType::Map(keys) = list else {
            return OldItems { keys: &[], items: HashMap::new() };
        };
        let Some(ValueRef::Other(Value::Array(old))) = old else {
            return OldItems { keys: &[], items: HashMap::new() };
        };
        let items = old.iter().filter_map(|item| Some((list_map_key(keys, item)?, item)));
        OldItems { keys, items: items.collect() }
    }

    pub(super) fn find(&self, item: &Value) -> Option<&'v Value> {
        let key = list_map_key(self.keys, item).filter(|_| !self.items.is_empty())?;
        self.items.get(&key).copied()
    }
}

/// Returns the key of an item of a list of type `map`, `None` if a key field is missing.
pub fn list_map_key(keys: &[Str], item: &Value) -> Option<Vec<u8>> {
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

    fn accepts(self, value: ValueRef<'_>) -> bool {
        let given = type_name(value);
        given == self.name() || (self == Type::Number && given == "integer")
    }
}

impl Node {
    /// Validates a value unless it is `old`, its value before the update. Returns upstream's
    /// match count: how much of the schema the value was compared with. If all alternatives of an
    /// `anyOf` fail, upstream reports the errors of the one with the highest count.
    pub(super) fn validate_if_changed(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        if old.is_some_and(|old| self.is_unchanged(value, old)) {
            return 0;
        }
        self.validate_value(value.into(), old.map(ValueRef::from), path, errors)
    }

    /// Validates a value; see [`Node::validate_if_changed`] for the result. The steps and counts
    /// are those of upstream's validators.
    pub(super) fn validate_value(
        &self,
        value: ValueRef<'_>,
        old: Option<ValueRef<'_>>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let validation = self.validation.as_deref();
        let mut count = self.check_type(value, path, errors);
        if let ValueRef::Other(Value::Null) = value {
            validation.inspect(|validation| validation.validate_enum(value, path, errors));
            return count;
        }
        count += 2 + validation
            .map_or(0, |validation| validation.validate_combinators(value, path, errors));
        count += match value {
            ValueRef::Other(Value::String(text)) => {
                1 + validation
                    .map_or(0, |validation| validation.validate_string(text, path, errors))
            }
            ValueRef::Other(value @ (Value::Int(_) | Value::Float(_))) => {
                match validation {
                    Some(validation) => validation.validate_number(self, value, path, errors),
                    None => {
                        ValueValidation::default().validate_number_format(self, value, path, errors)
                    }
                }
                2
            }
            ValueRef::Other(Value::Array(items)) => self.validate_items(items, old, path, errors),
            _ => 0,
        };
        validation.inspect(|validation| validation.validate_enum(value, path, errors));
        if let ValueRef::Object(map) = value {
            let old = old.and_then(|old| match old {
                ValueRef::Object(map) => Some(map),
                ValueRef::Other(_) => None,
            });
            count += 1 + self.validate_properties(map, old, path, errors);
        }
        count + 2
    }

    /// Calls `check` for each embedded resource in a value.
    pub(super) fn visit_embedded(
        &self,
        value: &Value,
        path: &Path<'_>,
        check: EmbeddedCheck,
        errors: &mut ErrorList,
    ) {
        match value {
            Value::Object(map) => {
                if self.embedded {
                    check(map, path, errors);
                }
                for (name, value) in map.iter() {
                    let node = self.property(name).or(match &self.additional {
                        AdditionalProperties::Schema(node) => Some(node),
                        _ => None,
                    });
                    if let Some(node) = node {
                        node.visit_embedded(value, &path.field(name), check, errors);
                    }
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    if let Some(node) = &self.items {
                        node.visit_embedded(item, &path.index(i), check, errors);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether decoding would prune a part of a value.
    pub(super) fn has_unknown(&self, value: &Value) -> bool {
        match value {
            Value::Object(map) => {
                let is_type = |name: &str| {
                    self.embedded && matches!(name, "apiVersion" | "kind" | "metadata")
                };
                let mut members = map
                    .iter()
                    .filter(|(name, _)| !is_type(name))
                    .map(|(name, value)| (self.property(name), value));
                members.any(|(node, value)| match (node, &self.additional) {
                    (Some(node), _) => node.has_unknown(value),
                    (None, AdditionalProperties::Schema(node)) => node.has_unknown(value),
                    (None, AdditionalProperties::Any) => false,
                    (None, AdditionalProperties::Forbidden) => has_members(value),
                    (None, AdditionalProperties::None) => !self.preserve_unknown,
                })
            }
            Value::Array(items) => match &self.items {
                Some(node) => items.iter().any(|item| node.has_unknown(item)),
                None => !self.preserve_unknown && items.iter().any(has_members),
            },
            _ => false,
        }
    }

    /// Checks the type of a value. Counts one if the schema has a type, and one more if the value
    /// matches.
    fn check_type(&self, value: ValueRef<'_>, path: &Path<'_>, errors: &mut ErrorList) -> u32 {
        let is_typed = self.int_or_string || self.kind.is_some();
        if !is_typed && self.format().is_none() {
            return 0;
        }
        let given = type_name(value);
        let wanted = match value {
            ValueRef::Other(Value::Null) if self.nullable || !is_typed => None,
            ValueRef::Other(Value::Null) => Some((self.type_names(), given)),
            _ => self
                .format_mismatch(value)
                .or_else(|| self.type_mismatch(value).map(|of| (of, given))),
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

    fn accepts(&self, value: ValueRef<'_>) -> bool {
        match self.int_or_string {
            true => matches!(type_name(value), "integer" | "string"),
            false => self.kind.is_some_and(|kind| kind.accepts(value)),
        }
    }

    /// Returns the expected type, if the value has another one.
    fn type_mismatch(&self, value: ValueRef<'_>) -> Option<&'static str> {
        let is_number =
            self.int_or_string || matches!(self.kind, Some(Type::Integer | Type::Number));
        // Upstream checks these by their format.
        let is_formatted = matches!(value, ValueRef::Other(Value::String(_) | Value::Array(_)));
        let is_checked = (self.int_or_string || self.kind.is_some())
            && (is_number || !is_formatted || self.format().is_none());
        (is_checked && !self.accepts(value)).then(|| self.type_names())
    }

    fn format(&self) -> Option<&str> {
        self.validation.as_ref()?.format.as_deref().filter(|format| !format.is_empty())
    }

    /// Returns the expected format and the actual one, for a value of another type that is neither
    /// a string nor a list.
    fn format_mismatch(&self, value: ValueRef<'_>) -> Option<(&str, &'static str)> {
        let format = self.format()?;
        let given = match value {
            ValueRef::Other(Value::String(_) | Value::Array(_)) => return None,
            ValueRef::Other(Value::Int(_)) => "int64",
            ValueRef::Other(Value::Float(_)) => "float64",
            _ => "",
        };
        (!self.accepts(value) && given != format).then_some((format, given))
    }

    fn validate_items(
        &self,
        items: &[Value],
        old: Option<ValueRef<'_>>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let mut count = 2;
        if let Some(node) = &self.items {
            let before = OldItems::of(&self.list, old);
            for (i, item) in items.iter().enumerate() {
                count += node.validate_if_changed(item, before.find(item), &path.index(i), errors);
            }
        }
        if let Some(validation) = &self.validation {
            let least = validation.min_items;
            let most = validation.max_items;
            validation.validate_count(items.len(), "items", least, most, path, errors);
        }
        count
    }

    fn validate_properties(
        &self,
        map: &Map,
        old: Option<&Map>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let mut count = 0;
        if let Some(validation) = &self.validation {
            let least = validation.min_properties;
            let most = validation.max_properties;
            validation.validate_count(map.len(), "properties", least, most, path, errors);
        }
        for (name, value) in map.iter() {
            let of_map = if path.is_root() { &EMPTY_PATH } else { path };
            let (node, around) = match (self.property(name), &self.additional) {
                (Some(node), _) => (node, path),
                (None, AdditionalProperties::Schema(node)) => (&**node, of_map),
                (None, AdditionalProperties::Forbidden) => {
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
            count += node.validate_if_changed(value, old, &around.field(name), errors);
        }
        let required = self.validation.iter().flat_map(|validation| validation.required.iter());
        for name in required.filter(|name| map.get(name).is_none()) {
            errors.push_with(|| FieldError::required(&path.field(name), ""));
        }
        count
    }

    /// Reports duplicate items in lists of type `set` and `map`, at any depth.
    fn check_list_types(&self, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter() {
                    match (self.property(name), &self.additional) {
                        (Some(node), _) => {
                            node.check_list_types(value, &path.field(name), errors);
                        }
                        // Elsewhere upstream writes such a key like a field.
                        (None, AdditionalProperties::Schema(node)) => {
                            node.check_list_types(value, &path.key(name), errors);
                        }
                        (None, _) => {}
                    }
                }
            }
            Value::Array(items) => {
                self.check_duplicates(items, path, errors);
                if let Some(node) = &self.items {
                    for (i, item) in items.iter().enumerate() {
                        node.check_list_types(item, &path.index(i), errors);
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks that all items of a list of type `map` are objects or null. Reports the first other
    /// item.
    fn check_items_are_objects(items: &[Value], path: &Path<'_>, errors: &mut ErrorList) -> bool {
        let is_other = |item: &Value| !matches!(item, Value::Object(_) | Value::Null);
        let other = items.iter().enumerate().find(|(_, item)| is_other(item));
        let Some((i, item)) = other else { return true };
        errors.push_with(|| {
            let why = "must be an object for an array of list-type map";
            FieldError::invalid(&path.index(i), item.clone(), why)
        });
        false
    }

    /// Reports duplicate items in a list of type `set` or `map`.
    fn check_duplicates(&self, items: &[Value], path: &Path<'_>, errors: &mut ErrorList) {
        let keys: &[Str] = match &self.list {
            ListType::Atomic => return,
            ListType::Set => &[],
            ListType::Map(keys) => keys,
        };
        if !keys.is_empty() && !Self::check_items_are_objects(items, path, errors) {
            return;
        }
        let list_map_key = |item: &Value| match (keys, item) {
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
        let mut seen = HashSet::new();
        let mut reported = HashSet::new();
        for (i, item) in items.iter().enumerate() {
            let key = list_map_key(item);
            let mut text = vec![];
            crate::json::write_value(&key, &mut text);
            if !seen.insert(text.clone()) && reported.insert(text) {
                errors.push_with(|| FieldError::duplicate(&path.index(i), key.sorted()));
            }
        }
    }
}

/// Whether a value contains an object with members.
fn has_members(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => items.iter().any(has_members),
        _ => false,
    }
}

/// Validates kind, apiVersion and metadata of an embedded resource.
pub(super) fn validate_type_meta(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for name in ["apiVersion", "kind"] {
        let field = path.field(name);
        let value = map.get(name);
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
