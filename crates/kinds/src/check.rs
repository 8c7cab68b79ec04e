//! [`Field`]: a value with its path, and the checks that all kinds share. A check appends errors to
//! a list, so the order of errors is the order of the checks.

use crate::equality;
use crate::equality::equal_or_empty;
use crate::gates;
use keelson_meta::names;
use keelson_meta::object_meta::{IMMUTABLE, validate_labels};
use keelson_meta::selector::validate_label_selector;
use keelson_meta::{ErrorList, Feature, FieldError, Map, Object, Path, Quantity, Str, Value, ip};

static NULL: Value = Value::Null;
static NO_TEXT: Value = Value::String(Str::new_static(""));

/// A value with its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'v, 'p> {
    /// The value; null when absent.
    pub value: &'v Value,
    /// The path of the value.
    pub path: Path<'p>,
}

impl<'v, 'p> Field<'v, 'p> {
    /// Returns a top-level field of an object.
    pub fn of(obj: &'v Object, name: &'p str) -> Field<'v, 'p> {
        Field { value: obj.get(name).unwrap_or(&NULL), path: Path::new(name) }
    }

    /// Creates a field of a value and a path.
    pub fn new(value: Option<&'v Value>, path: Path<'p>) -> Field<'v, 'p> {
        Field { value: value.unwrap_or(&NULL), path }
    }

    /// Returns the field `name` of a struct.
    pub fn field<'q>(&'q self, name: &'q str) -> Field<'v, 'q> {
        Field { value: self.get(name), path: self.path.field(name) }
    }

    /// Returns the entry `key` of a map.
    pub fn field_at<'q>(&'q self, key: &'q str) -> Field<'v, 'q> {
        Field { value: self.get(key), path: self.path.key(key) }
    }

    /// Returns the value of the field `name`; null when absent.
    pub fn get(&self, name: &str) -> &'v Value {
        self.value.get(name).unwrap_or(&NULL)
    }

    /// Iterates over the items of a list.
    pub fn items<'q>(&'q self) -> impl Iterator<Item = Field<'v, 'q>> {
        self.array().iter().enumerate().map(|(i, value)| Field { value, path: self.path.index(i) })
    }

    /// Iterates over the entries of a map, sorted by key.
    pub fn entries<'q>(&'q self) -> impl Iterator<Item = (&'v str, Field<'v, 'q>)>
    where
        'v: 'q,
    {
        let map = self.value.as_object();
        let sorted = map.map(Map::sorted).unwrap_or_default();
        let place = |(key, value): (&'v Str, &'v Value)| {
            (key.as_str(), Field { value, path: self.path.key(key) })
        };
        sorted.into_iter().map(place)
    }

    /// Returns the items of a list; empty when absent.
    pub fn array(&self) -> &'v [Value] {
        self.value.as_array().unwrap_or_default()
    }

    /// Returns the string; empty when absent.
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// Returns the string of the field `name`; empty when absent.
    pub fn str(&self, name: &str) -> &'v str {
        self.get(name).as_str().unwrap_or_default()
    }

    /// Returns the number; 0 when absent.
    pub fn number(&self) -> i64 {
        self.value.as_int().unwrap_or(0)
    }

    /// Returns the number of the field `name`.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name).as_int()
    }

    /// Returns whether the field `name` is true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).as_bool() == Some(true)
    }

    /// Returns the value unless it is absent.
    pub fn get_self(&self) -> Option<&'v Value> {
        Some(self.value).filter(|value| !value.is_null())
    }

    /// Returns whether the value is present.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns whether the field `name` is present.
    pub fn has(&self, name: &str) -> bool {
        !self.get(name).is_null()
    }

    /// Adds the error `Required value`.
    pub fn required(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::required(&self.path, detail));
    }

    /// Adds the error `Invalid value`.
    pub fn invalid(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::invalid(&self.path, self.value.clone(), detail));
    }

    /// Adds the error `Invalid value` with `shown` in place of the value.
    pub fn invalid_as(&self, errors: &mut ErrorList, shown: impl Into<Value>, detail: &str) {
        errors.push_with(|| FieldError::invalid(&self.path, shown, detail));
    }

    /// Adds the error `Invalid value` for a label selector, which is shown without empty lists and
    /// maps.
    pub fn invalid_selector(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::invalid(&self.path, shown_selector(self.value), detail));
    }

    /// Adds the error `Forbidden`.
    pub fn forbidden(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::forbidden(&self.path, detail));
    }

    /// Adds the error `Duplicate value`.
    pub fn duplicate(&self, errors: &mut ErrorList) {
        // An absent duplicate is shown as an empty string.
        let shown = if self.value.is_null() { &NO_TEXT } else { self.value };
        errors.push_with(|| FieldError::duplicate(&self.path, shown.clone()));
    }

    /// Adds the error `Unsupported value` of a field whose Go type is plain `string`, not one with
    /// a name: its text is shown in another way.
    pub fn not_supported_text(&self, errors: &mut ErrorList, valid: &[&str]) {
        errors.push_with(|| FieldError::not_supported(&self.path, self.text(), valid));
    }

    /// Adds the error `Unsupported value`.
    pub fn not_supported(&self, errors: &mut ErrorList, valid: &[&str]) {
        errors.push_with(|| match self.value {
            Value::String(word) => FieldError::not_supported_word(&self.path, word, valid),
            value if self.is_set() => FieldError::not_supported(&self.path, value.clone(), valid),
            _ => FieldError::not_supported(&self.path, "", valid),
        });
    }

    /// Requires the string to be one of `valid`.
    pub fn one_of(&self, errors: &mut ErrorList, valid: &[&str]) {
        if !valid.contains(&self.text()) {
            self.not_supported(errors, valid);
        }
    }

    /// Requires the string to be one of `valid` if the value is present.
    pub fn one_of_if_set(&self, errors: &mut ErrorList, valid: &[&str]) {
        if self.is_set() {
            self.one_of(errors, valid);
        }
    }

    /// Requires the string to be one of `valid`; an empty one is `Required value`.
    pub fn required_one_of(&self, errors: &mut ErrorList, valid: &[&str]) {
        if self.text().is_empty() {
            self.required(errors, "");
        } else {
            self.one_of(errors, valid);
        }
    }

    /// Requires a value that is not empty. Returns whether it is not.
    pub fn not_empty(&self, errors: &mut ErrorList, detail: &str) -> bool {
        if self.value.is_empty() {
            self.required(errors, detail);
        }
        !self.value.is_empty()
    }

    /// Applies a rule for strings, such as [`names::is_dns1123_label`].
    pub fn rule(&self, errors: &mut ErrorList, rule: fn(&str) -> Vec<String>) {
        for why in rule(self.text()) {
            self.invalid_as(errors, self.text(), &why);
        }
    }

    /// Applies a rule if the string is not empty.
    pub fn rule_if_set(&self, errors: &mut ErrorList, rule: fn(&str) -> Vec<String>) {
        if !self.text().is_empty() {
            self.rule(errors, rule);
        }
    }

    /// Requires a string and applies a rule to it.
    pub fn required_rule(&self, errors: &mut ErrorList, rule: fn(&str) -> Vec<String>) {
        if self.not_empty(errors, "") {
            self.rule(errors, rule);
        }
    }

    /// Requires a string of at most `bytes_max` bytes.
    pub fn not_too_long(&self, errors: &mut ErrorList, bytes_max: usize) {
        if self.text().len() > bytes_max {
            errors.push_with(|| FieldError::too_long(&self.path, bytes_max));
        }
    }

    /// Requires a number that is not negative.
    pub fn not_negative(&self, errors: &mut ErrorList) {
        if self.number() < 0 {
            self.invalid(errors, NOT_NEGATIVE);
        }
    }

    /// Requires a number within a range if the value is present.
    pub fn in_range_if_set(&self, errors: &mut ErrorList, min: i64, max: i64) {
        if self.is_set() {
            self.in_range(errors, min, max);
        }
    }

    /// Requires a number within a range.
    pub fn in_range(&self, errors: &mut ErrorList, min: i64, max: i64) {
        for why in names::is_in_range(self.number(), min, max) {
            self.invalid_as(errors, self.number(), &why);
        }
    }

    /// Requires a port number.
    pub fn port(&self, errors: &mut ErrorList) {
        self.in_range(errors, 1, 65535);
    }

    /// Requires the value to equal `old`.
    pub fn unchanged(&self, errors: &mut ErrorList, old: &Value) {
        if !equal_or_empty(self.value, old) {
            self.invalid(errors, IMMUTABLE);
        }
    }

    /// Requires the field `name` of a struct of the type `of` to equal that of `old`.
    pub fn unchanged_member(&self, name: &str, of: &str, old: &Value, errors: &mut ErrorList) {
        let before = old.get(name).unwrap_or(&NULL);
        if !equality::equal_members(of, name, self.get(name), before) {
            self.field(name).invalid(errors, IMMUTABLE);
        }
    }

    /// Requires the label selector of a struct of the type `of` to equal that of `old`.
    pub fn unchanged_selector(&self, of: &str, old: &Value, errors: &mut ErrorList) {
        let before = old.get("selector").unwrap_or(&NULL);
        if !equality::equal_members(of, "selector", self.get("selector"), before) {
            let selector = self.field("selector");
            match selector.value {
                Value::Null => selector.invalid(errors, IMMUTABLE),
                _ => selector.invalid_selector(errors, IMMUTABLE),
            }
        }
    }

    /// Requires the value to equal `old`. The error shows an absent value as a Go zero value.
    pub fn unchanged_value(&self, errors: &mut ErrorList, old: &Value) {
        let zero = match (self.value, old) {
            (Value::Null, Value::String(_)) => Value::from(""),
            (Value::Null, Value::Object(_)) => Value::Object(Map::new()),
            _ => return self.unchanged(errors, old),
        };
        if !equal_or_empty(self.value, old) {
            self.invalid_as(errors, zero, IMMUTABLE);
        }
    }

    /// Validates labels.
    pub fn labels(&self, errors: &mut ErrorList) {
        errors.extend(validate_labels(self.value.as_object(), &self.path));
    }

    /// Validates a label selector.
    pub fn label_selector(&self, errors: &mut ErrorList) {
        errors.extend(validate_label_selector(Some(self.value), &self.path));
    }

    /// Returns the value as a quantity if it is one.
    pub fn quantity(&self) -> Option<Quantity> {
        quantity(self.value)
    }
}

/// How Go formats a field of an internal struct, which has no JSON names.
pub(super) enum Go {
    /// A pointer, list or map: null when absent.
    Pointer,
    /// A string: empty when absent.
    Text,
    /// A number: 0 when absent.
    Number,
    /// A boolean: false when absent.
    Flag,
    /// An internal struct, with all fields when absent.
    Value(GoMembers),
    /// A pointer to an internal struct.
    Struct(GoMembers),
    /// A list of internal structs.
    List(GoMembers),
}

/// The fields of an internal struct by their Go names, in order.
pub(super) type GoMembers = &'static [(&'static str, Go)];

/// Converts a value to the form in which error messages show an internal struct: with all fields,
/// by their Go names.
pub(super) fn as_go(value: &Value, members: GoMembers) -> Value {
    if value.as_object().is_some() { as_go_struct(value, members) } else { Value::Null }
}

/// The same for a struct that is no pointer: it has all fields when it is absent.
pub(super) fn as_go_struct(value: &Value, members: GoMembers) -> Value {
    let mut shown = Map::new();
    let given = value.as_object();
    for (name, how) in members {
        let found = given
            .and_then(|given| given.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)))
            .map_or(&Value::Null, |(_, value)| value);
        let value = match how {
            Go::Text if found.is_null() => "".into(),
            Go::Number if found.is_null() => 0.into(),
            Go::Flag if found.is_null() => false.into(),
            Go::Pointer | Go::Text | Go::Number | Go::Flag => found.clone(),
            Go::Value(members) => as_go_struct(found, members),
            Go::Struct(members) => as_go(found, members),
            Go::List(members) => match found.as_array() {
                Some(items) => {
                    items.iter().map(|item| as_go(item, members)).collect::<Vec<_>>().into()
                }
                None => Value::Null,
            },
        };
        shown.insert(*name, value);
    }
    Value::Object(shown)
}

/// Converts a label selector to the form in which error messages show it: members in Go's order,
/// none empty.
fn shown_selector(selector: &Value) -> Value {
    let mut shown = Map::new();
    let labels = selector.get("matchLabels").filter(|labels| !labels.is_empty());
    if let Some(labels) = labels {
        shown.insert("matchLabels", labels.clone().sorted());
    }
    let expressions: Vec<Value> = selector
        .array_at(&["matchExpressions"])
        .iter()
        .map(|expression| {
            let mut expression = expression.clone();
            if let Some(members) = expression.as_object_mut()
                && members.get("values").is_some_and(Value::is_empty)
            {
                members.remove("values");
            }
            expression
        })
        .collect();
    if !expressions.is_empty() {
        shown.insert("matchExpressions", expressions);
    }
    Value::Object(shown)
}

/// The error message for a negative number.
pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Parses a quantity: a string, or an integer that was stored before quantities were canonicalized.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Int(number) => {
            Some(Quantity::new(*number, keelson_meta::quantity::Format::DecimalSi))
        }
        _ => None,
    }
}

/// Sets a field that is absent or null.
pub(super) fn default(map: &mut Map, name: &'static str, value: impl Into<Value>) {
    default_at(map, Str::new_static(name), value);
}

/// Sets a field that is absent or null, for a name that is not static.
pub(super) fn default_at(map: &mut Map, name: Str, value: impl Into<Value>) {
    if map.get(&name).is_none_or(Value::is_null) {
        map.insert(name, value);
    }
}

/// Sets a field that is absent or has a zero value.
pub(super) fn default_empty(map: &mut Map, name: &'static str, value: impl Into<Value>) {
    if map.get(name).is_none_or(Value::is_empty) {
        map.insert(Str::new_static(name), value);
    }
}

/// Returns the map at a field, if there is one.
pub(super) fn child<'m>(map: &'m mut Map, name: &str) -> Option<&'m mut Map> {
    map.get_mut(name).and_then(Value::as_object_mut)
}

/// Validates a new address, or one that has changed (StrictIPCIDRValidation).
pub(super) fn new_ip(text: &str, path: &Path<'_>) -> ErrorList {
    match gates::is_on(Feature::StrictIPCIDRValidation) {
        true => ip::validate_strict_ip(text, path),
        false => ip::validate_sloppy_ip(text, path),
    }
}

/// The same of a CIDR.
pub(super) fn new_cidr(text: &str, path: &Path<'_>) -> ErrorList {
    match gates::is_on(Feature::StrictIPCIDRValidation) {
        true => ip::validate_strict_cidr(text, path),
        false => ip::validate_sloppy_cidr(text, path),
    }
}

/// Copies a member, or its absence.
pub(super) fn take(from: Option<&Map>, to: &mut Map, name: &'static str) {
    match from.and_then(|from| from.get(name)) {
        Some(value) => drop(to.insert(name, value.clone())),
        None => drop(to.remove(name)),
    }
}

/// Iterates over the maps in the list at a field.
pub(super) fn children<'m>(map: &'m mut Map, name: &str) -> impl Iterator<Item = &'m mut Map> {
    map.get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}
