//! Encodes objects to protobuf messages by their schema, as Go's generated marshallers do: fields
//! in order of their tags, scalars and non-pointer structs always, maps sorted by key.

use super::wire::{begin, end, put_bytes, put_key, put_nested, put_varint};
use crate::json::write_value;
use crate::types::{Field, Presence, ProtoContent, ProtoField, SchemaOr, Shape, Struct, Types};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Map, Value};
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// A value of a wrong type, which has no protobuf form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON name of the field.
    pub field: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the value of {} is not of its type and cannot be written as protobuf",
            self.field
        )
    }
}

impl std::error::Error for Mismatch {}

/// Appends the message of a struct.
pub(super) fn message(
    types: &Types,
    struct_type: &Struct,
    map: &Map,
    out: &mut Vec<u8>,
) -> Result<(), Mismatch> {
    let mut encoder = Encoder { types, out, mismatch: None };
    encoder.members(struct_type, map);
    match encoder.mismatch {
        Some(field) => Err(Mismatch { field }),
        None => Ok(()),
    }
}

/// Seconds of Go's zero time, 0001-01-01T00:00:00Z.
pub(super) const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

/// The values of a struct's fields, by field index.
type MemberValues<'v> = SmallVec<[Option<&'v Value>; 32]>;

struct Encoder<'a> {
    types: &'a Types,
    out: &'a mut Vec<u8>,
    /// The first field with a value of a wrong type. The output must be discarded then.
    mismatch: Option<String>,
}

impl Encoder<'_> {
    fn members(&mut self, struct_type: &Struct, map: &Map) {
        let mut values: MemberValues<'_> = smallvec![None; struct_type.fields.len()];
        let mut near = 0;
        for (key, value) in map.iter() {
            if let Some(at) = struct_type.position_near(near, key) {
                near = at;
                values[at] = Some(value).filter(|value| !value.is_null());
            }
        }
        self.proto_fields(struct_type, struct_type.message(), &values);
    }

    fn proto_fields(
        &mut self,
        struct_type: &Struct,
        proto_fields: &[ProtoField],
        values: &[Option<&Value>],
    ) {
        for proto_field in proto_fields {
            match &proto_field.content {
                ProtoContent::Member(at) => {
                    let at = usize::from(*at);
                    self.member(proto_field.tag, &struct_type.fields[at], values[at]);
                }
                ProtoContent::Embedded(embedded) => {
                    if embedded.always || has_values(&embedded.proto_fields, values) {
                        let start = self.begin(proto_field.tag);
                        self.proto_fields(struct_type, &embedded.proto_fields, values);
                        end(start, self.out);
                    }
                }
            }
        }
    }

    fn member(&mut self, tag: u32, field: &Field, value: Option<&Value>) {
        match value {
            Some(value) => self.value(tag, &field.shape, value, &field.name),
            None => match field.presence {
                Presence::Pointer | Presence::AlwaysNull => {}
                Presence::OmitEmpty | Presence::Always => self.zero(tag, &field.shape),
            },
        }
    }

    fn value(&mut self, tag: u32, shape: &Shape, value: &Value, name: &str) {
        match (shape, value) {
            (_, Value::Null) => self.zero(tag, shape),
            (Shape::String | Shape::Formatted, Value::String(text)) => {
                put_bytes(tag, text.as_bytes(), self.out)
            }
            (Shape::Bool, Value::Bool(flag)) => self.varint(tag, u64::from(*flag)),
            (Shape::Int32 | Shape::Int64, Value::Int(number)) => self.varint(tag, *number as u64),
            (Shape::Double, Value::Int(number)) => self.double(tag, *number as f64),
            (Shape::Double, Value::Float(number)) => self.double(tag, *number),
            (Shape::Struct(id), Value::Object(map)) => {
                let start = self.begin(tag);
                self.members(self.types.get(*id), map);
                end(start, self.out);
            }
            (Shape::List(list), Value::Array(items)) => {
                for item in items {
                    self.value(tag, &list.item, item, name);
                }
            }
            (Shape::Map(shape), Value::Object(map)) => self.map(tag, &shape.value, map, name),
            (Shape::Json | Shape::RawExtension | Shape::FieldsV1, value) => {
                let start = self.begin(tag);
                put_nested(1, self.out, |out| match value {
                    Value::Raw(text) => out.extend_from_slice(text.as_bytes()),
                    _ => write_value(value, out),
                });
                end(start, self.out);
            }
            (Shape::SchemaOr(second, id), value) => {
                let start = self.begin(tag);
                self.schema_or(*second, &Shape::Struct(*id), value, name);
                end(start, self.out);
            }
            (shape, value) => self.text(tag, shape, value, name),
        }
    }

    /// Writes types with a text form of their own.
    fn text(&mut self, tag: u32, shape: &Shape, value: &Value, name: &str) {
        let fits = match (shape, value) {
            (Shape::Bytes, Value::String(text)) => {
                let start = self.begin(tag);
                let at = self.out.len();
                // Four base64 characters are three bytes.
                self.out.resize(at + text.len().div_ceil(4) * 3, 0);
                let decoded = STANDARD.decode_slice(text.as_bytes(), &mut self.out[at..]);
                self.out.truncate(at + decoded.as_ref().copied().unwrap_or_default());
                end(start, self.out);
                decoded.is_ok()
            }
            (Shape::Time, Value::String(text)) => match Timestamp::parse(text) {
                Ok(time) => self.time(tag, Timestamp::new(time.seconds, 0)),
                Err(_) => false,
            },
            (Shape::MicroTime, Value::String(text)) => match Timestamp::parse_micro(text) {
                Ok(time) => self.time(tag, time),
                Err(_) => false,
            },
            (Shape::Duration, Value::String(text)) => match GoDuration::parse(text) {
                Ok(span) => {
                    let start = self.begin(tag);
                    self.varint(1, span.0 as u64);
                    end(start, self.out);
                    true
                }
                Err(_) => false,
            },
            (Shape::Quantity, Value::String(text)) => {
                put_nested(tag, self.out, |out| put_bytes(1, text.as_bytes(), out));
                true
            }
            (Shape::IntOrString, Value::Int(number)) => self.int_or_string(tag, 0, *number, ""),
            (Shape::IntOrString, Value::String(text)) => self.int_or_string(tag, 1, 0, text),
            _ => false,
        };
        if !fits {
            self.mismatch.get_or_insert_with(|| name.to_owned());
        }
    }

    fn time(&mut self, tag: u32, time: Timestamp) -> bool {
        let start = self.begin(tag);
        if time != Timestamp::new(ZERO_TIME_SECONDS, 0) {
            self.varint(1, time.seconds as u64);
            // MicroTime has microseconds; nanoseconds are truncated.
            self.varint(2, u64::from(time.nanos / 1000 * 1000));
        }
        end(start, self.out);
        true
    }

    fn int_or_string(&mut self, tag: u32, kind: u64, number: i64, text: &str) -> bool {
        let start = self.begin(tag);
        self.varint(1, kind);
        self.varint(2, number as u64);
        put_bytes(3, text.as_bytes(), self.out);
        end(start, self.out);
        true
    }

    /// Writes map entries, messages of a key and a value, sorted by the bytes of the keys.
    fn map(&mut self, tag: u32, shape: &Shape, map: &Map, name: &str) {
        let mut entries: SmallVec<[_; 16]> = map.iter().collect();
        if !entries.is_sorted_by(|a, b| a.0 <= b.0) {
            entries.sort_by(|a, b| a.0.cmp(b.0));
        }
        for (key, value) in entries {
            let start = self.begin(tag);
            put_bytes(1, key.as_bytes(), self.out);
            match shape {
                // A map value cannot be repeated: a list is wrapped in a message, as field 1.
                Shape::List(_) => {
                    let list = self.begin(2);
                    self.value(1, shape, value, name);
                    end(list, self.out);
                }
                Shape::Bytes if value.is_null() => put_bytes(2, b"", self.out),
                _ => self.value(2, shape, value, name),
            }
            end(start, self.out);
        }
    }

    fn schema_or(&mut self, second: SchemaOr, schema: &Shape, value: &Value, name: &str) {
        match (second, value) {
            (SchemaOr::Bool, Value::Bool(allows)) => self.varint(1, u64::from(*allows)),
            (SchemaOr::Bool, Value::Object(_)) => {
                self.varint(1, 1);
                self.value(2, schema, value, name);
            }
            (_, Value::Object(_)) => self.value(1, schema, value, name),
            (SchemaOr::Array, Value::Array(items)) => {
                for item in items {
                    self.value(2, schema, item, name);
                }
            }
            (SchemaOr::StringArray, Value::Array(items)) => {
                for item in items {
                    self.value(2, &Shape::String, item, name);
                }
            }
            _ => drop(self.mismatch.get_or_insert_with(|| name.to_owned())),
        }
    }

    /// Writes what Go writes for an unset value that is not a pointer.
    fn zero(&mut self, tag: u32, shape: &Shape) {
        match shape {
            Shape::String | Shape::Formatted => put_bytes(tag, b"", self.out),
            Shape::Bool | Shape::Int32 | Shape::Int64 => self.varint(tag, 0),
            Shape::Double | Shape::Number => self.double(tag, 0.0),
            Shape::Bytes | Shape::List(_) | Shape::Map(_) => {}
            Shape::Time
            | Shape::MicroTime
            | Shape::Json
            | Shape::RawExtension
            | Shape::FieldsV1
            | Shape::SchemaOr(..) => put_bytes(tag, b"", self.out),
            Shape::Duration => put_bytes(tag, &[0x08, 0], self.out),
            Shape::Quantity => put_bytes(tag, &[0x0a, 1, b'0'], self.out),
            Shape::IntOrString => drop(self.int_or_string(tag, 0, 0, "")),
            Shape::Struct(id) => {
                let start = self.begin(tag);
                self.members(self.types.get(*id), &Map::new());
                end(start, self.out);
            }
        }
    }

    fn begin(&mut self, tag: u32) -> usize {
        put_key(tag, 2, self.out);
        begin(self.out)
    }

    fn varint(&mut self, tag: u32, number: u64) {
        put_key(tag, 0, self.out);
        put_varint(number, self.out);
    }

    fn double(&mut self, tag: u32, number: f64) {
        put_key(tag, 1, self.out);
        self.out.extend_from_slice(&number.to_le_bytes());
    }
}

fn has_values(proto_fields: &[ProtoField], values: &[Option<&Value>]) -> bool {
    proto_fields.iter().any(|proto_field| match &proto_field.content {
        ProtoContent::Member(at) => values[usize::from(*at)].is_some(),
        ProtoContent::Embedded(embedded) => has_values(&embedded.proto_fields, values),
    })
}
