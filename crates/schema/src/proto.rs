//! `application/vnd.kubernetes.protobuf`: protobuf messages as Go's generated code writes them, in
//! the `runtime.Unknown` envelope.
//!
//! Promise: the bytes are those of kube-apiserver, and decoding returns the same value as decoding
//! the same object from JSON. Takes one pass; memory is proportional to the input.

mod decode;
mod encode;
mod wire;

use crate::types::Schema;
use keelson_meta::{GroupVersionKind, Map, Object};
use std::borrow::Cow;
use wire::{Reader, begin, end, put_bytes, put_key, put_varint, varint_len};

pub use encode::Mismatch;
pub use wire::{DEPTH_MAX, ProtoError};

/// The prefix of every body; the fourth byte is the encoding style.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// The envelope: runtime.Unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apps/v1`; may be empty.
    pub api_version: Cow<'a, str>,
    /// `Deployment`; may be empty.
    pub kind: Cow<'a, str>,
    /// The encoded message.
    pub raw: &'a [u8],
}

/// Appends an object as a body.
pub fn encode(schema: &Schema, obj: &Object, out: &mut Vec<u8>) -> Result<(), Mismatch> {
    put_type(&schema.gvk, out);
    put_key(2, 2, out);
    let start = begin(out);
    encode_message(schema, obj, out)?;
    end(start, out);
    out.extend_from_slice(ENVELOPE_END);
    Ok(())
}

/// Appends the message of an object without envelope, as in a list.
pub fn encode_message(schema: &Schema, obj: &Object, out: &mut Vec<u8>) -> Result<(), Mismatch> {
    encode::message(&schema.types, schema.root(), &obj.root, out)
}

/// Appends the start of a typed list whose items are already encoded. `items_bytes` is the sum of
/// [`list_item_bytes`] of all items. For each item, [`begin_list_item`] and its message must
/// follow, then [`end_list`]. So a large list need not be in one buffer.
pub fn begin_list(
    schema: &Schema,
    metadata: &Map,
    items_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), Mismatch> {
    let mut obj = Object::new();
    obj.root.insert("metadata", metadata.clone());
    let mut message = vec![];
    encode_message(schema, &obj, &mut message)?;
    put_type(&schema.gvk, out);
    put_key(2, 2, out);
    put_varint((message.len() + items_bytes) as u64, out);
    out.extend_from_slice(&message);
    Ok(())
}

/// Field number of `items` in every typed list.
const ITEMS: u32 = 2;

/// Returns the length of a list item with a message of this length.
pub fn list_item_bytes(message_bytes: usize) -> usize {
    1 + varint_len(message_bytes as u64) + message_bytes
}

/// Appends the header of an item's message.
pub fn begin_list_item(message_bytes: usize, out: &mut Vec<u8>) {
    put_key(ITEMS, 2, out);
    put_varint(message_bytes as u64, out);
}

/// Appends the end of a list.
pub fn end_list(out: &mut Vec<u8>) {
    out.extend_from_slice(ENVELOPE_END);
}

/// Appends a watch frame: four bytes of length, most significant first, and a WatchEvent without
/// envelope. `body` is the object with its envelope.
pub fn encode_watch_frame(event: &str, body: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    put_bytes(1, event.as_bytes(), out);
    put_key(2, 2, out);
    let object = begin(out);
    put_bytes(1, body, out);
    end(object, out);
    let length = u32::try_from(out.len() - at - 4).expect("a watch event is below 4 GiB");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Decodes the envelope of a body.
pub fn decode_envelope(body: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    if body.is_empty() {
        return Err(ProtoError::Empty);
    }
    let message = body.strip_prefix(&PREFIX).ok_or(ProtoError::Prefix)?;
    if message.is_empty() {
        return Err(ProtoError::EmptyBody);
    }
    let mut out = Envelope::default();
    let mut fields = Reader::new(message);
    while let Some((tag, wire)) = fields.next()? {
        match tag {
            1 => {
                let mut fields = Reader::new(wire.bytes("typeMeta")?);
                while let Some((tag, wire)) = fields.next()? {
                    match tag {
                        1 => out.api_version = String::from_utf8_lossy(wire.bytes("apiVersion")?),
                        2 => out.kind = String::from_utf8_lossy(wire.bytes("kind")?),
                        _ => {}
                    }
                }
            }
            2 => out.raw = wire.bytes("raw")?,
            // Like upstream, ignores contentEncoding and contentType.
            3 => drop(wire.bytes("contentEncoding")?),
            4 => drop(wire.bytes("contentType")?),
            _ => {}
        }
    }
    Ok(out)
}

/// Decodes a message to an object in canonical form, with `kind` and `apiVersion` of the schema.
pub fn decode_message(schema: &Schema, message: &[u8]) -> Result<Object, ProtoError> {
    let root = decode::message(&schema.types, schema.root(), message)?;
    let mut obj = Object { root };
    obj.set_gvk(&schema.gvk);
    Ok(obj)
}

/// Appends the prefix and the kind.
fn put_type(gvk: &GroupVersionKind, out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
    put_key(1, 2, out);
    let start = begin(out);
    put_bytes(1, gvk.api_version().as_bytes(), out);
    put_bytes(2, gvk.kind.as_bytes(), out);
    end(start, out);
}

/// An empty content encoding and an empty content type.
const ENVELOPE_END: &[u8] = &[0x1a, 0, 0x22, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use keelson_meta::{Value, value};

    fn named(name: &str) -> Schema {
        Catalogue::shared().named(name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("a map")
    }

    /// Checks that a value encodes to these bytes and back.
    fn check(name: &str, value: Value, want: &[u8]) {
        let schema = named(name);
        let mut got = vec![];
        encode_message(&schema, &object(value.clone()), &mut got).unwrap();
        assert_eq!(got, want, "{name}");
        let back = decode::message(&schema.types, schema.root(), &got).unwrap();
        assert_eq!(Value::Object(back), value, "{name}");
    }

    #[test]
    fn last_map_entry_of_a_key_wins() {
        let schema = named("io.k8s.api.core.v1.ConfigMap");
        let entry = |number: u32| {
            let key = format!("k{}", number % 5);
            let value = format!("{number:06}");
            let entry = [&[0x0a, 2][..], key.as_bytes(), &[0x12, 6], value.as_bytes()].concat();
            [&[0x12, entry.len() as u8][..], &entry].concat()
        };
        let bytes: Vec<u8> = (0..20_000).flat_map(entry).collect();
        let map = decode::message(&schema.types, schema.root(), &bytes).expect("a ConfigMap");
        let want = value!({"k0": "019995", "k1": "019996", "k2": "019997", "k3": "019998", "k4": "019999"});
        assert_eq!(map.get("data"), Some(&want));
    }

    #[test]
    fn zero_values_that_are_not_pointers_are_encoded() {
        check("io.k8s.api.core.v1.EnvVar", value!({"name": ""}), b"\x0a\0\x12\0");
        check(
            "io.k8s.api.core.v1.ServicePort",
            value!({"port": 0, "targetPort": 0}),
            b"\x0a\0\x12\0\x18\0\x22\x06\x08\0\x10\0\x1a\0\x28\0",
        );
        check(
            "io.k8s.api.core.v1.ResourceFieldSelector",
            value!({"resource": "", "divisor": "0"}),
            b"\x0a\0\x12\0\x1a\x03\x0a\x010",
        );
        check("io.k8s.api.core.v1.PodOS", value!({"name": "linux"}), b"\x0a\x05linux");
    }

    #[test]
    fn pointers_are_encoded_when_set() {
        check(
            "io.k8s.api.apps.v1.RollingUpdateDeployment",
            value!({"maxSurge": "25%"}),
            b"\x12\x09\x08\x01\x10\0\x1a\x0325%",
        );
    }

    #[test]
    fn wrapped_lists_can_be_empty_or_absent() {
        let resource = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResource";
        let schema = named(resource);
        for (verbs, tail) in
            [(value!([]), &b"\x22\0"[..]), (value!(["get"]), b"\x22\x05\x0a\x03get")]
        {
            let obj = object(value!({"verbs": (verbs.clone())}));
            let mut out = vec![];
            encode_message(&schema, &obj, &mut out).unwrap();
            assert!(out.windows(tail.len()).any(|part| part == tail), "{out:x?}");
            let back = decode_message(&schema, &out).unwrap();
            assert_eq!(back.get("verbs"), Some(&verbs));
        }
        let mut out = vec![];
        encode_message(&schema, &Object::new(), &mut out).unwrap();
        assert!(decode_message(&schema, &out).unwrap().get("verbs").is_none());
        check(
            "io.k8s.api.authentication.v1.UserInfo",
            value!({"extra": {"a": ["b"], "c": []}}),
            b"\x0a\0\x12\0\x22\x08\x0a\x01a\x12\x03\x0a\x01b\x22\x05\x0a\x01c\x12\0",
        );
    }
    fn config_map(name: &str) -> (Schema, Object) {
        let schema = Catalogue::shared().schema(&GroupVersionKind::new("", "v1", "ConfigMap"));
        (schema.expect("a kind"), object(value!({"metadata": {"name": name}, "data": {"k": "v"}})))
    }

    #[test]
    fn streamed_list_equals_encoded_list() {
        let gvk = GroupVersionKind::new("", "v1", "ConfigMapList");
        let schema = Catalogue::shared().schema(&gvk).expect("a kind");
        let long = "n".repeat(300);
        let names = ["a", long.as_str(), "c"];
        let items: Vec<Value> =
            names.iter().map(|name| Value::Object(config_map(name).1.root)).collect();
        let metadata = value!({"resourceVersion": "7", "remainingItemCount": 2});
        let list = object(value!({"metadata": (metadata.clone()), "items": items}));
        let mut want = vec![];
        encode(&schema, &list, &mut want).unwrap();

        let messages = names.map(|name| {
            let (schema, obj) = config_map(name);
            let mut out = vec![];
            encode_message(&schema, &obj, &mut out).unwrap();
            out
        });
        let bytes = messages.iter().map(|message| list_item_bytes(message.len())).sum();
        let mut got = vec![];
        begin_list(&schema, metadata.as_object().expect("a map"), bytes, &mut got).unwrap();
        for message in &messages {
            begin_list_item(message.len(), &mut got);
            got.extend_from_slice(message);
        }
        end_list(&mut got);
        assert_eq!(got, want);
    }

    #[test]
    fn watch_frame_has_an_envelope_only_around_the_object() {
        let (schema, obj) = config_map("a");
        let mut body = vec![];
        encode(&schema, &obj, &mut body).unwrap();
        let mut frame = vec![];
        encode_watch_frame("ADDED", &body, &mut frame);
        let size = body.len() as u8;
        let head = [0, 0, 0, size + 11, 0x0a, 5, b'A', b'D', b'D', b'E', b'D', 0x12, size + 2];
        assert_eq!(frame[..13], head);
        assert_eq!(frame[13..15], [0x0a, size]);
        assert_eq!(frame[15..], body);
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let (schema, _) = config_map("a");
        let check = |body: &[u8], want: &str| {
            let got = decode_envelope(body)
                .and_then(|envelope| decode_message(&schema, envelope.raw).map(|_| String::new()))
                .unwrap_or_else(|error| error.to_string());
            assert_eq!(got, want, "{body:x?}");
        };
        check(b"", "empty data");
        check(b"k8s\0", "empty body");
        check(b"k8s\0\x12\x02\x08\x01", "proto: wrong wireType = 0 for field metadata");
        check(b"k8s\0\x12\x03\x0a\x05a", "unexpected EOF");
        check(b"k8s\0\x12\x04\x7a\x02hi", "");
        let prefix = "provided data does not appear to be a protobuf message, \
                      expected prefix [107 56 115 0]";
        check(b"{}", prefix);
    }

    #[test]
    fn a_message_deeper_than_the_limit_is_refused() {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let schema = named(name);
        let nested = |levels: usize| {
            (0..levels).fold(vec![], |inner, _| {
                let mut out = vec![];
                // `not` holds a schema.
                put_bytes(28, &inner, &mut out);
                out
            })
        };
        assert!(decode_message(&schema, &nested(DEPTH_MAX - 1)).is_ok());
        let deep = decode_message(&schema, &nested(DEPTH_MAX));
        assert_eq!(deep.map(|_| ()), Err(ProtoError::Depth));
    }
}
