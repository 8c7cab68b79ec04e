//! [`Object`]: an API object, with accessors for the metadata that every kind has.

use crate::{GroupVersionKind, Map, Str, Value};

/// A decoded API object. The root is always a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// The fields: `apiVersion`, `kind`, `metadata` and those of the kind.
    pub root: Map,
}

impl Object {
    /// Returns an object without fields.
    pub const fn new() -> Self {
        Object { root: Map::new() }
    }

    /// Converts a value that is a map.
    pub fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Object(root) => Some(Object { root }),
            _ => None,
        }
    }

    /// Returns the object as a value.
    pub fn into_value(self) -> Value {
        Value::Object(self.root)
    }

    /// Returns the field `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.root.get(name)
    }

    /// Returns the value at a path of field names.
    pub fn at(&self, names: &[&str]) -> Option<&Value> {
        let (first, rest) = names.split_first()?;
        self.root.get(first)?.at(rest)
    }

    /// Returns the string at a path of field names; empty when absent.
    pub fn str_at(&self, names: &[&str]) -> &str {
        self.at(names).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the integer at a path of field names.
    pub fn int_at(&self, names: &[&str]) -> Option<i64> {
        self.at(names).and_then(Value::as_int)
    }

    /// Returns the items at a path of field names; empty when absent.
    pub fn array_at(&self, names: &[&str]) -> &[Value] {
        self.at(names).and_then(Value::as_array).unwrap_or_default()
    }

    /// Returns a top-level map; creates it when absent: `object_mut("spec")`.
    pub fn object_mut(&mut self, name: &str) -> &mut Map {
        self.root.object_at(name)
    }

    /// Returns the owner reference of its controller.
    pub fn controller(&self) -> Option<&Value> {
        let owners = self.array_at(&["metadata", "ownerReferences"]);
        owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
    }

    /// Returns `metadata`, if it is present.
    pub fn metadata(&self) -> Option<&Map> {
        self.root.get("metadata").and_then(Value::as_object)
    }

    /// Returns `metadata`; creates it when absent.
    pub fn metadata_mut(&mut self) -> &mut Map {
        self.root.object_at("metadata")
    }

    fn meta_str(&self, name: &str) -> &str {
        self.metadata().and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets a string in `metadata`; removes it when empty.
    pub fn set_meta(&mut self, name: &str, text: &str) {
        if text.is_empty() {
            self.metadata_mut().remove(name);
        } else {
            self.metadata_mut().insert(name, text);
        }
    }

    /// Returns `metadata.name`, or empty.
    pub fn name(&self) -> &str {
        self.meta_str("name")
    }

    /// Returns `metadata.generateName`, or empty.
    pub fn generate_name(&self) -> &str {
        self.meta_str("generateName")
    }

    /// Returns `metadata.namespace`, or empty.
    pub fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }

    /// Returns `metadata.uid`, or empty.
    pub fn uid(&self) -> &str {
        self.meta_str("uid")
    }

    /// Returns `metadata.resourceVersion`, or empty.
    pub fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }

    /// Returns `metadata.generation`, 0 when absent.
    pub fn generation(&self) -> i64 {
        self.metadata().and_then(|m| m.get("generation")).and_then(Value::as_int).unwrap_or(0)
    }

    /// Returns `metadata.creationTimestamp`, or empty.
    pub fn creation_timestamp(&self) -> &str {
        self.meta_str("creationTimestamp")
    }

    /// Returns `metadata.deletionTimestamp`, when the object is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        Some(self.meta_str("deletionTimestamp")).filter(|text| !text.is_empty())
    }

    /// Returns `metadata.deletionGracePeriodSeconds`.
    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.metadata()?.get("deletionGracePeriodSeconds")?.as_int()
    }

    /// Returns `metadata.finalizers`.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.array_at(&["metadata", "finalizers"]).iter().filter_map(Value::as_str)
    }

    /// Returns `metadata.labels` or another string map of `metadata`.
    pub fn meta_map(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let map = self.metadata().and_then(|m| m.get(name)).and_then(Value::as_object);
        map.into_iter()
            .flat_map(Map::iter)
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// Returns the value of the label `key`.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.at(&["metadata", "labels"])?.get(key)?.as_str()
    }

    /// Returns the value of the annotation `key`.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.at(&["metadata", "annotations"])?.get(key)?.as_str()
    }

    /// Returns `kind`, or empty.
    pub fn kind(&self) -> &str {
        self.root.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `apiVersion`, or empty.
    pub fn api_version(&self) -> &str {
        self.root.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets `kind` and `apiVersion`.
    pub fn set_gvk(&mut self, gvk: &GroupVersionKind) {
        self.root.insert("kind", Value::String(gvk.kind.clone()));
        self.root.insert("apiVersion", Value::String(gvk.api_version()));
    }
}

impl From<Object> for Value {
    fn from(obj: Object) -> Self {
        Value::Object(obj.root)
    }
}

/// The key of an object among those of its resource: namespace (empty when cluster-scoped) and
/// name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

impl ObjectKey {
    /// Returns a key.
    pub fn new(namespace: impl Into<Str>, name: impl Into<Str>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }
}
