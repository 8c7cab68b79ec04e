//! Protobuf message to object through its schema, in the form that decoding the same object from JSON
//! gives: members in canonical order, what Go would not print left out.

use super::encode::ZERO_TIME_SECONDS;
use super::wire::{DEPTH_MAX, ProtoError, Reader, Wire, packed};
use crate::types::{Field, Holds, SchemaOr, Shape, Slot, Struct, Types};
use crate::{json, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Map, Str, Value};
use smallvec::{SmallVec, smallvec};

/// Reads the message of a struct.
pub(super) fn message(types: &Types, of: &Struct, bytes: &[u8]) -> Result<Map, ProtoError> {
    Decoder { types, depth: 0 }.members(of, &[bytes])
}

/// What was found for a member so far.
#[derive(Debug)]
enum Found<'a> {
    Nothing,
    /// A scalar; the last one counts.
    Value(Value),
    /// The pieces of a message, which count as if they were one.
    Pieces(Pieces<'a>),
    Items(Vec<Value>),
    /// Entries of a map; the last one of a key counts.
    Entries(Vec<(Str, Value)>),
}

/// Entries of a map among which keys may stand more than once.
const ENTRIES_WITH_DUPLICATES_MAX: usize = 4_096;

type Pieces<'a> = SmallVec<[&'a [u8]; 1]>;

struct Decoder<'t> {
    types: &'t Types,
    /// Messages around the one at hand.
    depth: usize,
}

impl<'t> Decoder<'t> {
    /// Reads the pieces of one message.
    fn members(&mut self, of: &Struct, pieces: &[&[u8]]) -> Result<Map, ProtoError> {
        self.deeper()?;
        let mut found: SmallVec<[Found<'_>; 16]> = SmallVec::new();
        found.resize_with(of.fields.len(), || Found::Nothing);
        for piece in pieces {
            self.slots(of, of.message(), piece, &mut found)?;
        }
        let count = found.iter().filter(|found| !matches!(found, Found::Nothing)).count();
        let mut entries = Vec::with_capacity(count);
        for (field, found) in of.fields.iter().zip(found) {
            let value = match found {
                Found::Nothing => continue,
                Found::Value(value) => value,
                Found::Pieces(pieces) => self.whole(&field.shape, &pieces, &field.name)?,
                Found::Items(items) => Value::Array(items),
                Found::Entries(entries) => Value::Object(entries.into_iter().collect()),
            };
            if !value.is_null() && !field.is_left_out(&value) {
                entries.push((field.name.clone(), value));
            }
        }
        self.depth -= 1;
        Ok(Map::from_distinct(entries))
    }

    fn deeper(&mut self) -> Result<(), ProtoError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(ProtoError::Depth) } else { Ok(()) }
    }

    fn slots<'a>(
        &mut self,
        of: &Struct,
        slots: &[Slot],
        bytes: &'a [u8],
        found: &mut [Found<'a>],
    ) -> Result<(), ProtoError> {
        let mut reader = Reader::new(bytes);
        while let Some((tag, wire)) = reader.next()? {
            let Ok(slot) = slots.binary_search_by_key(&tag, |slot| slot.tag) else { continue };
            match &slots[slot].holds {
                Holds::Member(at) => {
                    let field = &of.fields[usize::from(*at)];
                    self.member(field, wire, &mut found[usize::from(*at)])?;
                }
                Holds::Inlined(inlined) => {
                    if !inlined.always {
                        begin_lists(&inlined.slots, found);
                    }
                    self.slots(of, &inlined.slots, wire.bytes(&of.name)?, found)?;
                }
            }
        }
        Ok(())
    }

    /// Takes in one field of a member.
    fn member<'a>(
        &mut self,
        field: &Field,
        wire: Wire<'a>,
        found: &mut Found<'a>,
    ) -> Result<(), ProtoError> {
        let name = &field.name;
        match &field.shape {
            Shape::List(list) => {
                let mut items = match std::mem::replace(found, Found::Nothing) {
                    Found::Items(items) => items,
                    _ => vec![],
                };
                self.item(&list.item, wire, &mut items, name)?;
                *found = Found::Items(items);
            }
            Shape::Map(map) => {
                let entry = self.entry(&map.value, wire.bytes(name)?, name)?;
                match found {
                    Found::Entries(entries) => push_entry(entries, entry),
                    other => *other = Found::Entries(vec![entry]),
                }
            }
            shape if is_message(shape) => {
                let bytes = wire.bytes(name)?;
                match found {
                    Found::Pieces(pieces) => pieces.push(bytes),
                    other => *other = Found::Pieces(smallvec![bytes]),
                }
            }
            // Most scalars are zero: they are written whether they are set or not.
            shape => {
                let value = scalar(shape, wire, name)?;
                let is_out = field.is_left_out(&value);
                *found = if is_out { Found::Nothing } else { Found::Value(value) };
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
                items.push(self.whole(shape, &[wire.bytes(name)?], name)?);
            }
            (shape, wire) => items.push(scalar(shape, wire, name)?),
        }
        Ok(())
    }

    /// A map's entry: field 1 is the key, field 2 the value.
    fn entry(
        &mut self,
        shape: &Shape,
        bytes: &[u8],
        name: &str,
    ) -> Result<(Str, Value), ProtoError> {
        self.deeper()?;
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
            (Shape::List(list), None) => self.wrapped(&list.item, &pieces, name)?,
            (shape, None) if is_message(shape) => self.whole(shape, &pieces, name)?,
            (Shape::Bool, None) => Value::Bool(false),
            (Shape::Int32 | Shape::Int64 | Shape::Double, None) => Value::Int(0),
            (_, None) => Value::String(Str::default()),
        };
        self.depth -= 1;
        Ok((key, value))
    }

    /// A list that stands in a message of its own, as field 1.
    fn wrapped(&mut self, item: &Shape, pieces: &[&[u8]], name: &str) -> Result<Value, ProtoError> {
        self.deeper()?;
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

    /// A value whose protobuf form is a message.
    fn whole(&mut self, shape: &Shape, pieces: &[&[u8]], name: &str) -> Result<Value, ProtoError> {
        match shape {
            Shape::Struct(id) => {
                let types: &'t Types = self.types;
                self.members(types.get(*id), pieces).map(Value::Object)
            }
            Shape::SchemaOr(second, id) => {
                self.schema_or(*second, &Shape::Struct(*id), pieces, name)
            }
            _ => special(shape, pieces, name),
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
            _ if !one.is_empty() => self.whole(schema, &one, name),
            SchemaOr::Bool => Ok(Value::Bool(allows)),
            _ if items.is_empty() => Ok(Value::Null),
            _ => Ok(Value::Array(items)),
        }
    }
}

/// Marks the lists of a message that stands although it is empty.
fn begin_lists(slots: &[Slot], found: &mut [Found<'_>]) {
    for slot in slots {
        if let Holds::Member(at) = &slot.holds
            && let place @ Found::Nothing = &mut found[usize::from(*at)]
        {
            *place = Found::Items(vec![]);
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
        // As in Go, the high bits of a number that is too large are lost.
        (Shape::Int32, Wire::Varint(number)) => Ok(Value::Int(i64::from(number as i32))),
        (Shape::Int64, Wire::Varint(number)) => Ok(Value::Int(number as i64)),
        (Shape::Double, Wire::Fixed64(bits)) => {
            let number = f64::from_bits(bits);
            if !number.is_finite() {
                return Err(content(name, "a number that is not finite"));
            }
            Ok(text::double(number))
        }
        (_, wire) => Err(wire.wrong(name)),
    }
}

/// Text that is not UTF-8 is read as JSON decoding reads it.
fn string(bytes: &[u8]) -> Str {
    match std::str::from_utf8(bytes) {
        Ok(text) => Str::new(text),
        Err(_) => Str::from(String::from_utf8_lossy(bytes)),
    }
}

fn content(name: &str, why: impl Into<String>) -> ProtoError {
    ProtoError::Content(name.to_owned(), why.into())
}

/// Adds an entry of a map. Before a long list would grow, keys that stand in it more than once are made one: an
/// empty entry is two bytes of a body.
fn push_entry(entries: &mut Vec<(Str, Value)>, entry: (Str, Value)) {
    if entries.len() == entries.capacity() && entries.len() >= ENTRIES_WITH_DUPLICATES_MAX {
        let distinct: Map = std::mem::take(entries).into_iter().collect();
        *entries = distinct.into_iter().collect();
        entries.reserve(entries.len().max(ENTRIES_WITH_DUPLICATES_MAX));
    }
    entries.push(entry);
}

/// A message whose JSON form is no map of its fields.
fn special(shape: &Shape, pieces: &[&[u8]], name: &str) -> Result<Value, ProtoError> {
    let (mut numbers, mut bytes): ([u64; 2], &[u8]) = ([0; 2], &[]);
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
        Shape::Quantity => {
            text::quantity(&Value::String(string(bytes))).map_err(|error| content(name, error.0))
        }
        Shape::IntOrString => match numbers[0] {
            0 => Ok(Value::Int(i64::from(numbers[1] as i32))),
            1 => Ok(Value::String(string(bytes))),
            _ => Err(content(name, "impossible IntOrString.Type")),
        },
        _ if bytes.is_empty() => Ok(Value::Null),
        _ => match json::parse(bytes) {
            Ok(parsed) if matches!(shape, Shape::RawExtension) => {
                Ok(json::kept(bytes, parsed.value))
            }
            Ok(parsed) => Ok(parsed.value),
            Err(error) => Err(content(name, error.to_string())),
        },
    }
}

/// Seconds of 10000-01-01T00:00:00Z, the first point that RFC 3339 cannot say.
const END_SECONDS: i64 = 253_402_300_800;
/// Seconds of 0000-01-01T00:00:00Z.
const BEGIN_SECONDS: i64 = -62_167_219_200;

fn time(seconds: i64, nanos: i32, micro: bool, name: &str) -> Result<Value, ProtoError> {
    let time = Timestamp { seconds, nanos: 0 }.plus(GoDuration(i64::from(nanos)));
    if time == (Timestamp { seconds: ZERO_TIME_SECONDS, nanos: 0 }) {
        return Ok(Value::Null);
    }
    if !(BEGIN_SECONDS..END_SECONDS).contains(&time.seconds) {
        return Err(content(name, "year outside of range [0,9999]"));
    }
    let text = if micro { time.micro().to_string() } else { time.to_string() };
    Ok(Value::from(text))
}
