//! [`SchemaText`]: the OpenAPI v3 schema of a version of a custom resource. Schemas are most of a
//! CustomResourceDefinition, so they are not copied but read from the definition in the cache.

use bytes::Bytes;
use keelson_meta::Value;
use keelson_records::Entry;
use keelson_schema::json::{self, item_ranges, value_range};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An OpenAPI v3 schema as JSON. Clones share it.
#[derive(Clone)]
pub struct SchemaText(Source);

#[derive(Clone)]
enum Source {
    Own(Bytes),
    Definition(Arc<Mutex<DefinitionRange>>),
}

/// A range in the JSON of a definition, which shares the bytes of its entry.
#[derive(Clone)]
struct DefinitionRange {
    definition: Bytes,
    range: Range<usize>,
}

impl Default for SchemaText {
    /// A schema without any constraint.
    fn default() -> Self {
        SchemaText(Source::Own(Bytes::new()))
    }
}

impl From<Bytes> for SchemaText {
    fn from(text: Bytes) -> Self {
        SchemaText(Source::Own(text))
    }
}

impl fmt::Debug for SchemaText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a schema of {} bytes", self.open().as_ref().len())
    }
}

impl SchemaText {
    /// Finds the schema of a version in the JSON of its definition; keeps a copy of `schema` if it
    /// is not there.
    pub fn of_version(definition: &Entry, version: &str, schema: &Value) -> SchemaText {
        SchemaText(match DefinitionRange::of(definition, version) {
            Some(range) => Source::Definition(Arc::new(Mutex::new(range))),
            None => {
                let mut text = vec![];
                json::write_value(schema, &mut text);
                Source::Own(text.into())
            }
        })
    }

    /// Releases the definition for a newer one with the same schemas.
    pub(crate) fn follow(&self, definition: &Entry, version: &str) {
        let Source::Definition(shared) = &self.0 else { return };
        let Some(newer) = DefinitionRange::of(definition, version) else { return };
        let mut current = lock(shared);
        if current.text() == newer.text() {
            *current = newer;
        }
    }

    /// Returns the schema; empty: no constraint.
    pub fn open(&self) -> SchemaBytes {
        SchemaBytes(match &self.0 {
            Source::Own(text) => Text::Own(text.clone()),
            Source::Definition(shared) => Text::Definition(lock(shared).clone()),
        })
    }
}

/// The bytes of a schema.
pub struct SchemaBytes(Text);

enum Text {
    Own(Bytes),
    Definition(DefinitionRange),
}

impl AsRef<[u8]> for SchemaBytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Text::Own(text) => text,
            Text::Definition(range) => range.text(),
        }
    }
}

impl DefinitionRange {
    fn of(definition: &Entry, version: &str) -> Option<DefinitionRange> {
        let definition = definition.json();
        let range = schema_range(&definition, version)?;
        Some(DefinitionRange { definition, range })
    }

    fn text(&self) -> &[u8] {
        &self.definition[self.range.clone()]
    }
}

fn schema_range(text: &[u8], version: &str) -> Option<Range<usize>> {
    let versions = value_range(text, &["spec", "versions"])?;
    let is_named = |item: &Range<usize>| {
        let name = value_range(&text[item.clone()], &["name"]);
        // Names of versions contain no escapes.
        name.is_some_and(|name| {
            let name = &text[item.clone()][name];
            name.len() == version.len() + 2 && name[1..=version.len()] == *version.as_bytes()
        })
    };
    let item = item_ranges(text, versions.start).into_iter().find(is_named)?;
    let schema = value_range(&text[item.clone()], &["schema", "openAPIV3Schema"])?;
    Some(item.start + schema.start..item.start + schema.end)
}

fn lock(range: &Mutex<DefinitionRange>) -> MutexGuard<'_, DefinitionRange> {
    range.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;
    use keelson_records::Record;
    use keelson_store::{KeyValue, Revision};

    fn entry(revision: u64, status: &str) -> Entry {
        let json = format!(
            r#"{{"kind":"CustomResourceDefinition","metadata":{{"resourceVersion":"0"}},"spec":{{"versions":[{{"name":"v1"}},{{"name":"v1beta1","schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}]}},"status":"{status}"}}"#
        );
        let record = Record {
            json: json.as_bytes(),
            resource_version_at: json.find("\"0\"").expect("a placeholder") + 1,
            item_at: 1,
            labels: &[],
            fields: &[],
        };
        let created = Revision(1);
        let modified = Revision(revision);
        let kv = KeyValue { key: "/r/a".into(), value: record.encode(), created, modified };
        Entry::from_store(3, &kv).expect("an entry")
    }

    #[test]
    fn the_schema_of_a_version_is_read_from_its_definition() {
        let first = entry(7, "");
        let text = SchemaText::of_version(&first, "v1beta1", &Value::Null);
        assert_eq!(text.open().as_ref(), br#"{"type":"object"}"#);
        // A schema that is not in the text is copied.
        let schema = value!({"type": "object", "nullable": true});
        let other = SchemaText::of_version(&first, "v1", &schema);
        assert_eq!(other.open().as_ref(), br#"{"type":"object","nullable":true}"#);
        let second = entry(1_000_000, "other");
        text.follow(&second, "v1beta1");
        assert_eq!(text.open().as_ref(), br#"{"type":"object"}"#);
        let Source::Definition(shared) = &text.0 else { panic!("{text:?}") };
        assert_eq!(lock(shared).definition, second.json());
        text.follow(&second, "v1");
        assert_eq!(lock(shared).definition, second.json());
    }
}
