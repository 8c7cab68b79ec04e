//! Encodes objects to CBOR by their schema, and values without a schema.

use crate::json;
use crate::types::{Field, Presence, Schema, Shape, Struct, Types};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::{Map, Object, Value};
use smallvec::SmallVec;

/// Appends the root of an object, with or without `kind` and `apiVersion`.
pub(super) fn object(schema: &Schema, obj: &Object, with_kind: bool, out: &mut Vec<u8>) {
    let api_version = schema.gvk.api_version();
    let mut members = members(schema.root(), &obj.root);
    members.retain(|member| !matches!(member.0, "kind" | "apiVersion"));
    if with_kind {
        members.push(("kind", Member::Text(&schema.gvk.kind)));
        members.push(("apiVersion", Member::Text(&api_version)));
    }
    write_members(&schema.types, members, out);
}

/// The value of a member.
enum Member<'a> {
    Given(&'a Shape, &'a Value),
    Zero(&'a Shape),
    /// An unknown field.
    Unknown(&'a Value),
    Null,
    Text(&'a str),
}

type Members<'a> = SmallVec<[(&'a str, Member<'a>); 16]>;

/// Returns the members of a struct that are encoded.
fn members<'a>(struct_type: &'a Struct, map: &'a Map) -> Members<'a> {
    let mut out = Members::new();
    for (key, value) in map.iter() {
        match struct_type.field(key) {
            Some(field) if field.presence == Presence::OmitEmpty && value.is_empty() => {}
            Some(field) => out.push((&field.name, given(field, value))),
            None => out.push((key, Member::Unknown(value))),
        }
    }
    for field in &struct_type.fields {
        let member = match field.presence {
            Presence::Pointer | Presence::OmitEmpty => continue,
            Presence::Always => Member::Zero(&field.shape),
            Presence::AlwaysNull => Member::Null,
        };
        if !map.contains_key(&field.name) {
            out.push((&field.name, member));
        }
    }
    out
}

fn given<'a>(field: &'a Field, value: &'a Value) -> Member<'a> {
    if value.is_null() && matches!(field.shape, Shape::Struct(_)) {
        return Member::Zero(&field.shape);
    }
    Member::Given(&field.shape, value)
}

fn write_members(types: &Types, mut members: Members<'_>, out: &mut Vec<u8>) {
    // An encoded key begins with its length, so this is the order of encoded keys.
    members.sort_by(|(a, _), (b, _)| (a.len(), *a).cmp(&(b.len(), *b)));
    head(5, members.len() as u64, out);
    for (key, member) in members {
        text(key, out);
        match member {
            Member::Given(shape, value) => typed(types, shape, value, out),
            Member::Zero(shape) => zero(types, shape, out),
            Member::Unknown(unknown) => value(unknown, out),
            Member::Null => out.push(NULL),
            Member::Text(word) => text(word, out),
        }
    }
}

fn typed(types: &Types, shape: &Shape, given: &Value, out: &mut Vec<u8>) {
    match (shape, given) {
        (Shape::Struct(id), Value::Object(map)) => {
            write_members(types, members(types.get(*id), map), out);
        }
        (Shape::List(list), Value::Array(items)) => {
            head(4, items.len() as u64, out);
            for item in items {
                typed(types, &list.item, item, out);
            }
        }
        (Shape::Map(shape), Value::Object(map)) => {
            let entry = |item| Member::Given(&shape.value, item);
            let entries = map.iter().map(|(key, item)| (key.as_str(), entry(item)));
            write_members(types, entries.collect(), out);
        }
        (Shape::SchemaOr(_, id), Value::Object(_)) => {
            typed(types, &Shape::Struct(*id), given, out);
        }
        (Shape::SchemaOr(_, id), Value::Array(items)) => {
            head(4, items.len() as u64, out);
            for item in items {
                let shape = match item {
                    Value::Object(_) => &Shape::Struct(*id),
                    _ => &Shape::String,
                };
                typed(types, shape, item, out);
            }
        }
        (Shape::Struct(_), Value::Null) => zero(types, shape, out),
        (Shape::Bytes, Value::String(base64)) => match STANDARD.decode(base64.as_bytes()) {
            Ok(bytes) => {
                out.push(LATER_BASE64);
                head(2, bytes.len() as u64, out);
                out.extend_from_slice(&bytes);
            }
            Err(_) => text(base64, out),
        },
        (Shape::Double, Value::Int(number)) => float(*number as f64, out),
        _ => value(given, out),
    }
}

/// Appends the zero value that Go writes for an unset field.
fn zero(types: &Types, shape: &Shape, out: &mut Vec<u8>) {
    match shape {
        Shape::String | Shape::Formatted => text("", out),
        Shape::Bool => out.push(FALSE),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => head(0, 0, out),
        Shape::Double | Shape::Number => float(0.0, out),
        Shape::Quantity => text("0", out),
        Shape::Duration => text("0s", out),
        Shape::FieldsV1 => head(5, 0, out),
        Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Json
        | Shape::RawExtension
        | Shape::List(_)
        | Shape::Map(_)
        | Shape::SchemaOr(..) => out.push(NULL),
        Shape::Struct(id) => write_members(types, members(types.get(*id), &Map::new()), out),
    }
}

const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;
/// Tag 22: expected later encoding is base64.
const LATER_BASE64: u8 = 0xd6;

/// Appends a value without a schema.
pub(super) fn value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(flag) => out.push(if *flag { TRUE } else { FALSE }),
        Value::Int(number @ 0..) => head(0, *number as u64, out),
        Value::Int(number) => head(1, !*number as u64, out),
        Value::Float(number) => float(*number, out),
        Value::String(words) => text(words, out),
        Value::Raw(_) => self::value(&json::parse_raw(value.clone()), out),
        Value::Array(items) => {
            head(4, items.len() as u64, out);
            for item in items {
                self::value(item, out);
            }
        }
        Value::Object(map) => {
            let mut entries: SmallVec<[_; 16]> = map.iter().collect();
            entries.sort_by(|(a, _), (b, _)| (a.len(), *a).cmp(&(b.len(), *b)));
            head(5, entries.len() as u64, out);
            for (key, item) in entries {
                text(key, out);
                self::value(item, out);
            }
        }
    }
}

/// Appends text as a byte string, as upstream does.
pub(super) fn text(words: &str, out: &mut Vec<u8>) {
    head(2, words.len() as u64, out);
    out.extend_from_slice(words.as_bytes());
}

/// Appends a head: a major type and its argument, in the shortest form.
pub(super) fn head(major: u8, number: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    if number < 24 {
        out.push(major | number as u8);
    } else if let Ok(number) = u8::try_from(number) {
        out.extend_from_slice(&[major | 24, number]);
    } else if let Ok(number) = u16::try_from(number) {
        out.push(major | 25);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        out.push(major | 26);
        out.extend_from_slice(&number.to_be_bytes());
    } else {
        out.push(major | 27);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends a float in the shortest form that keeps its value.
fn float(number: f64, out: &mut Vec<u8>) {
    let single = number as f32;
    if f64::from(single) != number {
        out.push(0xfb);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Some(half) = half(single) {
        out.push(0xf9);
        out.extend_from_slice(&half.to_be_bytes());
    } else {
        out.push(0xfa);
        out.extend_from_slice(&single.to_be_bytes());
    }
}

/// Returns the 16-bit float of the same value, if there is one.
fn half(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let mantissa = bits & 0x7f_ffff;
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    match exponent {
        -127 if mantissa == 0 => Some(sign),
        -14..=15 if mantissa & 0x1fff == 0 => {
            Some(sign | ((exponent + 15) as u16) << 10 | (mantissa >> 13) as u16)
        }
        -24..=-15 => {
            let whole = mantissa | 0x80_0000;
            let shift = -1 - exponent;
            let is_exact = whole & ((1 << shift) - 1) == 0;
            is_exact.then_some(sign | (whole >> shift) as u16)
        }
        _ => None,
    }
}
