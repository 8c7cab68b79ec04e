//! [`Fields`]: strict parsing of configuration files. Unknown fields and wrong types are errors.

use keelson_meta::{Map, Value};
use std::cell::RefCell;

/// Maximum errors that are reported for one file.
const ERRORS_MAX: usize = 100;

/// The errors of a file.
#[derive(Debug, Default)]
pub(crate) struct ConfigErrors(RefCell<Vec<String>>);

impl ConfigErrors {
    fn add(&self, error: String) {
        let mut errors = self.0.borrow_mut();
        if errors.len() < ERRORS_MAX {
            errors.push(error);
        }
    }

    pub fn into_result(self) -> Result<(), String> {
        let errors = self.0.into_inner();
        if errors.is_empty() {
            return Ok(());
        }
        Err(format!("strict decoding error: {}", errors.join(", ")))
    }
}

/// The fields of one object in a file.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'v> {
    map: Option<&'v Map>,
    path: String,
    errors: &'v ConfigErrors,
}

impl<'v> Fields<'v> {
    /// Returns the fields of the file's root object, which must have this kind.
    pub fn of_file(
        file: &'v Value,
        kind: &str,
        versions: &[&str],
        known_fields: &[&str],
        errors: &'v ConfigErrors,
    ) -> Result<Fields<'v>, String> {
        if file.is_null() {
            return Err("empty config data".to_owned());
        }
        let text = |name: &str| file.str_at(&[name]).unwrap_or_default();
        let found = text("kind");
        let version = text("apiVersion");
        let group_version = version.strip_prefix("apiserver.config.k8s.io/").unwrap_or_default();
        if found.is_empty() || version.is_empty() || !versions.contains(&group_version) {
            return Err(format!("no kind {found:?} is registered for version {version:?}"));
        }
        if found != kind {
            return Err(format!("expected {kind}, got {found}"));
        }
        let known_fields: Vec<&str> =
            ["kind", "apiVersion"].into_iter().chain(known_fields.iter().copied()).collect();
        Ok(Fields::new(Some(file), String::new(), &known_fields, errors))
    }

    fn new(
        value: Option<&'v Value>,
        path: String,
        known_fields: &[&str],
        errors: &'v ConfigErrors,
    ) -> Self {
        let map = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => {
                errors.add(format!("{path}: expected an object, got {}", other.type_name()));
                None
            }
        };
        let fields = Fields { map, path, errors };
        for (name, _) in map.into_iter().flat_map(Map::iter) {
            if !known_fields.contains(&name.as_str()) {
                errors.add(format!("unknown field {:?}", fields.path_of(name)));
            }
        }
        fields
    }

    /// Returns whether the object is present.
    pub fn is_there(&self) -> bool {
        self.map.is_some()
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn get(&self, name: &str) -> Option<&'v Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, wanted: &str, found: &Value) {
        let path = self.path_of(name);
        let found = found.type_name();
        self.errors.add(format!("{path}: expected {wanted}, got {found}"));
    }

    /// Returns a string; empty when it is absent.
    pub fn text(&self, name: &str) -> String {
        self.optional_text(name).unwrap_or_default()
    }

    /// Returns an optional string.
    pub fn optional_text(&self, name: &str) -> Option<String> {
        let value = self.get(name)?;
        if value.as_str().is_none() {
            self.wrong(name, "a string", value);
        }
        value.as_str().map(str::to_owned)
    }

    /// Returns a boolean; absent is false.
    pub fn flag(&self, name: &str) -> bool {
        self.flag_or(name, false)
    }

    /// Returns a boolean with a default.
    pub fn flag_or(&self, name: &str, default: bool) -> bool {
        let Some(value) = self.get(name) else { return default };
        if value.as_bool().is_none() {
            self.wrong(name, "a boolean", value);
        }
        value.as_bool().unwrap_or(default)
    }

    /// Returns a list of strings.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let text = |item: &Value| {
            if item.as_str().is_none() {
                self.wrong(name, "a list of strings", item);
            }
            item.as_str().unwrap_or_default().to_owned()
        };
        self.items(name).iter().map(text).collect()
    }

    /// Returns a nested object.
    pub fn object(&self, name: &str, known_fields: &[&str]) -> Fields<'v> {
        Fields::new(self.get(name), self.path_of(name), known_fields, self.errors)
    }

    /// Returns a list of objects.
    pub fn objects(&self, name: &str, known_fields: &[&str]) -> Vec<Fields<'v>> {
        let path = self.path_of(name);
        let one = |(at, item): (usize, &'v Value)| {
            Fields::new(Some(item), format!("{path}[{at}]"), known_fields, self.errors)
        };
        self.items(name).iter().enumerate().map(one).collect()
    }

    fn items(&self, name: &str) -> &'v [Value] {
        let Some(value) = self.get(name) else { return &[] };
        if value.as_array().is_none() {
            self.wrong(name, "a list", value);
        }
        value.as_array().unwrap_or_default()
    }
}
