//! [`RecordChecker`]: checks the records of a store that no server uses (`keelson check`).

use crate::services::{PORTS_KEY, check_ports};
use crate::stored_resources::StoredResources;
use keelson_cache::Entry;
use keelson_registry::Kind;
use keelson_schema::{decode, json};
use keelson_store::KeyValue;
use std::sync::Arc;

/// The name of the node port bitmap in the output of `keelson check`.
const PORTS_NAME: &str = "ranges/servicenodeports";

/// Checks records of the built-in kinds.
pub struct RecordChecker {
    resources: StoredResources,
}

impl RecordChecker {
    /// Returns a checker for all built-in kinds, including those that are not served by default.
    pub fn for_all_kinds() -> RecordChecker {
        RecordChecker { resources: StoredResources::default() }
    }

    /// Returns the resource of a key; `None` if the key is unknown.
    pub fn name(&self, key: &[u8]) -> Option<String> {
        if key == PORTS_KEY {
            return Some(PORTS_NAME.to_owned());
        }
        self.kind(key).map(|kind| kind.gvr.qualified().to_string())
    }

    /// Checks that a record is a valid object of the kind and name in its key. The error says why not.
    pub fn check(&self, kv: &KeyValue) -> Result<(), String> {
        if kv.key == PORTS_KEY {
            return check_ports(&kv.value);
        }
        let Some(kind) = self.kind(&kv.key) else { return Ok(()) };
        let entry = Entry::from_store(kind.prefix.len(), kv).map_err(|error| error.why)?;
        let parsed = json::parse(entry.json_slice()).map_err(|error| error.to_string())?;
        // Raw extensions are stored as the client wrote them, and may have duplicate members.
        let mut duplicates = parsed.duplicates.iter().filter(|_| !kind.strategy.has_raw_extension);
        if let Some(duplicate) = duplicates.next() {
            return Err(format!("{duplicate} stands twice"));
        }
        // The storage version depends on the versions that the server serves.
        let mut schemas = std::iter::once(&kind.storage).chain(&kind.versions);
        let text = |name: &str| parsed.value.get(name).and_then(|value| value.as_str());
        let schema = schemas.find(|schema| {
            let gvk = &schema.gvk;
            text("kind") == Some(&gvk.kind) && text("apiVersion") == Some(&gvk.api_version())
        });
        let schema = schema.ok_or_else(|| format!("it is not a {}", kind.name()))?;
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
        if kv.key == PORTS_KEY {
            return check_ports(&kv.value).err();
        }
        let kind = self.kind(&kv.key)?;
        match Entry::from_store(kind.prefix.len(), kv) {
            Err(error) => Some(error.why.into_owned()),
            Ok(entry) => json::check_object(entry.json_slice()).err().map(|e| e.to_string()),
        }
    }

    fn kind(&self, key: &[u8]) -> Option<&Arc<Kind>> {
        self.resources.kind(key)
    }
}

#[cfg(test)]
mod tests {
    use super::RecordChecker;
    use bytes::Bytes;
    use keelson_store::{KeyValue, Revision};

    fn check(key: &str, json: &str) -> Result<(), String> {
        let at = json.find("resourceVersion\":\"").map_or(0, |at| at + 18);
        let (labels, fields) = (&[], &[]);
        let json = json.as_bytes();
        let record =
            keelson_cache::Record { json, resource_version_at: at, item_at: 1, labels, fields };
        check_bytes(key, record.encode())
    }

    fn check_bytes(key: &str, value: Bytes) -> Result<(), String> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let (created, modified) = (Revision(4), Revision(4));
        RecordChecker::for_all_kinds().check(&KeyValue { key, value, created, modified })
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
        let (of_b, of_secret) = ("/registry/configmaps/default/b", "/registry/secrets/default/a");
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
    fn the_node_port_bitmap_is_checked() {
        let key = "/registry/ranges/servicenodeports";
        let ports =
            br#"{"kind":"RangeAllocation","apiVersion":"v1","range":"30000-32767","data":"Ag=="}"#;
        let name = |key: &str| RecordChecker::for_all_kinds().name(key.as_bytes());
        assert_eq!(name(key).as_deref(), Some("ranges/servicenodeports"));
        assert_eq!(name("/registry/deployments/a/b").as_deref(), Some("deployments.apps"));
        assert_eq!(name("/registry/ranges/serviceips"), None);
        assert_eq!(check_bytes(key, Bytes::from_static(ports)), Ok(()));
        check_bytes(key, Bytes::from_static(b"none")).expect_err("these are no ports");
    }
}
