//! [`At`]: a value and where it stands, with the checks that all kinds share. A check appends
//! what is wrong to a list, so that the order of faults is the order in which checks are written.

use crate::same;
use crate::same::alike;
use keelson_meta::names;
use keelson_meta::object_meta::{IMMUTABLE, validate_labels};
use keelson_meta::selector::validate_label_selector;
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Quantity, Str, Value};

/// What an absent member counts as.
static NULL: Value = Value::Null;
static NO_TEXT: Value = Value::String(Str::new_static(""));

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'v, 'p> {
    /// The value; null when it is absent.
    pub value: &'v Value,
    /// Where it stands.
    pub path: Path<'p>,
}

impl<'v, 'p> At<'v, 'p> {
    /// A top-level member of an object.
    pub fn of(obj: &'v Object, name: &'p str) -> At<'v, 'p> {
        At { value: obj.get(name).unwrap_or(&NULL), path: Path::new(name) }
    }

    /// A value at a place of its own.
    pub fn new(value: Option<&'v Value>, path: Path<'p>) -> At<'v, 'p> {
        At { value: value.unwrap_or(&NULL), path }
    }

    /// The member `name`.
    pub fn field<'q>(&'q self, name: &'q str) -> At<'v, 'q> {
        At { value: self.get(name), path: self.path.field(name) }
    }

    /// The entry `key` of a map.
    pub fn field_at<'q>(&'q self, key: &'q str) -> At<'v, 'q> {
        At { value: self.get(key), path: self.path.key(key) }
    }

    /// The value of the member `name`; null when it is absent.
    pub fn get(&self, name: &str) -> &'v Value {
        self.value.get(name).unwrap_or(&NULL)
    }

    /// The items of a list.
    pub fn items<'q>(&'q self) -> impl Iterator<Item = At<'v, 'q>> {
        self.array().iter().enumerate().map(|(i, value)| At { value, path: self.path.index(i) })
    }

    /// The entries of a map, sorted by key.
    pub fn entries<'q>(&'q self) -> impl Iterator<Item = (&'v str, At<'v, 'q>)>
    where
        'v: 'q,
    {
        let map = self.value.as_object();
        let sorted = map.map(Map::sorted).unwrap_or_default();
        let place = |(key, value): (&'v Str, &'v Value)| {
            (key.as_str(), At { value, path: self.path.key(key) })
        };
        sorted.into_iter().map(place)
    }

    /// The items of a list; an absent list is an empty one.
    pub fn array(&self) -> &'v [Value] {
        self.value.as_array().unwrap_or_default()
    }

    /// The text; absent is empty.
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The text of a member.
    pub fn str(&self, name: &str) -> &'v str {
        self.get(name).as_str().unwrap_or_default()
    }

    /// The number; absent is 0.
    pub fn number(&self) -> i64 {
        self.value.as_int().unwrap_or(0)
    }

    /// The number of a member.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name).as_int()
    }

    /// Whether a member is true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).as_bool() == Some(true)
    }

    /// The value, if there is one.
    pub fn get_self(&self) -> Option<&'v Value> {
        Some(self.value).filter(|value| !value.is_null())
    }

    /// Whether there is a value.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether a member is there.
    pub fn has(&self, name: &str) -> bool {
        !self.get(name).is_null()
    }

    /// The value must be there.
    pub fn required(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::required(&self.path, detail));
    }

    /// The value is not allowed.
    pub fn invalid(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::invalid(&self.path, self.value.clone(), detail));
    }

    /// The value is not allowed, and messages show `shown` for it.
    pub fn invalid_as(&self, errors: &mut ErrorList, shown: impl Into<Value>, detail: &str) {
        errors.push_with(|| FieldError::invalid(&self.path, shown, detail));
    }

    /// The value may not be given.
    pub fn forbidden(&self, errors: &mut ErrorList, detail: &str) {
        errors.push_with(|| FieldError::forbidden(&self.path, detail));
    }

    /// The value stands twice.
    pub fn duplicate(&self, errors: &mut ErrorList) {
        // What can be a duplicate and is not set is an empty text.
        let shown = if self.value.is_null() { &NO_TEXT } else { self.value };
        errors.push_with(|| FieldError::duplicate(&self.path, shown.clone()));
    }

    /// The value is outside a fixed set.
    pub fn not_supported(&self, errors: &mut ErrorList, valid: &[&str]) {
        let shown = || if self.is_set() { self.value.clone() } else { Value::from("") };
        errors.push_with(|| FieldError::not_supported(&self.path, shown(), valid));
    }

    /// The value must be one of a fixed set, in which the empty text is not.
    pub fn one_of(&self, errors: &mut ErrorList, valid: &[&str]) {
        if !valid.contains(&self.text()) {
            self.not_supported(errors, valid);
        }
    }

    /// Like [`At::one_of`] when there is a value.
    pub fn one_of_if_set(&self, errors: &mut ErrorList, valid: &[&str]) {
        if self.is_set() {
            self.one_of(errors, valid);
        }
    }

    /// Like [`At::one_of`], where the empty text is said to be missing.
    pub fn required_one_of(&self, errors: &mut ErrorList, valid: &[&str]) {
        if self.text().is_empty() {
            self.required(errors, "");
        } else {
            self.one_of(errors, valid);
        }
    }

    /// The text must be there.
    pub fn not_empty(&self, errors: &mut ErrorList, detail: &str) -> bool {
        if self.value.is_empty() {
            self.required(errors, detail);
        }
        !self.value.is_empty()
    }

    /// A rule for texts, such as [`names::is_dns1123_label`].
    pub fn rule(&self, errors: &mut ErrorList, rule: fn(&str) -> Vec<String>) {
        for why in rule(self.text()) {
            self.invalid_as(errors, self.text(), &why);
        }
    }

    /// Like [`At::rule`] when the text is not empty.
    pub fn rule_if_set(&self, errors: &mut ErrorList, rule: fn(&str) -> Vec<String>) {
        if !self.text().is_empty() {
            self.rule(errors, rule);
        }
    }

    /// The text must be there and follow a rule.
    pub fn required_rule(&self, errors: &mut ErrorList, rule: fn(&str) -> Vec<String>) {
        if self.not_empty(errors, "") {
            self.rule(errors, rule);
        }
    }

    /// The text must not be longer than `bytes_max`.
    pub fn not_too_long(&self, errors: &mut ErrorList, bytes_max: usize) {
        if self.text().len() > bytes_max {
            errors.push_with(|| FieldError::too_long(&self.path, bytes_max));
        }
    }

    /// The number must not be negative.
    pub fn not_negative(&self, errors: &mut ErrorList) {
        if self.number() < 0 {
            self.invalid(errors, NOT_NEGATIVE);
        }
    }

    /// The number must lie in a range, if it is there.
    pub fn in_range_if_set(&self, errors: &mut ErrorList, min: i64, max: i64) {
        if self.is_set() {
            self.in_range(errors, min, max);
        }
    }

    /// The number must lie in a range.
    pub fn in_range(&self, errors: &mut ErrorList, min: i64, max: i64) {
        for why in names::is_in_range(self.number(), min, max) {
            self.invalid_as(errors, self.number(), &why);
        }
    }

    /// The number must be that of a port.
    pub fn port(&self, errors: &mut ErrorList) {
        self.in_range(errors, 1, 65535);
    }

    /// The value must be what it was.
    pub fn unchanged(&self, errors: &mut ErrorList, old: &Value) {
        if !alike(self.value, old) {
            self.invalid(errors, IMMUTABLE);
        }
    }

    /// The member of a struct of a named type must be what it was.
    pub fn unchanged_member(&self, name: &str, of: &str, old: &Value, errors: &mut ErrorList) {
        let before = old.get(name).unwrap_or(&NULL);
        if !same::equal_members(of, name, self.get(name), before) {
            self.field(name).invalid(errors, IMMUTABLE);
        }
    }

    /// The same, where an absent value is shown as the zero value of a Go type that is no pointer.
    pub fn unchanged_value(&self, errors: &mut ErrorList, old: &Value) {
        let zero = match (self.value, old) {
            (Value::Null, Value::String(_)) => Value::from(""),
            (Value::Null, Value::Object(_)) => Value::Object(Map::new()),
            _ => return self.unchanged(errors, old),
        };
        if !alike(self.value, old) {
            self.invalid_as(errors, zero, IMMUTABLE);
        }
    }

    /// Labels.
    pub fn labels(&self, errors: &mut ErrorList) {
        errors.extend(validate_labels(self.value.as_object(), &self.path));
    }

    /// A label selector.
    pub fn label_selector(&self, errors: &mut ErrorList) {
        errors.extend(validate_label_selector(Some(self.value), &self.path));
    }

    /// The amount, if the text is one.
    pub fn quantity(&self) -> Option<Quantity> {
        quantity(self.value)
    }
}

/// How Go shows a member of a struct that has no names of JSON.
pub(super) enum Go {
    /// A pointer, a list or a map, which is null when it is absent.
    Pointer,
    /// A text, empty when it is absent.
    Text,
    /// A number, 0 when it is absent.
    Number,
    /// A pointer to such a struct.
    Struct(GoMembers),
    /// A list of such structs.
    List(GoMembers),
}

/// The members of a struct by their names in Go, in order.
pub(super) type GoMembers = &'static [(&'static str, Go)];

/// A struct as messages show it that Go has no names of JSON for: with all of its members.
pub(super) fn as_go(value: &Value, members: GoMembers) -> Value {
    let Some(given) = value.as_object() else { return Value::Null };
    let mut shown = Map::new();
    for (name, how) in members {
        let found = given.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        let found = found.map_or(&Value::Null, |(_, value)| value);
        let value = match how {
            Go::Text if found.is_null() => "".into(),
            Go::Number if found.is_null() => 0.into(),
            Go::Pointer | Go::Text | Go::Number => found.clone(),
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

/// The words for a number below zero.
pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// An amount as objects hold it: text, or a number from before it was made canonical.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Int(number) => {
            Some(Quantity::new(*number, keelson_meta::quantity::Format::DecimalSi))
        }
        _ => None,
    }
}

/// Sets a member that is absent or null.
pub(super) fn default(map: &mut Map, name: &'static str, value: impl Into<Value>) {
    default_at(map, Str::new_static(name), value);
}

/// The same for a name that is not fixed.
pub(super) fn default_at(map: &mut Map, name: Str, value: impl Into<Value>) {
    if map.get(&name).is_none_or(Value::is_null) {
        map.insert(name, value);
    }
}

/// Sets a member that is absent or a zero value.
pub(super) fn default_empty(map: &mut Map, name: &'static str, value: impl Into<Value>) {
    if map.get(name).is_none_or(Value::is_empty) {
        map.insert(Str::new_static(name), value);
    }
}

/// The map at a member, if there is one.
pub(super) fn child<'m>(map: &'m mut Map, name: &str) -> Option<&'m mut Map> {
    map.get_mut(name).and_then(Value::as_object_mut)
}

/// The maps in the list at a member.
pub(super) fn children<'m>(map: &'m mut Map, name: &str) -> impl Iterator<Item = &'m mut Map> {
    map.get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}
