//! [`RecordChecker`]: checks the records of a store that no server uses (`keelson check`).

use crate::kind::Kind;
use crate::stored_resources::StoredResources;
use keelson_records::Entry;
use keelson_schema::{decode, json};
use keelson_store::KeyValue;
use std::sync::Arc;

/// A record under a key of its own that is no object of the API.
#[derive(Clone, Copy, Debug)]
pub struct OtherRecord {
    /// Its key.
    pub key: &'static [u8],
    /// Its name in the output of `keelson check`.
    pub name: &'static str,
    /// Checks its value. The error says why it cannot be read.
    pub check: fn(&[u8]) -> Result<(), String>,
}

/// Checks records of the built-in kinds.
#[derive(Debug)]
pub struct RecordChecker {
    resources: StoredResources,
    others: &'static [OtherRecord],
}

impl RecordChecker {
    /// Returns a checker for all built-in kinds, including those that are not served by default,
    /// and for `others`.
    pub fn for_all_kinds(others: &'static [OtherRecord]) -> RecordChecker {
        RecordChecker { resources: StoredResources::default(), others }
    }

    /// Returns the resource of a key; `None` if the key is unknown.
    pub fn name(&self, key: &[u8]) -> Option<String> {
        if let Some(other) = self.other(key) {
            return Some(other.name.to_owned());
        }
        self.kind(key).map(|kind| kind.gvr.qualified().to_string())
    }

    /// Checks that a record is a valid object of the kind and name in its key. The error says why
    /// not.
    pub fn check(&self, kv: &KeyValue) -> Result<(), String> {
        if let Some(other) = self.other(&kv.key) {
            return (other.check)(&kv.value);
        }
        let Some(kind) = self.kind(&kv.key) else { return Ok(()) };
        let entry = Entry::from_store(kind.prefix.len(), kv).map_err(|error| error.why)?;
        let parsed = json::parse(&entry.json_slice()).map_err(|error| error.to_string())?;
        // Raw extensions are stored as the client wrote them, and may have duplicate members.
        let mut duplicates = parsed.duplicates.iter().filter(|_| !kind.strategy.has_raw_extension);
        if let Some(duplicate) = duplicates.next() {
            return Err(format!("{duplicate} stands twice"));
        }
        // The storage version depends on the versions that the server serves.
        let mut schemas = std::iter::once(&kind.storage).chain(&kind.versions);
        let text = |name: &str| parsed.value.get(name).and_then(|value| value.as_str());
        let schema = schemas
            .find(|schema| {
                let gvk = &schema.gvk;
                text("kind") == Some(&gvk.kind) && text("apiVersion") == Some(&gvk.api_version())
            })
            .ok_or_else(|| format!("it is not a {}", kind.name()))?;
        let decoded = decode::canonicalize(schema, parsed.value)?;
        if let Some(unknown) = decoded.strict_errors.first() {
            return Err(unknown.clone());
        }
        let obj = decoded.object;
        let key = kind.key(obj.namespace(), obj.name());
        if entry.key() != key {
            return Err(format!("the object calls itself {key}"));
        }
        Ok(())
    }

    /// Returns why a server cannot read a record; `None` if it can.
    pub fn unreadable_reason(&self, kv: &KeyValue) -> Option<String> {
        if let Some(other) = self.other(&kv.key) {
            return (other.check)(&kv.value).err();
        }
        let kind = self.kind(&kv.key)?;
        match Entry::from_store(kind.prefix.len(), kv) {
            Err(error) => Some(error.why.into_owned()),
            Ok(entry) => json::check_object(&entry.json_slice()).err().map(|e| e.to_string()),
        }
    }

    fn kind(&self, key: &[u8]) -> Option<&Arc<Kind>> {
        self.resources.kind(key)
    }

    fn other(&self, key: &[u8]) -> Option<&'static OtherRecord> {
        self.others.iter().find(|other| other.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::{OtherRecord, RecordChecker};
    use bytes::Bytes;
    use keelson_store::{KeyValue, Revision};

    fn check(key: &str, json: &str) -> Result<(), String> {
        let at = json.find("resourceVersion\":\"").map_or(0, |at| at + 18);
        let labels = &[];
        let fields = &[];
        let json = json.as_bytes();
        let record =
            keelson_records::Record { json, resource_version_at: at, item_at: 1, labels, fields };
        check_bytes(key, record.encode())
    }

    fn check_bytes(key: &str, value: Bytes) -> Result<(), String> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let created = Revision(4);
        let modified = Revision(4);
        RecordChecker::for_all_kinds(&[]).check(&KeyValue { key, value, created, modified })
    }

    #[test]
    fn an_object_must_have_the_kind_and_name_of_its_key() {
        let key = "/registry/configmaps/default/a";
        let map = |rest: &str, meta: &str| {
            format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{{meta},"resourceVersion":"0"}}{rest}}}"#
            )
        };
        let meta = r#""name":"a","namespace":"default""#;
        let good = map(r#","data":{"k":"v"}"#, meta);
        assert_eq!(check(key, &good), Ok(()));
        assert_eq!(check("/registry/of/something/else", "{}x"), Ok(()));
        let of_b = "/registry/configmaps/default/b";
        let of_secret = "/registry/secrets/default/a";
        let checks = [
            (of_b, good.clone(), "the object calls itself default/a"),
            (of_secret, good.clone(), "it is not a Secret"),
            (key, map(r#","data":{"k":"v","k":"w"}"#, meta), "data.k stands twice"),
            (key, map(r#","date":{}"#, meta), r#"unknown field "date""#),
            (key, map("", r#""name":"a","namespace":"other""#), "the object calls itself other/a"),
        ];
        for (key, json, expected) in checks {
            assert_eq!(check(key, &json), Err(expected.to_owned()), "{json}");
        }
        assert!(check(key, &map(r#","data":{"k":7}"#, meta)).is_err());
        assert!(check(key, &good[..good.len() - 1]).is_err());
        assert_eq!(check_bytes(key, Bytes::new()), Err("unknown record format".to_owned()));
    }

    #[test]
    fn a_record_that_is_no_object_has_its_own_check() {
        const OTHERS: &[OtherRecord] = &[OtherRecord {
            key: b"/registry/ranges/a",
            name: "ranges/a",
            check: |value| if value == b"good" { Ok(()) } else { Err("it is bad".to_owned()) },
        }];
        let checker = RecordChecker::for_all_kinds(OTHERS);
        assert_eq!(checker.name(b"/registry/ranges/a").as_deref(), Some("ranges/a"));
        assert_eq!(checker.name(b"/registry/deployments/a/b").as_deref(), Some("deployments.apps"));
        assert_eq!(checker.name(b"/registry/ranges/serviceips"), None);
        let kv = |value: &'static [u8]| KeyValue {
            key: Bytes::from_static(b"/registry/ranges/a"),
            value: Bytes::from_static(value),
            created: Revision(4),
            modified: Revision(4),
        };
        assert_eq!(checker.check(&kv(b"good")), Ok(()));
        assert_eq!(checker.check(&kv(b"worse")), Err("it is bad".to_owned()));
        assert_eq!(checker.unreadable_reason(&kv(b"good")), None);
        assert_eq!(checker.unreadable_reason(&kv(b"worse")).as_deref(), Some("it is bad"));
    }
}
