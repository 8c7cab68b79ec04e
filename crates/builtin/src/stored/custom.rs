//! Objects of custom resources in etcd: JSON with all members sorted, in the storage version that their
//! definition had when they were written. Written and read without the definition, which may be loaded
//! after them: pruning, defaults and conversion follow when the object is read ([`Kind`](keelson_registry::Kind)).

use super::{ENCRYPTED, EncodeError};
use bytes::Bytes;
use keelson_cache::{Record, custom_prefix};
use keelson_meta::{GroupVersion, Object, Value};
use keelson_schema::structural::Structural;
use keelson_schema::{Schema, decode, json};
use smallvec::SmallVec;

/// The prefix of the contract's keys.
const ROOT: &[u8] = b"/registry/";
/// With what records begin, and what stands for objects that cannot be read.
const RECORDS: [u8; 2] = [1, 2];

/// The group of a key of a custom resource.
pub(super) fn group(key: &[u8]) -> Option<&str> {
    let prefix = custom_prefix(ROOT, key)?;
    let group = prefix[ROOT.len()..].split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(group).ok()
}

/// A schema that knows metadata, and takes everything else as it is.
pub(super) fn any_object() -> Schema {
    Structural::read(None).preserving_unknown().schema(<_>::default())
}

/// The stored form of a record.
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

/// The record of a stored object of a group. Records are what earlier releases of Keelson stored.
pub(super) fn decode(any: &Schema, group: &str, value: Bytes) -> Bytes {
    if value.first().is_some_and(|first| RECORDS.contains(first)) {
        return value;
    }
    record(any, group, &value).unwrap_or_else(|why| keelson_cache::unreadable(&why))
}

fn record(any: &Schema, group: &str, value: &[u8]) -> Result<Bytes, String> {
    if value.starts_with(ENCRYPTED) {
        return Err("identity transformer tried to read encrypted data".to_owned());
    }
    if !value.trim_ascii_start().starts_with(b"{") {
        return Err("it is not JSON".to_owned());
    }
    let parsed = json::parse(value).map_err(|error| error.to_string())?.value;
    let given = |name| parsed.str_at(&[name]).unwrap_or_default();
    let (api_version, kind) = (given("apiVersion"), given("kind"));
    let version = GroupVersion::parse(api_version).filter(|version| version.group == group);
    let version = version.filter(|_| !kind.is_empty()).ok_or_else(|| {
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
