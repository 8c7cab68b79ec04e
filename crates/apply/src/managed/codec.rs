//! Decodes and encodes the entries of `managedFields`.

use super::{Manager, Managers, Operation};
use crate::fields::FieldSet;
use crate::go_fmt;
use keelson_meta::status::quote;
use keelson_meta::{Map, Object, Str, Value};
use std::fmt;

/// Why an entry of `managedFields` does not decode; upstream's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEntry(pub String);

impl fmt::Display for InvalidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidEntry {}

impl Managers {
    /// Decodes the entries of an object's `managedFields`.
    pub fn decode(entries: &[Value]) -> Result<Managers, InvalidEntry> {
        let mut managers = Managers { list: Vec::with_capacity(entries.len()) };
        managers.put_all(entries.iter().enumerate().map(|(i, entry)| decode(i, entry)))?;
        Ok(managers)
    }

    /// Decodes the managers of an object. Returns none when its `managedFields` are invalid.
    pub fn of(object: &Object) -> Managers {
        Managers::decode(object.array_at(&["metadata", "managedFields"])).unwrap_or_default()
    }

    /// Encodes the entries in upstream's order: by operation, time, name, version and subresource.
    pub fn encode(mut self) -> Vec<Value> {
        self.list.sort_by(|a, b| {
            a.operation
                .cmp(&b.operation)
                .then_with(|| a.time_key().cmp(b.time_key()))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        self.list.into_iter().map(encode).collect()
    }

    /// Writes the entries into the object. Removes `managedFields` when there are none.
    pub fn store(self, object: &mut Object) {
        let entries = self.encode();
        if entries.is_empty() {
            if let Some(Value::Object(metadata)) = object.root.get_mut("metadata") {
                metadata.remove("managedFields");
            }
            return;
        }
        object.metadata_mut().insert("managedFields", entries);
    }
}

fn decode(i: usize, entry: &Value) -> Result<Manager, InvalidEntry> {
    let text = |name: &str| match entry.get(name) {
        Some(Value::String(text)) => text.clone(),
        _ => Str::default(),
    };
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(InvalidEntry("operation must be `Apply` or `Update`".to_owned())),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(InvalidEntry("apiVersion must not be empty".to_owned()));
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(InvalidEntry(format!("missing fieldsType in managed fields entry {i}"))),
        other => {
            let shown = quote(other);
            return Err(InvalidEntry(format!(
                "invalid fieldsType {shown} in managed fields entry {i}"
            )));
        }
    }
    let tree = entry.get("fieldsV1").unwrap_or(&Value::Null);
    let (fields, is_canonical) = FieldSet::decode_canonical(tree).map_err(|error| {
        let shown = go_fmt::plain(entry);
        InvalidEntry(format!(
            "error decoding versioned set from {shown}: error decoding set: {error}"
        ))
    })?;
    Ok(Manager {
        name: text("manager"),
        operation,
        api_version,
        subresource: text("subresource"),
        time: Some(text("time")).filter(|time| !time.is_empty()),
        encoded: is_canonical.then(|| tree.clone()),
        fields,
    })
}

fn encode(manager: Manager) -> Value {
    let optional =
        [!manager.name.is_empty(), manager.time.is_some(), !manager.subresource.is_empty()];
    let mut entry = Map::with_capacity(4 + optional.into_iter().filter(|is_set| *is_set).count());
    if !manager.name.is_empty() {
        entry.insert("manager", manager.name);
    }
    entry.insert("operation", manager.operation.as_str());
    entry.insert("apiVersion", manager.api_version);
    if let Some(time) = manager.time {
        entry.insert("time", time);
    }
    entry.insert("fieldsType", "FieldsV1");
    entry.insert("fieldsV1", manager.encoded.unwrap_or_else(|| manager.fields.encode()));
    if !manager.subresource.is_empty() {
        entry.insert("subresource", manager.subresource);
    }
    Value::Object(entry)
}
