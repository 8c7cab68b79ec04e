//! Parses JSON directly to an object in canonical form, in one pass.
//!
//! Promise: the result is that of parsing and canonicalizing. Texts for which those report an
//! error, an unknown field or a duplicate key return `None`; the caller then takes the slow path
//! for the messages.

use super::parse::{Reader, STR_INLINE_BYTES};
use super::raw_extension::raw_from_text;
use crate::scalar;
use crate::types::{Field, MapShape, Presence, Schema, SchemaOr, Shape, Struct, Types};
use keelson_meta::scratch::Scratch;
use keelson_meta::{Map, Path, Str, Value};
use smallvec::SmallVec;

/// Maximum number of fields of a struct: the fields that were seen are bits of a word.
const FIELDS_MAX: usize = 64;

/// Maximum number of members and items in the buffers that a thread keeps.
const BUFFER_ITEMS_MAX: usize = 256;

type Members = Vec<(Str, Value)>;

thread_local! {
    /// Buffers for members and items. Allocating them for each text would take 5 % of the time.
    static BUFFERS: Scratch<(Members, Vec<Value>)> = const { Scratch::new(BUFFER_ITEMS_MAX) };
}

/// Parses a whole text as a struct.
pub(crate) fn read(types: &Types, struct_type: &Struct, text: &[u8]) -> Option<Map> {
    read_whole::<false>(types, struct_type, text)
}

/// Parses a stored object. Members that Go would omit are kept, so that an object in canonical form
/// is what parsing alone returns, except that managed fields stay text.
pub fn read_stored(schema: &Schema, text: &[u8]) -> Option<Map> {
    read_whole::<true>(&schema.types, schema.root(), text)
}

fn read_whole<const ALL: bool>(types: &Types, struct_type: &Struct, text: &[u8]) -> Option<Map> {
    let (members, items) = Scratch::take(&BUFFERS);
    let mut typed = TypedReader::<'_, ALL> { types, reader: Reader::new(text), members, items };
    let root = typed.whole(struct_type);
    Scratch::put_back(&BUFFERS, (typed.members, typed.items));
    root
}

/// Sorts members in field order. There are few, so their positions fit on the stack.
fn sort(struct_type: &Struct, members: &mut [(Str, Value)]) {
    let place = |(name, _): &(Str, Value)| struct_type.position(name);
    let mut places: SmallVec<[Option<usize>; 24]> = members.iter().map(place).collect();
    for next in 1..members.len() {
        let to = places[..next].partition_point(|place| *place <= places[next]);
        places[to..=next].rotate_right(1);
        members[to..=next].rotate_right(1);
    }
}

/// The parser. With `ALL`, members that Go would omit are kept.
struct TypedReader<'a, const ALL: bool> {
    types: &'a Types,
    reader: Reader<'a>,
    /// Members of the open structs, innermost last.
    members: Members,
    /// Items of the open lists, innermost last.
    items: Vec<Value>,
}

impl<const ALL: bool> TypedReader<'_, ALL> {
    /// Parses a struct that is the whole text.
    fn whole(&mut self, struct_type: &Struct) -> Option<Map> {
        if self.reader.peek().ok()? != b'{' {
            return None;
        }
        let root = self.object(struct_type)?;
        self.reader.end().ok()?;
        (self.reader.duplicates.is_empty() && self.reader.overflow.is_none()).then_some(root)
    }

    /// Parses a list or map; the opening bracket is next.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.reader.begin().ok()?;
        let value = read(self)?;
        self.reader.depth -= 1;
        Some(value)
    }

    /// Takes the separator after a member or item. Returns true if another one follows.
    fn more(&mut self, close: u8) -> Option<bool> {
        let byte = self.reader.peek().ok()?;
        self.reader.at += 1;
        match byte {
            b',' => Some(true),
            byte if byte == close => Some(false),
            _ => None,
        }
    }

    /// Takes the closing bracket of an empty list or map. Returns true if it was next.
    fn is_empty(&mut self, close: u8) -> Option<bool> {
        let is_empty = self.reader.peek().ok()? == close;
        self.reader.at += usize::from(is_empty);
        Some(is_empty)
    }

    /// Takes the colon after a key.
    fn colon(&mut self) -> Option<()> {
        if self.reader.peek().ok()? != b':' {
            return None;
        }
        self.reader.at += 1;
        Some(())
    }

    /// Parses a key and its colon. Returns the index of its field.
    #[inline(always)]
    fn key(&mut self, struct_type: &Struct, from: usize) -> Option<usize> {
        if self.reader.peek().ok()? != b'"' {
            return None;
        }
        let rest = self.reader.text.get(self.reader.at + 1..)?;
        if let Some(at) = struct_type.next_in(from, rest) {
            self.reader.at += 1 + struct_type.key_length(at);
            return Some(at);
        }
        self.key_out_of_order(struct_type)
    }

    /// Same as [`Self::key`] for a key that is not one of the next fields.
    #[inline(never)]
    fn key_out_of_order(&mut self, struct_type: &Struct) -> Option<usize> {
        let at = struct_type.position(self.reader.unescaped_string()?)?;
        self.colon()?;
        Some(at)
    }

    /// Parses a struct; the opening brace is next.
    fn object(&mut self, struct_type: &Struct) -> Option<Map> {
        if struct_type.fields.len() > FIELDS_MAX {
            return None;
        }
        self.reader.begin().ok()?;
        let start = self.members.len();
        if self.is_empty(b'}')? {
            self.reader.depth -= 1;
            return Some(Map::new());
        }
        let mut seen_fields = 0_u64;
        let mut next = 0;
        let mut is_sorted = true;
        loop {
            let at = self.key(struct_type, next)?;
            let seen_at_or_after = seen_fields >> at;
            if seen_at_or_after != 0 {
                if seen_at_or_after & 1 != 0 {
                    return None;
                }
                is_sorted = false;
            }
            seen_fields |= 1 << at;
            next = at + 1;
            self.member(&struct_type.fields[at])?;
            if !self.more(b'}')? {
                break;
            }
        }
        self.reader.depth -= 1;
        let mut members = self.members.split_off(start);
        if !is_sorted {
            sort(struct_type, &mut members);
        }
        Some(Map::from_distinct(members))
    }

    /// Parses the value of a field and adds it unless Go would omit it.
    #[inline(always)]
    fn member(&mut self, field: &Field) -> Option<()> {
        match (&field.shape, self.reader.peek().ok()?) {
            (Shape::String, b'"') => {
                let Some(text) = self.reader.unescaped_string() else {
                    return self.member_value(field);
                };
                if text.len() > STR_INLINE_BYTES {
                    self.push_member(field, Value::String(Str::new(text)));
                } else if ALL || !text.is_empty() || field.presence != Presence::OmitEmpty {
                    self.members.push((field.name.clone(), Value::String(Str::new_inline(text))));
                }
            }
            (Shape::Struct(id), b'{') => {
                let map = self.object(self.types.get(*id))?;
                self.members.push((field.name.clone(), Value::Object(map)));
            }
            _ => return self.member_value(field),
        }
        Some(())
    }

    /// Same as [`Self::member`] for a field of any shape.
    #[inline(never)]
    fn member_value(&mut self, field: &Field) -> Option<()> {
        match self.value(&field.shape)? {
            value if ALL => self.push_member(field, value),
            Value::Null if field.nullable => return None,
            // The null metadata of an embedded resource is an empty map.
            Value::Null if field.name == "metadata" && field.presence == Presence::Pointer => {
                return None;
            }
            Value::Null => {}
            // An empty `managedFields` resets the field managers.
            Value::Array(entries) if entries.is_empty() && field.name == "managedFields" => {
                return None;
            }
            value if field.is_omitted(&value) => {}
            value => self.push_member(field, value),
        }
        Some(())
    }

    #[inline(never)]
    fn push_member(&mut self, field: &Field, value: Value) {
        self.members.push((field.name.clone(), value));
    }

    /// Parses a value; a null is null for every shape.
    fn value(&mut self, shape: &Shape) -> Option<Value> {
        let first = self.reader.peek().ok()?;
        if first == b'n' {
            return self.reader.value(&Path::ROOT).ok();
        }
        match (shape, first) {
            (Shape::String | Shape::Formatted, b'"') => self.string().map(Value::String),
            (Shape::Struct(id) | Shape::SchemaOr(_, id), b'{') => {
                self.object(self.types.get(*id)).map(Value::Object)
            }
            (Shape::List(list), b'[') => self.nested(|typed| typed.list(&list.item)),
            (Shape::Map(map), b'{') => self.nested(|typed| typed.map(map)),
            (Shape::Bool | Shape::SchemaOr(SchemaOr::Bool, _), b't' | b'f') => {
                self.reader.bool().ok()
            }
            (Shape::Int32 | Shape::IntOrString, b'-' | b'0'..=b'9') => {
                let number = self.int()?;
                i32::try_from(number).ok().map(|_| Value::Int(number))
            }
            (Shape::Int64, b'-' | b'0'..=b'9') => self.int().map(Value::Int),
            (Shape::Double, b'-' | b'0'..=b'9') => match self.reader.number().ok()? {
                Value::Int(number) => Some(scalar::double(number as f64)),
                Value::Float(number) => Some(scalar::double(number)),
                _ => None,
            },
            (Shape::Number, b'-' | b'0'..=b'9') => self.reader.number().ok().map(scalar::number),
            (Shape::FieldsV1, b'{') if ALL => match self.reader.map_of_maps() {
                Some(text) => Some(Value::Raw(Str::new(text))),
                None => self.reader.value(&Path::ROOT).ok(),
            },
            (Shape::Json, _) | (Shape::FieldsV1, b'{') => self.reader.value(&Path::ROOT).ok(),
            (Shape::RawExtension, _) => self.raw_extension(),
            (shape, b'"') => self.text_scalar(shape),
            _ => None,
        }
    }

    /// Parses a RawExtension value. Duplicate keys in it are not reported.
    #[inline(never)]
    fn raw_extension(&mut self) -> Option<Value> {
        let start = self.reader.at;
        let duplicates = self.reader.duplicates.len();
        let value = self.reader.value(&Path::ROOT).ok()?;
        self.reader.duplicates.truncate(duplicates);
        Some(raw_from_text(&self.reader.text[start..self.reader.at], value))
    }

    /// Parses an integer.
    fn int(&mut self) -> Option<i64> {
        match self.reader.small_int() {
            Some(number) => Some(number),
            None => self.reader.number().ok()?.as_int(),
        }
    }

    /// Parses a type with a text form of its own.
    fn text_scalar(&mut self, shape: &Shape) -> Option<Value> {
        let words = self.string()?;
        match shape {
            Shape::IntOrString => Some(Value::String(words)),
            Shape::Bytes => scalar::bytes(words).ok(),
            // Rounding of amounts below 1m depends on the field.
            Shape::Quantity if words.contains(['n', 'u', '.', 'e']) => None,
            Shape::Quantity => scalar::quantity(&Value::String(words)).ok(),
            Shape::Time => scalar::time(words).ok(),
            Shape::MicroTime => scalar::micro_time(words).ok(),
            Shape::Duration => scalar::duration(&words).ok(),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Str> {
        self.reader.string().ok()
    }

    fn list(&mut self, shape: &Shape) -> Option<Value> {
        if self.is_empty(b']')? {
            return Some(Value::Array(vec![]));
        }
        let start = self.items.len();
        loop {
            if let Shape::Struct(id) = shape
                && self.reader.peek().ok()? == b'{'
            {
                let item = self.object(self.types.get(*id))?;
                self.items.push(Value::Object(item));
            } else {
                match self.value(shape)? {
                    // The replacement of a null item depends on its type.
                    Value::Null => return None,
                    item => self.items.push(item),
                }
            }
            if !self.more(b']')? {
                return Some(Value::Array(self.items.split_off(start)));
            }
        }
    }

    fn map(&mut self, shape: &MapShape) -> Option<Value> {
        if self.is_empty(b'}')? {
            return Some(Value::Object(Map::new()));
        }
        let start = self.members.len();
        loop {
            if self.reader.peek().ok()? != b'"' {
                return None;
            }
            let key = self.string()?;
            self.colon()?;
            match self.value(&shape.value)? {
                Value::Null => return None,
                value => self.members.push((key, value)),
            }
            if !self.more(b'}')? {
                break;
            }
        }
        let mut has_duplicate = false;
        let map = Map::from_entries(self.members.split_off(start), |_| has_duplicate = true);
        (!has_duplicate).then_some(Value::Object(map))
    }
}
