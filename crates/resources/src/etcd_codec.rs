//! [`EtcdCodec`]: converts between records and the form in which kube-apiserver stores objects in
//! etcd, so that either server can take over the data of the other.
//!
//! Built-in kinds are stored as protobuf in its envelope, or as `--storage-media-type` says;
//! CustomResourceDefinitions, APIServices and custom resources always as JSON; all in
//! kube-apiserver's storage version and without a resourceVersion. Values in any version and any
//! encoding can be decoded; missing fields get their defaults.

mod custom;
mod media_type;

pub use media_type::StorageMediaType;

use crate::built_in::{built_in_kinds, stored_gvk};
use crate::kind::Kind;
use bytes::Bytes;
use keelson_meta::{Features, GroupVersion, GroupVersionKind, Object, Value};
use keelson_records::{ENCRYPTED, NOT_DECRYPTED, PrefixMap, Record, get_by_prefix};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, decode, default, json, proto, yaml};
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
    /// The encoding of values that are not objects of a kind, but messages of one.
    media_type: StorageMediaType,
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
    WithSchema(StorageMediaType, Schema),
    /// JSON in a version without a schema.
    JsonWithoutSchema(GroupVersionKind),
}

impl EtcdCodec {
    /// Returns the codec for the kinds that a server with this `--runtime-config` and these
    /// features serves. It stores protobuf.
    pub fn new(runtime_config: &[(String, bool)], features: Features) -> EtcdCodec {
        EtcdCodec::storing(StorageMediaType::Protobuf, runtime_config, features)
    }

    /// Like [`EtcdCodec::new`], with the encoding of stored objects (`--storage-media-type`).
    pub fn storing(
        media_type: StorageMediaType,
        runtime_config: &[(String, bool)],
        features: Features,
    ) -> EtcdCodec {
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
                Some(schema) if is_json => Encoding::WithSchema(StorageMediaType::Json, schema),
                Some(schema) => Encoding::WithSchema(media_type, schema),
                None => Encoding::JsonWithoutSchema(gvk),
            };
            kinds.insert(kind.prefix.clone(), StoredKind { kind, encoding });
        }
        EtcdCodec { catalogue, kinds, media_type, any: custom::any_object() }
    }

    /// Returns the kind of a key.
    fn stored_kind(&self, key: &[u8]) -> Option<&StoredKind> {
        get_by_prefix(&self.kinds, key)
    }

    /// Encodes a record. Values of unknown keys are returned unchanged, unless they are messages in
    /// protobuf.
    pub fn encode(&self, key: &[u8], record: &Bytes) -> Result<Bytes, EncodeError> {
        let Some(StoredKind { kind, encoding }) = self.stored_kind(key) else {
            return match custom::group(key) {
                Some(_) => custom::encode(record),
                None => self.encode_message(record),
            };
        };
        let text = Record::json_of(record).map_err(|why| EncodeError(why.into_owned()))?;
        let parsed = json::parse(text).map_err(|error| EncodeError(error.to_string()))?;
        let mut obj = Object::from_value(parsed.value)
            .ok_or_else(|| EncodeError("the record is not a map".to_owned()))?;
        obj.metadata_mut().remove("resourceVersion");
        match encoding {
            Encoding::WithSchema(media_type, schema) => {
                let obj = kind.convert(obj, &kind.storage, schema);
                media_type.encode(schema, &obj).map_err(EncodeError)
            }
            Encoding::JsonWithoutSchema(gvk) => {
                let mut out = Vec::with_capacity(text.len());
                let obj = keelson_kinds::convert(obj, &kind.storage.gvk, gvk);
                json::write_value(&obj.into_value(), &mut out);
                out.push(b'\n');
                Ok(out.into())
            }
        }
    }

    /// Encodes what is stored beside objects, such as allocated ports, in the encoding of objects.
    fn encode_message(&self, value: &Bytes) -> Result<Bytes, EncodeError> {
        if self.media_type == StorageMediaType::Protobuf || !value.starts_with(&proto::PREFIX) {
            return Ok(value.clone());
        }
        let failed = |why: String| EncodeError(why);
        let envelope = proto::decode_envelope(value).map_err(|error| failed(error.to_string()))?;
        let version = GroupVersion::parse(&envelope.api_version);
        let schema = version
            .and_then(|version| self.catalogue.schema_or_unserved(&version.kind(&*envelope.kind)));
        let schema =
            schema.ok_or_else(|| failed(unknown(&envelope.api_version, &envelope.kind)))?;
        let obj = proto::decode_message(&schema, envelope.raw)
            .map_err(|error| failed(error.to_string()))?;
        self.media_type.encode(&schema, &obj).map_err(failed)
    }

    /// Whether a write of the same object would store other bytes: in another encoding or, as far
    /// as that is seen without reading the whole value, in another version.
    pub fn is_stale(&self, key: &[u8], value: &[u8]) -> bool {
        let Some(StoredKind { encoding: Encoding::WithSchema(media_type, schema), .. }) =
            self.stored_kind(key)
        else {
            return false;
        };
        if StorageMediaType::of(value) != *media_type {
            return true;
        }
        *media_type == StorageMediaType::Protobuf
            && proto::decode_envelope(value)
                .is_ok_and(|envelope| *envelope.api_version != *schema.gvk.api_version())
    }

    /// Decodes a value to a record. An undecodable value becomes an unreadable entry with the
    /// reason. Values of unknown keys are returned unchanged.
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
        if value.starts_with(ENCRYPTED) {
            return Err(NOT_DECRYPTED.to_owned());
        }
        let (mut obj, gvk) = match StorageMediaType::of(value) {
            StorageMediaType::Protobuf => self.decode_protobuf(stored, value)?,
            StorageMediaType::Json => {
                let parsed = json::parse(value).map_err(|error| error.to_string())?;
                self.decode_value(stored, parsed.value)?
            }
            StorageMediaType::Yaml => {
                // An error of YAML may show a part of a Secret.
                let parsed = yaml::parse(value).ok().map(|parsed| parsed.value);
                let map = parsed.filter(|value| value.as_object().is_some());
                self.decode_value(stored, map.ok_or(NO_ENCODING)?)?
            }
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

    fn decode_value(
        &self,
        stored: &StoredKind,
        parsed: Value,
    ) -> Result<(Object, GroupVersionKind), String> {
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

/// What is said of a value that no encoding can be.
const NO_ENCODING: &str = "it is neither protobuf nor JSON nor YAML";

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

/// Applies the defaults of the stored version, which may differ from those of the version of
/// records.
fn with_defaults(kind: &Kind, schema: &Schema, mut obj: Object) -> Object {
    if schema.gvk != kind.storage.gvk {
        let _ = default::fill(schema, &mut obj);
    }
    obj
}
