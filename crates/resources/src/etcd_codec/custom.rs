//! Custom resources in etcd: JSON with sorted members, in the storage version that the definition
//! had at the time of the write. They are encoded and decoded without the definition, which may be
//! loaded later; pruning, defaulting and conversion happen when the object is read
//! ([`Kind`](keelson_resources::Kind)).

use super::EncodeError;
use bytes::Bytes;
use keelson_meta::{GroupVersion, Object, Value};
use keelson_records::{ENCRYPTED, NOT_DECRYPTED, Record, custom_prefix};
use keelson_schema::structural::Structural;
use keelson_schema::{Schema, decode, json};
use smallvec::SmallVec;

/// The prefix of all keys.
const ROOT: &[u8] = b"/registry/";
/// First bytes of records, and of the entries of unreadable objects.
const RECORD_FORMATS: [u8; 2] = [1, 2];

/// Returns the group in the key of a custom resource.
pub(super) fn group(key: &[u8]) -> Option<&str> {
    let prefix = custom_prefix(ROOT, key)?;
    let group = prefix[ROOT.len()..].split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(group).ok()
}

/// Returns a schema that has metadata and preserves all other fields.
pub(super) fn any_object() -> Schema {
    Structural::read(None).preserving_unknown().schema(<_>::default())
}

/// Encodes a record.
pub(super) fn encode(record: &Bytes) -> Result<Bytes, EncodeError> {
    let text = Record::json_of(record).map_err(|why| EncodeError(why.into_owned()))?;
    let parsed = json::parse(text).map_err(|error| EncodeError(error.to_string()))?;
    let mut value = parsed.value;
    if let Some(Value::Object(metadata)) =
        value.as_object_mut().and_then(|object| object.get_mut("metadata"))
    {
        metadata.remove("resourceVersion");
    }
    let mut out = Vec::with_capacity(text.len() + 1);
    json::write_value(&value.sorted(), &mut out);
    out.push(b'\n');
    Ok(out.into())
}

/// Decodes a value of a group to a record. Earlier releases of Keelson stored records; these are
/// returned unchanged.
pub(super) fn decode(any: &Schema, group: &str, value: Bytes) -> Bytes {
    if value.first().is_some_and(|first| RECORD_FORMATS.contains(first)) {
        return value;
    }
    record(any, group, &value).unwrap_or_else(|why| keelson_records::unreadable(&why))
}

fn record(any: &Schema, group: &str, value: &[u8]) -> Result<Bytes, String> {
    if value.starts_with(ENCRYPTED) {
        return Err(NOT_DECRYPTED.to_owned());
    }
    if !value.trim_ascii_start().starts_with(b"{") {
        return Err("it is not JSON".to_owned());
    }
    let parsed = json::parse(value).map_err(|error| error.to_string())?.value;
    let text = |name| parsed.str_at(&[name]).unwrap_or_default();
    let api_version = text("apiVersion");
    let kind = text("kind");
    let version = GroupVersion::parse(api_version)
        .filter(|version| version.group == group)
        .filter(|_| !kind.is_empty())
        .ok_or_else(|| {
            format!("{kind:?} of {api_version:?} stands where an object of {group} should")
        })?;
    let schema = Schema { gvk: version.kind(kind), ..any.clone() };
    let mut obj: Object = decode::canonicalize(&schema, parsed)?.object;
    obj.metadata_mut().insert("resourceVersion", "0");
    let mut text = Vec::with_capacity(value.len());
    let marks = json::encode(&schema, &obj, &mut text);
    let mut labels: SmallVec<[(&str, &str); 8]> = obj.meta_map("labels").collect();
    labels.sort_unstable();
    let record = Record {
        json: &text,
        resource_version_at: marks.resource_version_at,
        item_at: 1,
        labels: &labels,
        fields: &[],
    };
    Ok(record.encode())
}
