//! JSON straight to an object in canonical form, in one pass without the values in between.
//!
//! Promise: what is read here is what parsing and conforming give; for a text on which those would say
//! anything (a fault, a name no field has, a key that stands twice) there is no answer, and the caller
//! takes the long way for the words.

use super::parse::{Reader, STR_INLINE_BYTES};
use super::texts::kept;
use crate::text;
use crate::types::{Field, MapShape, Presence, Schema, SchemaOr, Shape, Struct, Types};
use keelson_meta::scratch::Scratch;
use keelson_meta::{Map, Path, Str, Value};
use smallvec::SmallVec;

/// Fields of a struct that is read here: the ones that were met are bits of a word.
const FIELDS_MAX: usize = 64;

/// Members, and items, for which a thread keeps room to read the next text.
const ROOM_MAX: usize = 256;

type Members = Vec<(Str, Value)>;

thread_local! {
    /// Room for members and items at hand: to make it anew for each text costs a twentieth of the reading,
    /// and as much memory as the half of an object.
    static ROOM: Scratch<(Members, Vec<Value>)> = const { Scratch::new(ROOM_MAX) };
}

/// Reads the whole text as a struct.
pub(crate) fn read(types: &Types, of: &Struct, text: &[u8]) -> Option<Map> {
    read_whole::<false>(types, of, text)
}

/// Reads the whole text as a struct, as it stands there: what Go would leave out is kept, so that an object
/// in canonical form is what parsing alone gives, but for the fields of owners, which stay text.
pub fn read_stored(schema: &Schema, text: &[u8]) -> Option<Map> {
    read_whole::<true>(&schema.types, schema.root(), text)
}

fn read_whole<const ALL: bool>(types: &Types, of: &Struct, text: &[u8]) -> Option<Map> {
    let (members, items) = Scratch::take(&ROOM);
    let mut typed = Typed::<'_, ALL> { types, reader: Reader::new(text), members, items };
    let root = typed.whole(of);
    Scratch::put_back(&ROOM, (typed.members, typed.items));
    root
}

/// Puts members into the order of their fields. They are few: what is sorted by them stands on the stack.
fn sort(of: &Struct, members: &mut [(Str, Value)]) {
    let place = |(name, _): &(Str, Value)| of.position(name);
    let mut places: SmallVec<[Option<usize>; 24]> = members.iter().map(place).collect();
    for next in 1..members.len() {
        let to = places[..next].partition_point(|place| *place <= places[next]);
        places[to..=next].rotate_right(1);
        members[to..=next].rotate_right(1);
    }
}

/// With `ALL`, members that Go would leave out are kept.
struct Typed<'a, const ALL: bool> {
    types: &'a Types,
    reader: Reader<'a>,
    /// Members of the structs at hand, those of the innermost last.
    members: Members,
    /// Items of the lists at hand, those of the innermost last.
    items: Vec<Value>,
}

impl<const ALL: bool> Typed<'_, ALL> {
    /// Reads a struct and nothing behind it.
    fn whole(&mut self, of: &Struct) -> Option<Map> {
        if self.reader.peek().ok()? != b'{' {
            return None;
        }
        let root = self.object(of)?;
        self.reader.end().ok()?;
        self.reader.duplicates.is_empty().then_some(root)
    }

    /// Reads a list or map, with its opening bracket as the next byte.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.reader.begin().ok()?;
        let value = read(self)?;
        self.reader.depth -= 1;
        Some(value)
    }

    /// Goes past what stands after a member or item; true when another one follows.
    fn more(&mut self, close: u8) -> Option<bool> {
        let byte = self.reader.peek().ok()?;
        self.reader.at += 1;
        match byte {
            b',' => Some(true),
            byte if byte == close => Some(false),
            _ => None,
        }
    }

    /// Whether a list or map ends where it began.
    fn is_empty(&mut self, close: u8) -> Option<bool> {
        let is_empty = self.reader.peek().ok()? == close;
        self.reader.at += usize::from(is_empty);
        Some(is_empty)
    }

    /// Goes past the colon; the next byte is that of a value.
    fn colon(&mut self) -> Option<()> {
        if self.reader.peek().ok()? != b':' {
            return None;
        }
        self.reader.at += 1;
        Some(())
    }

    /// Reads a key and its colon; gives the place of its field.
    #[inline(always)]
    fn key(&mut self, of: &Struct, from: usize) -> Option<usize> {
        if self.reader.peek().ok()? != b'"' {
            return None;
        }
        let rest = self.reader.text.get(self.reader.at + 1..)?;
        if let Some(at) = of.next_in(from, rest) {
            self.reader.at += 1 + of.key_length(at);
            return Some(at);
        }
        self.other_key(of)
    }

    /// The same for a key that is none of the next fields'.
    #[inline(never)]
    fn other_key(&mut self, of: &Struct) -> Option<usize> {
        let at = of.position(self.reader.plain_string()?)?;
        self.colon()?;
        Some(at)
    }

    /// Reads a struct, with its opening brace as the next byte.
    fn object(&mut self, of: &Struct) -> Option<Map> {
        if of.fields.len() > FIELDS_MAX {
            return None;
        }
        self.reader.begin().ok()?;
        let start = self.members.len();
        if self.is_empty(b'}')? {
            self.reader.depth -= 1;
            return Some(Map::new());
        }
        let mut met = 0_u64;
        let mut next = 0;
        let mut is_sorted = true;
        loop {
            let at = self.key(of, next)?;
            let met_after = met >> at;
            if met_after != 0 {
                if met_after & 1 != 0 {
                    return None;
                }
                is_sorted = false;
            }
            met |= 1 << at;
            next = at + 1;
            self.member(&of.fields[at])?;
            if !self.more(b'}')? {
                break;
            }
        }
        self.reader.depth -= 1;
        let mut members = self.members.split_off(start);
        if !is_sorted {
            sort(of, &mut members);
        }
        Some(Map::from_distinct(members))
    }

    /// Reads the value of a member, and keeps it unless Go would leave it out.
    #[inline(always)]
    fn member(&mut self, field: &Field) -> Option<()> {
        match (&field.shape, self.reader.peek().ok()?) {
            (Shape::String, b'"') => {
                let Some(text) = self.reader.plain_string() else { return self.other(field) };
                if text.len() > STR_INLINE_BYTES {
                    self.keep(field, Value::String(Str::new(text)));
                } else if ALL || !text.is_empty() || field.presence != Presence::OmitEmpty {
                    self.members.push((field.name.clone(), Value::String(Str::new_inline(text))));
                }
            }
            (Shape::Struct(id), b'{') => {
                let map = self.object(self.types.get(*id))?;
                self.members.push((field.name.clone(), Value::Object(map)));
            }
            _ => return self.other(field),
        }
        Some(())
    }

    /// The same for any kind of member.
    #[inline(never)]
    fn other(&mut self, field: &Field) -> Option<()> {
        match self.value(&field.shape)? {
            value if ALL => self.keep(field, value),
            Value::Null if field.nullable => return None,
            Value::Null => {}
            // An empty list resets the owners of the object.
            Value::Array(entries) if entries.is_empty() && field.name == "managedFields" => {
                return None;
            }
            value if field.is_left_out(&value) => {}
            value => self.keep(field, value),
        }
        Some(())
    }

    #[inline(never)]
    fn keep(&mut self, field: &Field, value: Value) {
        self.members.push((field.name.clone(), value));
    }

    /// Reads a value; null for a null, whatever the shape.
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
                Value::Int(number) => Some(text::double(number as f64)),
                Value::Float(number) => Some(text::double(number)),
                _ => None,
            },
            (Shape::FieldsV1, b'{') if ALL => match self.reader.maps() {
                Some(text) => Some(Value::Raw(Str::new(text))),
                None => self.reader.value(&Path::ROOT).ok(),
            },
            (Shape::Json, _) | (Shape::FieldsV1, b'{') => self.reader.value(&Path::ROOT).ok(),
            (Shape::RawExtension, _) => self.kept(),
            (shape, b'"') => self.text(shape),
            _ => None,
        }
    }

    /// Reads a value that is kept as text. What stands twice in it is nobody's concern.
    #[inline(never)]
    fn kept(&mut self) -> Option<Value> {
        let (start, duplicates) = (self.reader.at, self.reader.duplicates.len());
        let value = self.reader.value(&Path::ROOT).ok()?;
        self.reader.duplicates.truncate(duplicates);
        Some(kept(&self.reader.text[start..self.reader.at], value))
    }

    /// Reads a number, which must be whole.
    fn int(&mut self) -> Option<i64> {
        match self.reader.small_int() {
            Some(number) => Some(number),
            None => self.reader.number().ok()?.as_int(),
        }
    }

    /// Shapes whose JSON form is text with rules of its own.
    fn text(&mut self, shape: &Shape) -> Option<Value> {
        let words = self.string()?;
        match shape {
            Shape::IntOrString => Some(Value::String(words)),
            Shape::Bytes => text::bytes(words).ok(),
            // What is smaller than a thousandth depends on where it stands.
            Shape::Quantity if words.contains(['n', 'u', '.', 'e']) => None,
            Shape::Quantity => text::quantity(&Value::String(words)).ok(),
            Shape::Time => text::time(words).ok(),
            Shape::MicroTime => text::micro_time(words).ok(),
            Shape::Duration => text::duration(&words).ok(),
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
                    // What a null item becomes depends on its type.
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
        let mut stands_twice = false;
        let map = Map::from_entries(self.members.split_off(start), |_| stands_twice = true);
        (!stands_twice).then_some(Value::Object(map))
    }
}
