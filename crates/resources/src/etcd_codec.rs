//! [`EtcdCodec`]: converts between records and the form in which kube-apiserver stores objects in etcd,
//! so that either server can take over the data of the other.
//!
//! Built-in kinds are stored as protobuf in its envelope; CustomResourceDefinitions, APIServices and
//! custom resources as JSON; all in kube-apiserver's storage version and without a resourceVersion.
//! Values in any version and either encoding can be decoded; missing fields get their defaults.

mod custom;

use crate::built_in::{built_in_kinds, stored_gvk};
use crate::kind::Kind;
use bytes::Bytes;
use keelson_meta::{Features, GroupVersion, GroupVersionKind, Object};
use keelson_records::{ENCRYPTED, NOT_DECRYPTED, PrefixMap, Record, get_by_prefix};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, decode, default, json, proto};
use std::fmt;
use std::sync::Arc;

/// A record that cannot be encoded, which is a bug: objects are validated before they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError(String);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

/// Encodes and decodes the stored form of all kinds.
pub struct EtcdCodec {
    catalogue: Arc<Catalogue>,
    /// By prefix of the keys. Invariant: no prefix is a prefix of another.
    kinds: PrefixMap<StoredKind>,
    /// The schema of custom resources.
    any: Schema,
}

impl fmt::Debug for EtcdCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored form of {} kinds", self.kinds.len())
    }
}

struct StoredKind {
    kind: Arc<Kind>,
    encoding: Encoding,
}

/// The encoding of a kind, with the schema of its stored version.
enum Encoding {
    Protobuf(Schema),
    Json(Schema),
    /// JSON in a version without a schema.
    JsonWithoutSchema(GroupVersionKind),
}

impl EtcdCodec {
    /// Returns the codec for the kinds that a server with this `--runtime-config` and these features
    /// serves.
    pub fn new(runtime_config: &[(String, bool)], features: Features) -> EtcdCodec {
        let catalogue = Catalogue::shared().clone();
        let mut kinds = PrefixMap::default();
        for kind in built_in_kinds(runtime_config, features) {
            // Both resources of Events share their objects.
            if kind.gvr.group != kind.storage.gvk.group {
                continue;
            }
            let gvk = stored_gvk(&catalogue, &kind);
            let is_json = matches!(&*gvk.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
            let encoding = match catalogue.schema_or_unserved(&gvk) {
                Some(schema) if is_json => Encoding::Json(schema),
                Some(schema) => Encoding::Protobuf(schema),
                None => Encoding::JsonWithoutSchema(gvk),
            };
            kinds.insert(kind.prefix.clone(), StoredKind { kind, encoding });
        }
        EtcdCodec { catalogue, kinds, any: custom::any_object() }
    }

    /// Returns the kind of a key.
    fn stored_kind(&self, key: &[u8]) -> Option<&StoredKind> {
        get_by_prefix(&self.kinds, key)
    }

    /// Encodes a record. Values of unknown keys are returned unchanged.
    pub fn encode(&self, key: &[u8], record: &Bytes) -> Result<Bytes, EncodeError> {
        let Some(StoredKind { kind, encoding }) = self.stored_kind(key) else {
            return custom::group(key)
                .map_or_else(|| Ok(record.clone()), |_| custom::encode(record));
        };
        let text = Record::json_of(record).map_err(|why| EncodeError(why.into_owned()))?;
        let parsed = json::parse(text).map_err(|error| EncodeError(error.to_string()))?;
        let mut obj = Object::from_value(parsed.value)
            .ok_or_else(|| EncodeError("the record is not a map".to_owned()))?;
        obj.metadata_mut().remove("resourceVersion");
        let mut out = Vec::with_capacity(text.len());
        match encoding {
            Encoding::Protobuf(schema) => {
                let obj = kind.convert(obj, &kind.storage, schema);
                proto::encode(schema, &obj, &mut out)
                    .map_err(|error| EncodeError(error.to_string()))?;
            }
            Encoding::Json(schema) => {
                json::encode(schema, &kind.convert(obj, &kind.storage, schema), &mut out);
                out.push(b'\n');
            }
            Encoding::JsonWithoutSchema(gvk) => {
                let obj = keelson_kinds::convert(obj, &kind.storage.gvk, gvk);
                json::write_value(&obj.into_value(), &mut out);
                out.push(b'\n');
            }
        }
        Ok(out.into())
    }

    /// Decodes a value to a record. An undecodable value becomes an unreadable entry with the reason.
    /// Values of unknown keys are returned unchanged.
    pub fn decode(&self, key: &[u8], value: Bytes) -> Bytes {
        let Some(stored) = self.stored_kind(key) else {
            return match custom::group(key) {
                Some(group) => custom::decode(&self.any, group, value),
                None => value,
            };
        };
        match self.decode_object(stored, &value) {
            Ok(mut obj) => stored.kind.record(&mut obj),
            Err(why) => keelson_records::unreadable(&why),
        }
    }

    /// Decodes a value to an object in the version of records.
    fn decode_object(&self, stored: &StoredKind, value: &[u8]) -> Result<Object, String> {
        let (mut obj, gvk) = if value.starts_with(&proto::PREFIX) {
            self.decode_protobuf(stored, value)?
        } else if value.trim_ascii_start().starts_with(b"{") {
            self.decode_json(stored, value)?
        } else if value.starts_with(ENCRYPTED) {
            return Err(NOT_DECRYPTED.to_owned());
        } else {
            return Err("it is neither protobuf nor JSON".to_owned());
        };
        let StoredKind { kind, .. } = stored;
        let storage = &kind.storage;
        if gvk != storage.gvk {
            obj = keelson_kinds::convert(obj, &gvk, &storage.gvk);
            obj = decode::canonicalize(storage, obj.into_value())?.object;
        }
        // An object that grows too much is read without some of its defaults.
        let _ = default::fill(storage, &mut obj);
        kind.strategy.default(&mut obj);
        Ok(obj)
    }

    fn decode_protobuf(
        &self,
        stored: &StoredKind,
        value: &[u8],
    ) -> Result<(Object, GroupVersionKind), String> {
        let envelope = proto::decode_envelope(value).map_err(|error| error.to_string())?;
        let gvk = parse_gvk(&stored.kind, &envelope.api_version, &envelope.kind)?;
        let schema = self.schema(&stored.kind, &gvk)?;
        let obj =
            proto::decode_message(&schema, envelope.raw).map_err(|error| error.to_string())?;
        Ok((with_defaults(&stored.kind, &schema, obj), gvk))
    }

    fn decode_json(
        &self,
        stored: &StoredKind,
        value: &[u8],
    ) -> Result<(Object, GroupVersionKind), String> {
        let parsed = json::parse(value).map_err(|error| error.to_string())?.value;
        let text = |name| parsed.str_at(&[name]).unwrap_or_default();
        let gvk = parse_gvk(&stored.kind, text("apiVersion"), text("kind"))?;
        if matches!(&stored.encoding, Encoding::JsonWithoutSchema(known) if *known == gvk) {
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

/// Returns the group, version and kind in a stored object; an error if it is of another kind.
fn parse_gvk(kind: &Kind, api_version: &str, name: &str) -> Result<GroupVersionKind, String> {
    if name != kind.name() {
        return Err(format!("{name:?} of {api_version:?} stands where a {} should", kind.name()));
    }
    let version = GroupVersion::parse(api_version).ok_or_else(|| unknown(api_version, name))?;
    Ok(version.kind(name))
}

fn unknown(api_version: &str, kind: &str) -> String {
    format!("no kind {kind:?} is registered for version {api_version:?}")
}

/// Applies the defaults of the stored version, which may differ from those of the version of records.
fn with_defaults(kind: &Kind, schema: &Schema, mut obj: Object) -> Object {
    if schema.gvk != kind.storage.gvk {
        let _ = default::fill(schema, &mut obj);
    }
    obj
}
