//! Validation of objects against their structural schema, in the words of upstream (kube-openapi
//! `pkg/validation/validate`, apiextensions `pkg/apiserver/validation` and `schema/listtype`).

use super::{Additional, Checks, ListType, Node, Structural, Type};
use keelson_meta::object_meta::validate_object_meta;
use keelson_meta::{ErrorList, FieldError, GroupVersion, Map, Path, Str, Value, names};
use std::collections::{HashMap, HashSet};

/// Where upstream puts what it does not know the field of.
const NOWHERE: Path<'static> = Path::new("<nil>");

impl Structural {
    /// The faults of an object. Its kind, apiVersion and metadata are looked at elsewhere, and what an update
    /// leaves as it was is not looked at (validation ratcheting).
    pub fn validate(&self, obj: &Map, old: Option<&Map>) -> ErrorList {
        let mut errors = ErrorList::new();
        let known = ["apiVersion", "kind", "metadata"];
        self.root.members((obj, old), &known, &Path::ROOT, &mut errors);
        if let Some(checks) = &self.root.checks {
            let mut of_root = ErrorList::new();
            checks.of_all(&self.root, &Value::Object(obj.clone()), &Path::ROOT, &mut of_root);
            for fault in of_root.iter() {
                let is_root = fault.field.is_empty();
                let field = if is_root { NOWHERE.to_string() } else { fault.field.clone() };
                errors.push(FieldError { field, ..fault.clone() });
            }
        }
        for (name, node) in &self.root.properties {
            if !matches!(name.as_str(), "metadata" | "kind" | "apiVersion")
                && let Some(value) = obj.get(name)
            {
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
    fn of(list: &'v ListType, old: Option<&'v Value>) -> Before<'v> {
        let ListType::Map(keys) = list else { return Before { keys: &[], items: HashMap::new() } };
        let old = old.and_then(Value::as_array).unwrap_or_default();
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

/// What a value is called.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(number) if is_whole(*number) => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    }
}

/// The largest whole number that JSON's numbers tell from its neighbours.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Whether a number has no fraction.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() <= WHOLE_MAX
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    fn takes(self, value: &Value) -> bool {
        let given = type_name(value);
        given == self.name() || (self == Type::Number && given == "integer")
    }
}

impl Node {
    /// The faults of a value, which was `old` before; none: nothing is known of that.
    pub(super) fn value(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        if old == Some(value) || (value.is_null() && self.nullable) {
            return;
        }
        self.type_of(value, path, errors);
        match &self.checks {
            Some(checks) => checks.of_all(self, value, path, errors),
            None if matches!(value, Value::Int(_) | Value::Float(_)) => {
                Checks::default().of_range(self, value, path, errors);
            }
            None => {}
        }
        match value {
            Value::Object(map) if self.embedded => {
                self.members((map, old.and_then(Value::as_object)), &["metadata"], path, errors);
                type_members(map, path, errors);
            }
            Value::Object(map) => {
                self.members((map, old.and_then(Value::as_object)), &[], path, errors);
            }
            Value::Array(items) => {
                if let Some(node) = &self.items {
                    let before = Before::of(&self.list, old);
                    for (i, item) in items.iter().enumerate() {
                        node.value(item, before.find(item), &path.index(i), errors);
                    }
                }
            }
            _ => {}
        }
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

    fn type_of(&self, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        let given = type_name(value);
        if let Some((format, given)) = self.misformed(value) {
            return errors.push_with(|| {
                let why = format!("{path} in body must be of type {format}: \"{given}\"");
                FieldError::type_invalid(path, given, &why)
            });
        }
        let has_format = self.format().is_some();
        let is_number =
            self.int_or_string || matches!(self.kind, Some(Type::Integer | Type::Number));
        // Upstream leaves these to the format.
        if has_format && !is_number && matches!(value, Value::String(_) | Value::Array(_)) {
            return;
        }
        let wanted = if self.int_or_string {
            let takes = matches!(given, "integer" | "string");
            (!takes).then_some("integer,string")
        } else {
            self.kind.filter(|kind| !kind.takes(value)).map(Type::name)
        };
        if let Some(wanted) = wanted {
            errors.push_with(|| {
                let why = format!("{path} in body must be of type {wanted}: \"{given}\"");
                FieldError::type_invalid(path, given, &why)
            });
        }
    }

    fn format(&self) -> Option<&str> {
        self.checks.as_ref()?.format.as_deref().filter(|format| !format.is_empty())
    }

    /// The format that a value should have and the one it has, where its type is another and it is neither
    /// text nor a list.
    fn misformed(&self, value: &Value) -> Option<(&str, &'static str)> {
        let format = self.format()?;
        let given = match value {
            Value::String(_) | Value::Array(_) => return None,
            Value::Int(_) => "int64",
            Value::Float(_) => "float64",
            _ => "",
        };
        let takes = match self.int_or_string {
            true => matches!(type_name(value), "integer" | "string"),
            false => self.kind.is_some_and(|kind| kind.takes(value)),
        };
        (!takes && given != format).then_some((format, given))
    }

    /// The members of an object, but for those in `known`, which are looked at elsewhere.
    fn members(
        &self,
        (map, old): (&Map, Option<&Map>),
        known: &[&str],
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        for (name, value) in map.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            let path = path.field(name);
            let old = old.and_then(|old| old.get(name));
            match (self.property(name), &self.additional) {
                (Some(node), _) => node.value(value, old, &path, errors),
                (None, Additional::Of(node)) => node.value(value, old, &path, errors),
                (None, _) => {}
            }
        }
        if let Some(checks) = &self.checks {
            for name in &checks.required {
                if map.get(name).is_none() {
                    errors.push_with(|| FieldError::required(&path.field(name), ""));
                }
            }
        }
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

/// `1` of 1 and of 1.0.
fn shown(number: &Value) -> String {
    match number {
        Value::Float(number) if is_whole(*number) => (*number as i64).to_string(),
        other => keelson_meta::status::show(other),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

/// Whether one number is less than another; whole ones are compared exactly.
fn is_less(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => one < other,
        _ => number(one).zip(number(other)).is_some_and(|(one, other)| one < other),
    }
}

fn is_multiple(value: &Value, of: &Value) -> bool {
    match (value, of) {
        (Value::Int(value), Value::Int(of)) => *of == 0 || value % of == 0,
        _ => {
            let Some((value, of)) = number(value).zip(number(of)) else { return true };
            of == 0.0 || is_whole(value / of)
        }
    }
}

impl Checks {
    fn of_all(&self, node: &Node, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        self.of_enumeration(value, path, errors);
        match value {
            Value::String(text) => self.of_text(text, path, errors),
            Value::Int(_) | Value::Float(_) => self.of_number(node, value, path, errors),
            Value::Array(items) => {
                self.of_count(items.len(), ("items", self.min_items, self.max_items), path, errors)
            }
            Value::Object(map) => self.of_count(
                map.len(),
                ("properties", self.min_properties, self.max_properties),
                path,
                errors,
            ),
            _ => {}
        }
        self.of_schemas(value, path, errors);
    }

    fn of_enumeration(&self, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        let is_same = |known: &Value| match (known, value) {
            (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
                !is_less(known, value) && !is_less(value, known)
            }
            _ => known == value,
        };
        if self.enumeration.is_empty() || self.enumeration.iter().any(is_same) {
            return;
        }
        let words: Vec<String> = self
            .enumeration
            .iter()
            .map(|value| match value {
                Value::String(text) => text.to_string(),
                other => shown(other),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.clone().sorted(), &words));
    }

    fn of_text(&self, text: &Str, path: &Path<'_>, errors: &mut ErrorList) {
        let length = text.chars().count() as u64;
        let invalid = |why: String| {
            let why = format!("{path} in body {why}");
            FieldError::invalid(path, Value::String(text.clone()), &why)
        };
        // Of these, upstream tells the first.
        if let Some(most) = self.max_length.filter(|most| length > *most) {
            errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
        } else if let Some(least) = self.min_length.filter(|least| length < *least) {
            errors.push(invalid(format!("should be at least {least} chars long")));
        } else if let Some((pattern, _)) =
            self.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text))
        {
            errors.push(invalid(format!("should match '{pattern}'")));
        }
        let format = self.format.as_deref();
        if let Some(format) = format
            && super::formats::has(format, text) == Some(false)
        {
            let why = format!(
                "{path} in body must be of type {format}: {}",
                keelson_meta::status::quote(text)
            );
            errors.push(FieldError::type_invalid(path, Value::String(text.clone()), &why));
        }
    }

    fn of_number(&self, node: &Node, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        self.of_range(node, value, path, errors);
        // A whole number is compared with a bound's whole part, if the bound is of the type.
        let mut bound_of = |what: &str, bound: &Value| -> Value {
            let fits = self.is_in_range(node, bound);
            if !fits {
                let of = self.range_name(node);
                let why = format!("{what} must be of type {of} in {path}");
                errors.push(FieldError::invalid(&NOWHERE, "", &why));
            }
            match (value, bound) {
                (Value::Int(_), Value::Float(number)) if fits => Value::Int(*number as i64),
                _ => bound.clone(),
            }
        };
        let multiple_of = self.multiple_of.as_ref().map(|of| bound_of("MultipleOf value", of));
        let maximum =
            self.maximum.as_ref().map(|(at, is)| (bound_of("Maximum boundary value", at), *is));
        let minimum =
            self.minimum.as_ref().map(|(at, is)| (bound_of("Minimum boundary value", at), *is));
        let mut invalid = |why: String| {
            let why = format!("{path} in body should be {why}");
            errors.push(FieldError::invalid(path, value.clone(), &why));
        };
        if let Some((bound, is_outside)) = &minimum
            && (is_less(value, bound) || (*is_outside && !is_less(bound, value)))
        {
            let words = if *is_outside { "greater than" } else { "greater than or equal to" };
            invalid(format!("{words} {}", shown(bound)));
        }
        if let Some((bound, is_outside)) = &maximum
            && (is_less(bound, value) || (*is_outside && !is_less(value, bound)))
        {
            let words = if *is_outside { "less than" } else { "less than or equal to" };
            invalid(format!("{words} {}", shown(bound)));
        }
        match multiple_of {
            Some(of) if !is_less(&Value::Int(0), &of) => {
                let shown = shown(&of);
                let why =
                    format!("factor MultipleOf declared for {path} must be positive: {shown}");
                errors.push(FieldError::invalid(path, of, &why));
            }
            Some(of) if !is_multiple(value, &of) => {
                invalid(format!("a multiple of {}", shown(&of)))
            }
            _ => {}
        }
    }

    /// Whether a number is one of its type and format.
    fn of_range(&self, node: &Node, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        if !self.is_in_range(node, value) {
            let of = self.range_name(node);
            let why = format!("Checked value must be of type {of} in {path}");
            errors.push(FieldError::invalid(&NOWHERE, "", &why));
        }
    }

    fn is_in_range(&self, node: &Node, value: &Value) -> bool {
        let format = self.format.as_deref().unwrap_or_default();
        if node.kind != Some(Type::Integer) {
            let is_single = matches!(format, "float" | "float32");
            return !is_single
                || number(value).is_none_or(|number| number.abs() <= f32::MAX.into());
        }
        let whole = match value {
            Value::Int(number) => Some(*number),
            Value::Float(number) if is_whole(*number) => Some(*number as i64),
            _ => None,
        };
        match format {
            "int32" => whole.is_some_and(|number| i32::try_from(number).is_ok()),
            "uint32" => whole.is_some_and(|number| u32::try_from(number).is_ok()),
            "uint64" => whole.is_some_and(|number| number >= 0),
            _ => whole.is_some(),
        }
    }

    /// The type of numbers, with its format.
    fn range_name(&self, node: &Node) -> String {
        let kind = node.kind.map_or("number", Type::name);
        match self.format.as_deref().unwrap_or_default() {
            "" => format!("{kind} (default format)"),
            format => format!("{kind} with format {format}"),
        }
    }

    fn of_count(
        &self,
        count: usize,
        (what, least, most): (&str, Option<u64>, Option<u64>),
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        if let Some(least) = least.filter(|least| (count as u64) < *least) {
            let why = format!("{path} in body should have at least {least} {what}");
            let count = Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
            errors.push(FieldError::invalid(path, count, &why));
        }
        if let Some(most) = most.filter(|most| count as u64 > *most) {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            errors.push(FieldError::too_many(path, count, most));
        }
    }

    fn of_schemas(&self, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        let tried = |node: &Node| {
            let mut found = ErrorList::new();
            node.value(value, None, path, &mut found);
            found
        };
        let nowhere = |why: String| {
            let why = format!("\"{path}\" {why}");
            FieldError::invalid(&NOWHERE, "", &why)
        };
        if !self.any_of.is_empty() {
            let mut results = self.any_of.iter().map(tried);
            let first = results.next().unwrap_or_default();
            if !first.is_empty() && !results.any(|found| found.is_empty()) {
                errors.push(nowhere("must validate at least one schema (anyOf)".to_owned()));
                errors.extend(first);
            }
        }
        if !self.one_of.is_empty() {
            let results: Vec<ErrorList> = self.one_of.iter().map(tried).collect();
            let valid = results.iter().filter(|found| found.is_empty()).count();
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    count => format!("Found {count} valid alternatives"),
                };
                errors.push(nowhere(format!(
                    "must validate one and only one schema (oneOf). {found}"
                )));
            }
            if valid == 0 {
                errors.extend(results.into_iter().next().unwrap_or_default());
            }
        }
        if !self.all_of.is_empty() {
            let results: Vec<ErrorList> = self.all_of.iter().map(tried).collect();
            let valid = results.iter().filter(|found| found.is_empty()).count();
            let is_wrong = valid < results.len();
            results.into_iter().for_each(|found| errors.extend(found));
            if is_wrong {
                let none = if valid == 0 { ". None validated" } else { "" };
                errors.push(nowhere(format!("must validate all the schemas (allOf){none}")));
            }
        }
        if self.not.as_ref().is_some_and(|not| tried(not).is_empty()) {
            errors.push(nowhere("must not validate the schema (not)".to_owned()));
        }
    }
}
