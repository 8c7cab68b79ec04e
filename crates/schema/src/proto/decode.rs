//! Decodes protobuf messages to objects by their schema, in the canonical form that decoding from
//! JSON returns.

use super::encode::ZERO_TIME_SECONDS;
use super::wire::{DEPTH_MAX, ProtoError, Reader, Wire, packed};
use crate::types::{Field, ProtoContent, ProtoField, SchemaOr, Shape, Struct, Types};
use crate::{json, scalar};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Map, Str, Value};
use smallvec::{SmallVec, smallvec};

/// Decodes the message of a struct.
pub(super) fn message(
    types: &Types,
    struct_type: &Struct,
    bytes: &[u8],
) -> Result<Map, ProtoError> {
    Decoder { types, depth: 0 }.members(struct_type, &[bytes])
}

/// What was decoded for a field so far.
#[derive(Debug)]
enum FieldState<'a> {
    Absent,
    /// A scalar; the last one wins.
    Value(Value),
    /// The pieces of a message, which are merged.
    Pieces(Pieces<'a>),
    Items(Vec<Value>),
    /// Entries of a map; the last one of a key wins.
    Entries(Vec<(Str, Value)>),
}

/// Number of map entries that may contain duplicate keys.
const ENTRIES_BEFORE_DEDUP_MAX: usize = 4_096;

type Pieces<'a> = SmallVec<[&'a [u8]; 1]>;

struct Decoder<'t> {
    types: &'t Types,
    /// Number of enclosing messages.
    depth: usize,
}

impl<'t> Decoder<'t> {
    /// Decodes the pieces of one message.
    fn members(&mut self, struct_type: &Struct, pieces: &[&[u8]]) -> Result<Map, ProtoError> {
        self.enter()?;
        let mut states: SmallVec<[FieldState<'_>; 16]> = SmallVec::new();
        states.resize_with(struct_type.fields.len(), || FieldState::Absent);
        for piece in pieces {
            self.proto_fields(struct_type, struct_type.message(), piece, &mut states)?;
        }
        let count = states.iter().filter(|state| !matches!(state, FieldState::Absent)).count();
        let mut entries = Vec::with_capacity(count);
        for (field, state) in struct_type.fields.iter().zip(states) {
            let value = match state {
                FieldState::Absent => continue,
                FieldState::Value(value) => value,
                FieldState::Pieces(pieces) => {
                    self.message_value(&field.shape, &pieces, &field.name)?
                }
                FieldState::Items(items) => Value::Array(items),
                FieldState::Entries(entries) => Value::Object(entries.into_iter().collect()),
            };
            if !value.is_null() && !field.is_omitted(&value) {
                entries.push((field.name.clone(), value));
            }
        }
        self.depth -= 1;
        Ok(Map::from_distinct(entries))
    }

    fn enter(&mut self) -> Result<(), ProtoError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(ProtoError::Depth) } else { Ok(()) }
    }

    fn proto_fields<'a>(
        &mut self,
        struct_type: &Struct,
        proto_fields: &[ProtoField],
        bytes: &'a [u8],
        states: &mut [FieldState<'a>],
    ) -> Result<(), ProtoError> {
        let mut reader = Reader::new(bytes);
        while let Some((tag, wire)) = reader.next()? {
            let Ok(proto_field) =
                proto_fields.binary_search_by_key(&tag, |proto_field| proto_field.tag)
            else {
                continue;
            };
            match &proto_fields[proto_field].content {
                ProtoContent::Member(at) => {
                    let field = &struct_type.fields[usize::from(*at)];
                    self.member(field, wire, &mut states[usize::from(*at)])?;
                }
                ProtoContent::Embedded(embedded) => {
                    if !embedded.always {
                        start_lists(&embedded.proto_fields, states);
                    }
                    self.proto_fields(
                        struct_type,
                        &embedded.proto_fields,
                        wire.bytes(&struct_type.name)?,
                        states,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Decodes one occurrence of a field.
    fn member<'a>(
        &mut self,
        field: &Field,
        wire: Wire<'a>,
        state: &mut FieldState<'a>,
    ) -> Result<(), ProtoError> {
        let name = &field.name;
        match &field.shape {
            Shape::List(list) => {
                let mut items = match std::mem::replace(state, FieldState::Absent) {
                    FieldState::Items(items) => items,
                    _ => vec![],
                };
                self.item(&list.item, wire, &mut items, name)?;
                *state = FieldState::Items(items);
            }
            Shape::Map(map) => {
                let entry = self.entry(&map.value, wire.bytes(name)?, name)?;
                match state {
                    FieldState::Entries(entries) => push_entry(entries, entry),
                    other => *other = FieldState::Entries(vec![entry]),
                }
            }
            shape if is_message(shape) => {
                let bytes = wire.bytes(name)?;
                match state {
                    FieldState::Pieces(pieces) => pieces.push(bytes),
                    other => *other = FieldState::Pieces(smallvec![bytes]),
                }
            }
            // Most scalars are zero, because unset ones are encoded too.
            shape => {
                let value = scalar(shape, wire, name)?;
                let is_omitted = field.is_omitted(&value);
                *state = if is_omitted { FieldState::Absent } else { FieldState::Value(value) };
            }
        }
        Ok(())
    }

    fn item(
        &mut self,
        shape: &Shape,
        wire: Wire<'_>,
        items: &mut Vec<Value>,
        name: &str,
    ) -> Result<(), ProtoError> {
        match (shape, wire) {
            (Shape::Int32 | Shape::Int64 | Shape::Bool, Wire::Bytes(bytes)) => {
                for number in packed(bytes)? {
                    items.push(scalar(shape, Wire::Varint(number), name)?);
                }
            }
            (shape, wire) if is_message(shape) => {
                items.push(self.message_value(shape, &[wire.bytes(name)?], name)?);
            }
            (shape, wire) => items.push(scalar(shape, wire, name)?),
        }
        Ok(())
    }

    /// Decodes a map entry: field 1 is the key, field 2 the value.
    fn entry(
        &mut self,
        shape: &Shape,
        bytes: &[u8],
        name: &str,
    ) -> Result<(Str, Value), ProtoError> {
        self.enter()?;
        let mut key = Str::default();
        let mut pieces = Pieces::new();
        let mut value = None;
        let mut reader = Reader::new(bytes);
        while let Some((tag, wire)) = reader.next()? {
            match tag {
                1 => key = string(wire.bytes(name)?),
                2 if is_message(shape) || matches!(shape, Shape::List(_)) => {
                    pieces.push(wire.bytes(name)?);
                }
                2 => value = Some(scalar(shape, wire, name)?),
                _ => {}
            }
        }
        let value = match (shape, value) {
            (_, Some(value)) => value,
            (Shape::List(list), None) => self.wrapped_list(&list.item, &pieces, name)?,
            (shape, None) if is_message(shape) => self.message_value(shape, &pieces, name)?,
            (Shape::Bool, None) => Value::Bool(false),
            (Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Number, None) => Value::Int(0),
            (_, None) => Value::String(Str::default()),
        };
        self.depth -= 1;
        Ok((key, value))
    }

    /// Decodes a list in a wrapper message, as field 1.
    fn wrapped_list(
        &mut self,
        item: &Shape,
        pieces: &[&[u8]],
        name: &str,
    ) -> Result<Value, ProtoError> {
        self.enter()?;
        let mut items = vec![];
        for piece in pieces {
            let mut reader = Reader::new(piece);
            while let Some((tag, wire)) = reader.next()? {
                if tag == 1 {
                    self.item(item, wire, &mut items, name)?;
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Array(items))
    }

    /// Decodes a value whose protobuf form is a message.
    fn message_value(
        &mut self,
        shape: &Shape,
        pieces: &[&[u8]],
        name: &str,
    ) -> Result<Value, ProtoError> {
        match shape {
            Shape::Struct(id) => {
                let types: &'t Types = self.types;
                self.members(types.get(*id), pieces).map(Value::Object)
            }
            Shape::SchemaOr(second, id) => {
                self.schema_or(*second, &Shape::Struct(*id), pieces, name)
            }
            _ => special_message(shape, pieces, name),
        }
    }

    fn schema_or(
        &mut self,
        second: SchemaOr,
        schema: &Shape,
        pieces: &[&[u8]],
        name: &str,
    ) -> Result<Value, ProtoError> {
        let mut allows = false;
        let mut one = Pieces::new();
        let mut items = vec![];
        for piece in pieces {
            let mut reader = Reader::new(piece);
            while let Some((tag, wire)) = reader.next()? {
                match (second, tag) {
                    (SchemaOr::Bool, 1) => allows = wire.varint(name)? != 0,
                    (SchemaOr::Bool, 2) | (_, 1) => one.push(wire.bytes(name)?),
                    (SchemaOr::Array, 2) => self.item(schema, wire, &mut items, name)?,
                    (SchemaOr::StringArray, 2) => {
                        self.item(&Shape::String, wire, &mut items, name)?;
                    }
                    _ => {}
                }
            }
        }
        match second {
            _ if !one.is_empty() => self.message_value(schema, &one, name),
            SchemaOr::Bool => Ok(Value::Bool(allows)),
            _ if items.is_empty() => Ok(Value::Null),
            _ => Ok(Value::Array(items)),
        }
    }
}

/// Sets the lists of a message that is present to empty.
fn start_lists(proto_fields: &[ProtoField], states: &mut [FieldState<'_>]) {
    for proto_field in proto_fields {
        if let ProtoContent::Member(at) = &proto_field.content
            && let place @ FieldState::Absent = &mut states[usize::from(*at)]
        {
            *place = FieldState::Items(vec![]);
        }
    }
}

fn is_message(shape: &Shape) -> bool {
    match shape {
        Shape::String
        | Shape::Formatted
        | Shape::Bool
        | Shape::Int32
        | Shape::Int64
        | Shape::Double
        | Shape::Number
        | Shape::Bytes
        | Shape::List(_)
        | Shape::Map(_) => false,
        Shape::Time
        | Shape::MicroTime
        | Shape::Duration
        | Shape::Quantity
        | Shape::IntOrString
        | Shape::Json
        | Shape::RawExtension
        | Shape::FieldsV1
        | Shape::SchemaOr(..)
        | Shape::Struct(_) => true,
    }
}

fn scalar(shape: &Shape, wire: Wire<'_>, name: &str) -> Result<Value, ProtoError> {
    match (shape, wire) {
        (Shape::String | Shape::Formatted, Wire::Bytes(bytes)) => Ok(Value::String(string(bytes))),
        (Shape::Bytes, Wire::Bytes(bytes)) => Ok(Value::from(STANDARD.encode(bytes))),
        (Shape::Bool, Wire::Varint(number)) => Ok(Value::Bool(number != 0)),
        // Like Go, truncates a number that is too large.
        (Shape::Int32, Wire::Varint(number)) => Ok(Value::Int(i64::from(number as i32))),
        (Shape::Int64, Wire::Varint(number)) => Ok(Value::Int(number as i64)),
        (Shape::Double, Wire::Fixed64(bits)) => {
            let number = f64::from_bits(bits);
            if !number.is_finite() {
                return Err(content_error(name, "a number that is not finite"));
            }
            Ok(scalar::double(number))
        }
        (_, wire) => Err(wire.wrong_type(name)),
    }
}

/// Invalid UTF-8 is replaced, as JSON decoding does.
fn string(bytes: &[u8]) -> Str {
    match std::str::from_utf8(bytes) {
        Ok(text) => Str::new(text),
        Err(_) => Str::from(String::from_utf8_lossy(bytes)),
    }
}

fn content_error(name: &str, why: impl Into<String>) -> ProtoError {
    ProtoError::Content(name.to_owned(), why.into())
}

/// Adds a map entry. Before a long list would grow, duplicate keys are removed, because an empty
/// entry takes only two bytes of a body.
fn push_entry(entries: &mut Vec<(Str, Value)>, entry: (Str, Value)) {
    if entries.len() == entries.capacity() && entries.len() >= ENTRIES_BEFORE_DEDUP_MAX {
        let distinct: Map = std::mem::take(entries).into_iter().collect();
        *entries = distinct.into_iter().collect();
        entries.reserve(entries.len().max(ENTRIES_BEFORE_DEDUP_MAX));
    }
    entries.push(entry);
}

/// Decodes a message whose JSON form is not an object of its fields.
fn special_message(shape: &Shape, pieces: &[&[u8]], name: &str) -> Result<Value, ProtoError> {
    let mut numbers = [0u64; 2];
    let mut bytes: &[u8] = &[];
    let text_tag = if matches!(shape, Shape::IntOrString) { 3 } else { 1 };
    let takes_numbers =
        matches!(shape, Shape::Time | Shape::MicroTime | Shape::Duration | Shape::IntOrString);
    for piece in pieces {
        let mut reader = Reader::new(piece);
        while let Some((tag, wire)) = reader.next()? {
            match tag {
                1 | 2 if takes_numbers => numbers[tag as usize - 1] = wire.varint(name)?,
                _ if tag == text_tag => bytes = wire.bytes(name)?,
                _ => {}
            }
        }
    }
    let is_empty = pieces.iter().all(|piece| piece.is_empty());
    match shape {
        Shape::Time | Shape::MicroTime if is_empty => Ok(Value::Null),
        Shape::Time => time(numbers[0] as i64, 0, false, name),
        Shape::MicroTime => time(numbers[0] as i64, numbers[1] as i32, true, name),
        Shape::Duration => Ok(Value::from(GoDuration(numbers[0] as i64).to_string())),
        Shape::Quantity if bytes.is_empty() => Ok(Value::from("0")),
        Shape::Quantity => scalar::quantity(&Value::String(string(bytes)))
            .map_err(|error| content_error(name, error.0)),
        Shape::IntOrString => match numbers[0] {
            0 => Ok(Value::Int(i64::from(numbers[1] as i32))),
            1 => Ok(Value::String(string(bytes))),
            _ => Err(content_error(name, "impossible IntOrString.Type")),
        },
        _ if bytes.is_empty() => Ok(Value::Null),
        _ => match json::parse(bytes) {
            Ok(parsed) if matches!(shape, Shape::RawExtension) => {
                Ok(json::raw_from_text(bytes, parsed.value))
            }
            Ok(parsed) => Ok(parsed.value),
            Err(error) => Err(content_error(name, error.to_string())),
        },
    }
}

/// Seconds of 10000-01-01T00:00:00Z, the first time that RFC 3339 cannot represent.
const END_SECONDS: i64 = 253_402_300_800;
/// Seconds of 0000-01-01T00:00:00Z.
const BEGIN_SECONDS: i64 = -62_167_219_200;

fn time(seconds: i64, nanos: i32, micro: bool, name: &str) -> Result<Value, ProtoError> {
    let time = Timestamp { seconds, nanos: 0 }.plus(GoDuration(i64::from(nanos)));
    if time == (Timestamp { seconds: ZERO_TIME_SECONDS, nanos: 0 }) {
        return Ok(Value::Null);
    }
    if !(BEGIN_SECONDS..END_SECONDS).contains(&time.seconds) {
        return Err(content_error(name, "year outside of range [0,9999]"));
    }
    let text = if micro { time.micro().to_string() } else { time.to_string() };
    Ok(Value::from(text))
}
