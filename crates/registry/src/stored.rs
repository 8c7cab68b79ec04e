//! What a stored record must be, for those who look at a store that no server uses.

use crate::kind::Kind;
use crate::registry::{RegistryOptions, built_in};
use bytes::Bytes;
use keelson_cache::Entry;
use keelson_meta::GroupVersionResource;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{decode, json};
use keelson_store::KeyValue;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Bound;
use std::sync::Arc;

/// Every built-in kind, by the prefix of its keys.
pub struct StoredKinds {
    by_prefix: BTreeMap<Bytes, Arc<Kind>>,
}

impl StoredKinds {
    /// All kinds, whether a server serves them by default or not.
    pub fn all() -> StoredKinds {
        let options = RegistryOptions {
            service_ranges: vec![],
            advertise_address: Ipv4Addr::LOCALHOST.into(),
            advertise_port: 0,
            runtime_config: vec![("api/all".to_owned(), true)],
            admission: keelson_admission::Chain::default(),
        };
        let mut kinds: Vec<_> = built_in(Catalogue::shared(), &options).into_values().collect();
        // Both resources of events stand in one place and in one form, that of the core group.
        kinds.sort_by(|one, other| other.gvr.group.cmp(&one.gvr.group));
        let by_prefix = kinds.into_iter().map(|kind| (kind.prefix.clone(), kind)).collect();
        StoredKinds { by_prefix }
    }

    /// The resource to which a key belongs, if it is one of those known.
    pub fn resource(&self, key: &[u8]) -> Option<&GroupVersionResource> {
        self.kind(key).map(|kind| &kind.gvr)
    }

    /// Whether a record is an object of the kind whose key it has, under the name that its key says.
    pub fn check(&self, kv: &KeyValue) -> Result<(), String> {
        let Some(kind) = self.kind(&kv.key) else { return Ok(()) };
        let entry = Entry::from_store(kind.prefix.len(), kv).map_err(|error| error.why)?;
        let parsed = json::parse(entry.json_slice()).map_err(|error| error.to_string())?;
        if let Some(twice) = parsed.duplicates.first() {
            return Err(format!("{twice} stands twice"));
        }
        let (kind_name, version) = (&kind.storage.gvk.kind, kind.storage.gvk.api_version());
        let is = |name: &str, expected: &str| {
            parsed.value.get(name).and_then(|value| value.as_str()) == Some(expected)
        };
        if !is("kind", kind_name) || !is("apiVersion", &version) {
            return Err(format!("it is not a {kind_name} of {version}"));
        }
        let decoded = decode::conform(&kind.storage, parsed.value)?;
        if let Some(unknown) = decoded.strict.first() {
            return Err(unknown.clone());
        }
        let obj = decoded.object;
        let key = kind.key(obj.namespace(), obj.name());
        if entry.key() != key {
            return Err(format!("the object calls itself {key}"));
        }
        Ok(())
    }

    fn kind(&self, key: &[u8]) -> Option<&Arc<Kind>> {
        let range = (Bound::Unbounded, Bound::Included(key));
        let (prefix, kind) = self.by_prefix.range::<[u8], _>(range).next_back()?;
        key.starts_with(prefix).then_some(kind)
    }
}
