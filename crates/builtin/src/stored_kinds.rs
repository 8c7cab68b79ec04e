//! What a stored record must be, for those who look at a store that no server uses.

use crate::services::{PORTS_KEY, check_ports};
use keelson_cache::{Entry, PrefixMap, get_by_prefix};
use keelson_meta::Features;
use keelson_registry::{Kind, built_in_kinds};
use keelson_schema::{decode, json};
use keelson_store::KeyValue;
use std::sync::Arc;

/// Where the ports of nodes stand, as `keelson check` calls it.
const PORTS_NAME: &str = "ranges/servicenodeports";

/// Every built-in kind, by the prefix of its keys.
pub struct StoredKinds {
    by_prefix: PrefixMap<Arc<Kind>>,
}

impl StoredKinds {
    /// All kinds, whether a server serves them by default or not.
    pub fn all() -> StoredKinds {
        let mut kinds = built_in_kinds(&[("api/all".to_owned(), true)], Features::ALL);
        // Both resources of events stand in one place and in one form, that of the core group.
        kinds.sort_by(|one, other| other.gvr.group.cmp(&one.gvr.group));
        let by_prefix = kinds.into_iter().map(|kind| (kind.prefix.clone(), kind)).collect();
        StoredKinds { by_prefix }
    }

    /// The resource to which a key belongs, or what else stands there, if it is one of those known.
    pub fn name(&self, key: &[u8]) -> Option<String> {
        if key == PORTS_KEY {
            return Some(PORTS_NAME.to_owned());
        }
        self.kind(key).map(|kind| kind.gvr.qualified().to_string())
    }

    /// Whether a record is an object of the kind whose key it has, under the name that its key says.
    pub fn check(&self, kv: &KeyValue) -> Result<(), String> {
        if kv.key == PORTS_KEY {
            return check_ports(&kv.value);
        }
        let Some(kind) = self.kind(&kv.key) else { return Ok(()) };
        let entry = Entry::from_store(kind.prefix.len(), kv).map_err(|error| error.why)?;
        let parsed = json::parse(entry.json_slice()).map_err(|error| error.to_string())?;
        // In what is kept as its author wrote it, a member may stand twice.
        let mut twice = parsed.duplicates.iter().filter(|_| !kind.strategy.has_raw_extension);
        if let Some(twice) = twice.next() {
            return Err(format!("{twice} stands twice"));
        }
        // A server that does not serve the preferred version stores another one.
        let mut schemas = std::iter::once(&kind.storage).chain(&kind.versions);
        let said = |name: &str| parsed.value.get(name).and_then(|value| value.as_str());
        let schema = schemas.find(|schema| {
            let gvk = &schema.gvk;
            said("kind") == Some(&gvk.kind) && said("apiVersion") == Some(&gvk.api_version())
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

    /// Why a server could not read the object of a record, if it could not.
    pub fn unreadable(&self, kv: &KeyValue) -> Option<String> {
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
        get_by_prefix(&self.by_prefix, key)
    }
}

#[cfg(test)]
mod tests {
    use super::StoredKinds;
    use bytes::Bytes;
    use keelson_store::{KeyValue, Revision};

    /// What is said of a stored text under a key.
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
        StoredKinds::all().check(&KeyValue { key, value, created, modified })
    }

    #[test]
    fn an_object_is_of_its_kind_and_has_the_name_of_its_key() {
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
    fn what_stands_beside_the_objects_is_known_and_checked_too() {
        let key = "/registry/ranges/servicenodeports";
        let ports =
            br#"{"kind":"RangeAllocation","apiVersion":"v1","range":"30000-32767","data":"Ag=="}"#;
        let name = |key: &str| StoredKinds::all().name(key.as_bytes());
        assert_eq!(name(key).as_deref(), Some("ranges/servicenodeports"));
        assert_eq!(name("/registry/deployments/a/b").as_deref(), Some("deployments.apps"));
        assert_eq!(name("/registry/ranges/serviceips"), None);
        assert_eq!(check_bytes(key, Bytes::from_static(ports)), Ok(()));
        check_bytes(key, Bytes::from_static(b"none")).expect_err("these are no ports");
    }
}
