//! The form in which kube-apiserver keeps objects in etcd, and the way between it and our records, so that
//! either server can go on where the other has stopped.
//!
//! Built-in kinds are protobuf in its envelope; definitions, API services and custom resources JSON; all in
//! a version of their own choice, without a resourceVersion. What is read may be of any version and in either
//! encoding, and gets the defaults of fields that its writer did not know.

mod custom;

use bytes::Bytes;
use keelson_cache::{PrefixMap, Record, get_by_prefix};
use keelson_meta::{Features, GroupVersion, GroupVersionKind, Object};
use keelson_registry::{Kind, built_in_kinds, stored_gvk};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, decode, default, json, proto};
use std::fmt;
use std::sync::Arc;

/// What values begin with that are encrypted.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Why an object has no stored form: a fault of ours, since it was checked before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError(String);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

/// The stored forms of all kinds.
pub struct StoredForm {
    catalogue: Arc<Catalogue>,
    /// By prefix of their keys. Invariant: no prefix is a prefix of another.
    kinds: PrefixMap<Stored>,
    /// For objects of custom resources.
    any: Schema,
}

impl fmt::Debug for StoredForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored form of {} kinds", self.kinds.len())
    }
}

struct Stored {
    kind: Arc<Kind>,
    written: Written,
}

/// How a kind is written.
enum Written {
    Protobuf(Schema),
    Json(Schema),
    /// As JSON of a version that no schema describes.
    Converted(GroupVersionKind),
}

impl StoredForm {
    /// The forms of the kinds that a server with this `--runtime-config` and these features has.
    pub fn new(runtime_config: &[(String, bool)], features: Features) -> StoredForm {
        let catalogue = Catalogue::shared().clone();
        let mut kinds = PrefixMap::default();
        for kind in built_in_kinds(runtime_config, features) {
            // Both resources of Events have the same objects.
            if kind.gvr.group != kind.storage.gvk.group {
                continue;
            }
            let gvk = stored_gvk(&catalogue, &kind);
            let is_json = matches!(&*gvk.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
            let written = match catalogue.schema_or_unserved(&gvk) {
                Some(schema) if is_json => Written::Json(schema),
                Some(schema) => Written::Protobuf(schema),
                None => Written::Converted(gvk),
            };
            kinds.insert(kind.prefix.clone(), Stored { kind, written });
        }
        StoredForm { catalogue, kinds, any: custom::any_object() }
    }

    /// The kind to which a key of the store belongs.
    fn find(&self, key: &[u8]) -> Option<&Stored> {
        get_by_prefix(&self.kinds, key)
    }

    /// The stored form of a record. What is no object of a known kind stays as it is.
    pub fn encode(&self, key: &[u8], record: &Bytes) -> Result<Bytes, EncodeError> {
        let Some(Stored { kind, written }) = self.find(key) else {
            return custom::group(key)
                .map_or_else(|| Ok(record.clone()), |_| custom::encode(record));
        };
        let text = Record::json_of(record).map_err(|why| EncodeError(why.into_owned()))?;
        let parsed = json::parse(text).map_err(|error| EncodeError(error.to_string()))?;
        let obj = Object::from_value(parsed.value);
        let mut obj = obj.ok_or_else(|| EncodeError("the record is not a map".to_owned()))?;
        obj.metadata_mut().remove("resourceVersion");
        let mut out = Vec::with_capacity(text.len());
        match written {
            Written::Protobuf(schema) => {
                let obj = kind.convert(obj, &kind.storage, schema);
                proto::encode(schema, &obj, &mut out)
                    .map_err(|error| EncodeError(error.to_string()))?;
            }
            Written::Json(schema) => {
                json::encode(schema, &kind.convert(obj, &kind.storage, schema), &mut out);
                out.push(b'\n');
            }
            Written::Converted(gvk) => {
                let obj = keelson_kinds::convert(obj, &kind.storage.gvk, gvk);
                json::write_value(&obj.into_value(), &mut out);
                out.push(b'\n');
            }
        }
        Ok(out.into())
    }

    /// The record of a stored object, or what says that it cannot be read and why. What is no object of
    /// a known kind stays as it is.
    pub fn decode(&self, key: &[u8], value: Bytes) -> Bytes {
        let Some(stored) = self.find(key) else {
            return match custom::group(key) {
                Some(group) => custom::decode(&self.any, group, value),
                None => value,
            };
        };
        match self.read(stored, &value) {
            Ok(mut obj) => stored.kind.record(&mut obj),
            Err(why) => keelson_cache::unreadable(&why),
        }
    }

    /// A stored object in the version of our records.
    fn read(&self, stored: &Stored, value: &[u8]) -> Result<Object, String> {
        let (mut obj, gvk) = if value.starts_with(&proto::PREFIX) {
            self.read_protobuf(stored, value)?
        } else if value.trim_ascii_start().starts_with(b"{") {
            self.read_json(stored, value)?
        } else if value.starts_with(ENCRYPTED) {
            return Err("identity transformer tried to read encrypted data".to_owned());
        } else {
            return Err("it is neither protobuf nor JSON".to_owned());
        };
        let Stored { kind, .. } = stored;
        let storage = &kind.storage;
        if gvk != storage.gvk {
            obj = keelson_kinds::convert(obj, &gvk, &storage.gvk);
            obj = decode::canonicalize(storage, obj.into_value())?.object;
        }
        default::fill(storage, &mut obj);
        kind.strategy.default(&mut obj);
        Ok(obj)
    }

    fn read_protobuf(
        &self,
        stored: &Stored,
        value: &[u8],
    ) -> Result<(Object, GroupVersionKind), String> {
        let envelope = proto::decode_envelope(value).map_err(|error| error.to_string())?;
        let gvk = body_gvk(&stored.kind, &envelope.api_version, &envelope.kind)?;
        let schema = self.schema(&stored.kind, &gvk)?;
        let obj =
            proto::decode_message(&schema, envelope.raw).map_err(|error| error.to_string())?;
        Ok((with_defaults(&stored.kind, &schema, obj), gvk))
    }

    fn read_json(
        &self,
        stored: &Stored,
        value: &[u8],
    ) -> Result<(Object, GroupVersionKind), String> {
        let parsed = json::parse(value).map_err(|error| error.to_string())?.value;
        let given = |name| parsed.str_at(&[name]).unwrap_or_default();
        let gvk = body_gvk(&stored.kind, given("apiVersion"), given("kind"))?;
        if matches!(&stored.written, Written::Converted(known) if *known == gvk) {
            let obj = Object::from_value(parsed).ok_or("it is not a map")?;
            return Ok((obj, gvk));
        }
        let schema = self.schema(&stored.kind, &gvk)?;
        let obj = decode::canonicalize(&schema, parsed)?.object;
        Ok((with_defaults(&stored.kind, &schema, obj), gvk))
    }

    fn schema(&self, kind: &Kind, gvk: &GroupVersionKind) -> Result<Schema, String> {
        if *gvk == kind.storage.gvk {
            return Ok(kind.storage.clone());
        }
        self.catalogue.schema_or_unserved(gvk).ok_or_else(|| unknown(&gvk.api_version(), &gvk.kind))
    }
}

/// Which kind a stored object says that it is; `kind` in some version, or an error.
fn body_gvk(kind: &Kind, api_version: &str, name: &str) -> Result<GroupVersionKind, String> {
    if name != kind.name() {
        return Err(format!("{name:?} of {api_version:?} stands where a {} should", kind.name()));
    }
    let version = GroupVersion::parse(api_version).ok_or_else(|| unknown(api_version, name))?;
    Ok(version.kind(name))
}

fn unknown(api_version: &str, kind: &str) -> String {
    format!("no kind {kind:?} is registered for version {api_version:?}")
}

/// Defaults of a version may be others than those of the version that it is converted to.
fn with_defaults(kind: &Kind, schema: &Schema, mut obj: Object) -> Object {
    if schema.gvk != kind.storage.gvk {
        default::fill(schema, &mut obj);
    }
    obj
}
