//! `application/cbor` and `application/cbor-seq`: CBOR (RFC 8949) as kube-apiserver uses it.
//!
//! The encoding is deterministic: keys sorted by their encoded bytes (shorter ones first), definite
//! lengths, shortest floats, text as byte strings, bytes with tag 22. The decoder accepts any
//! well-formed CBOR that has a JSON equivalent; duplicate keys are errors.

mod decode;
mod encode;

use crate::types::Schema;
use keelson_meta::{Object, Value};

pub use decode::{CborError, DEPTH_MAX, parse};

/// The prefix of every body: tag 55799, self-described CBOR.
pub const PREFIX: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Appends an object as a body, with `kind` and `apiVersion` of the schema.
pub fn encode(schema: &Schema, obj: &Object, out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
    encode::object(schema, obj, true, out);
}

/// Appends an object as an item of a typed list, without `kind` and `apiVersion`.
pub fn encode_list_item(schema: &Schema, obj: &Object, out: &mut Vec<u8>) {
    encode::object(schema, obj, false, out);
}

/// Appends the start of a list of `count` items. The items and [`end_list`] must follow.
pub fn begin_list(schema: &Schema, count: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
    encode::head(5, 4, out);
    encode::text("kind", out);
    encode::text(&schema.gvk.kind, out);
    encode::text("items", out);
    encode::head(4, count as u64, out);
}

/// Appends the end of a list. `metadata` is written as given.
pub fn end_list(schema: &Schema, metadata: &Value, out: &mut Vec<u8>) {
    encode::text("metadata", out);
    encode::value(metadata, out);
    encode::text("apiVersion", out);
    encode::text(&schema.gvk.api_version(), out);
}

/// Appends a watch event (`application/cbor-seq`). `body` is the encoded object. Events need no
/// separator.
pub fn encode_watch_event(event: &str, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
    encode::head(5, 2, out);
    encode::text("type", out);
    encode::text(event, out);
    encode::text("object", out);
    out.extend_from_slice(body);
}

/// Appends a value without a schema as a body.
pub fn write_body(value: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
    write_value(value, out);
}

/// Appends a value without a schema as part of a body.
pub fn write_value(value: &Value, out: &mut Vec<u8>) {
    encode::value(value, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use keelson_meta::{GroupVersionKind, value};

    fn schema(kind: &str) -> Schema {
        Catalogue::shared().schema(&GroupVersionKind::new("", "v1", kind)).expect("a kind")
    }

    fn config_map() -> Object {
        Object::from_value(value!({
            "metadata": {"name": "a"},
            "binaryData": {"b": "AQID"},
            "data": {"long": "x", "k": "v"}
        }))
        .expect("a map")
    }

    #[test]
    fn keys_are_sorted_by_length_and_text_is_a_byte_string() {
        let mut out = vec![];
        encode(&schema("ConfigMap"), &config_map(), &mut out);
        let want = b"\xd9\xd9\xf7\xa5\x44data\xa2\x41k\x41v\x44long\x41x\x44kind\x49ConfigMap\
                     \x48metadata\xa1\x44name\x41a\x4aapiVersion\x42v1\
                     \x4abinaryData\xa1\x41b\xd6\x43\x01\x02\x03";
        assert_eq!(out.escape_ascii().to_string(), want.escape_ascii().to_string());
    }

    #[test]
    fn streamed_list_is_a_list() {
        let mut out = vec![];
        let list = schema("ConfigMapList");
        begin_list(&list, 2, &mut out);
        for _ in 0..2 {
            encode_list_item(&schema("ConfigMap"), &config_map(), &mut out);
        }
        end_list(&list, &value!({"resourceVersion": "7"}), &mut out);
        let mut item = Value::from(config_map());
        item.as_object_mut().expect("a map").sort();
        let want = value!({
            "kind": "ConfigMapList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "7"},
            "items": [(item.clone()), (item)]
        });
        assert_eq!(parse(&out), Ok(want));
    }

    #[test]
    fn a_watch_event_holds_a_body() {
        let mut body = vec![];
        let mut out = vec![];
        encode(&schema("ConfigMap"), &config_map(), &mut body);
        encode_watch_event("ADDED", &body, &mut out);
        let event = parse(&out).expect("well-formed");
        assert_eq!(event.str_at(&["type"]), Some("ADDED"));
        assert_eq!(event.str_at(&["object", "kind"]), Some("ConfigMap"));
    }
}
