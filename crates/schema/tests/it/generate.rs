//! Generates objects from schemas: seeded, of bounded size, with values that are hard to encode.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Map, Str, Value};
use keelson_schema::types::{Presence, SchemaOr};
use keelson_schema::{Field, Schema, Shape, Struct, Types};

/// Maximum nesting of structs; deeper structs have no struct members.
const DEPTH_MAX: usize = 9;

/// A generator of pseudo-random numbers (SplitMix64) and objects.
pub struct Generator {
    state: u64,
    depth: usize,
}

impl Generator {
    /// Creates a generator. Equal seeds generate equal objects.
    pub fn new(seed: u64) -> Self {
        Generator { state: seed, depth: 0 }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Returns an object of the schema's kind.
    pub fn object(&mut self, schema: &Schema) -> Value {
        self.members(&schema.types, schema.root())
    }

    fn members(&mut self, types: &Types, of: &Struct) -> Value {
        self.depth += 1;
        // Deeper structs have fewer members.
        let odds = 1 + self.depth.min(6) / 2 + usize::from(of.fields.len() > 20);
        let mut map = Map::new();
        for field in &of.fields {
            // Protobuf does not encode the kind of an embedded object.
            if !field.tag.is_empty() && self.below(odds) == 0 {
                let value = self.member(types, field);
                map.insert(field.name.clone(), value);
            }
        }
        self.depth -= 1;
        Value::Object(map)
    }

    fn member(&mut self, types: &Types, field: &Field) -> Value {
        if !field.enumeration.is_empty() && matches!(field.shape, Shape::String) {
            return Value::String(self.pick(&field.enumeration));
        }
        // Protobuf decodes an empty list or map that is always encoded as null.
        let least = usize::from(field.presence == Presence::Always);
        self.value(types, &field.shape, least)
    }

    fn value(&mut self, types: &Types, shape: &Shape, least: usize) -> Value {
        match shape {
            Shape::Bool => Value::Bool(self.below(2) == 0),
            Shape::Int32 => Value::Int(self.integer() as i32 as i64),
            Shape::Int64 => Value::Int(self.integer()),
            Shape::Double => Value::Float(self.float()),
            Shape::Json | Shape::RawExtension | Shape::FieldsV1 => {
                Value::Object([("k".into(), self.any(3))].into_iter().collect())
            }
            Shape::Struct(_) | Shape::SchemaOr(..) if self.depth > DEPTH_MAX => {
                Value::Object(Map::new())
            }
            Shape::Struct(id) => self.members(types, types.get(*id)),
            Shape::SchemaOr(second, id) => match (self.below(2), second) {
                (0, _) => self.members(types, types.get(*id)),
                (_, SchemaOr::Bool) => Value::Bool(self.below(2) == 0),
                (_, SchemaOr::Array) => {
                    Value::Array(self.some(1, |this| this.members(types, types.get(*id))))
                }
                (_, SchemaOr::StringArray) => {
                    Value::Array(self.some(1, |this| Value::String(this.text())))
                }
            },
            Shape::List(list) => {
                Value::Array(self.some(least, |this| this.value(types, &list.item, 0)))
            }
            Shape::Map(map) => {
                let entry = |this: &mut Self| (this.text(), this.value(types, &map.value, 0));
                Value::Object(self.some(least, entry).into_iter().collect())
            }
            shape => self.special(shape),
        }
    }

    fn some<T>(&mut self, least: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.depth > DEPTH_MAX { least } else { least + self.below(3) };
        (0..count).map(|_| make(self)).collect()
    }

    /// Returns a value of a type with a text form of its own.
    fn special(&mut self, shape: &Shape) -> Value {
        match shape {
            Shape::Bytes => {
                let length = 1 + self.below(9);
                let bytes: Vec<u8> = (0..length).map(|_| self.next() as u8).collect();
                Value::from(STANDARD.encode(bytes))
            }
            Shape::Time => Value::from(self.time().truncated().to_string()),
            Shape::MicroTime => Value::from(self.time().micro().to_string()),
            Shape::Duration => Value::from(GoDuration(self.integer()).to_string()),
            Shape::Quantity => Value::from(self.pick(&[
                "0",
                "1",
                "100m",
                "1Gi",
                "2500Mi",
                "1e3",
                "-5",
                "12345678k",
            ])),
            Shape::IntOrString if self.below(2) == 0 => Value::Int(self.integer() as i32 as i64),
            _ => Value::String(self.text()),
        }
    }

    fn integer(&mut self) -> i64 {
        let number = self.next() as i64;
        match self.below(6) {
            0 => 0,
            1 => self.pick(&[i64::MIN, i64::MAX, -1, 1, 127, 128, i64::from(i32::MAX)]),
            2 => number % 100,
            3 => number % 100_000,
            _ => number >> self.below(64),
        }
    }

    fn float(&mut self) -> f64 {
        let number = f64::from_bits(self.next());
        match self.below(3) {
            0 => self.pick(&[0.0, 0.5, -1.25, 1e-9, 1e21, 65504.0, 3.0]),
            1 => self.integer() as f64,
            _ if number.is_finite() => number,
            _ => 1.5,
        }
    }

    fn time(&mut self) -> Timestamp {
        let seconds = (self.next() % 8_000_000_000) as i64 - 4_000_000_000;
        Timestamp::new(seconds, self.below(1_000_000) as u32 * 1000)
    }

    fn text(&mut self) -> Str {
        const WORDS: [&str; 20] = [
            "",
            "a",
            "name",
            "true",
            "null",
            "~",
            "1",
            "0x1f",
            "1e3",
            "- a",
            "a: b",
            "#",
            " x ",
            "y",
            "2020-01-01",
            "line\nbreak\n",
            "tab\t\"quote\"\\",
            "<&>\u{2028}",
            "\u{1}\u{7f}é水😀",
            "'",
        ];
        let word = self.pick(&WORDS);
        if self.below(4) > 0 {
            return Str::new(word);
        }
        let times = self.below(60);
        Str::from(format!("{word}{}", "lorem ".repeat(times)))
    }

    /// Returns any JSON value except null.
    fn any(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 => Value::Bool(self.below(2) == 0),
            1 => Value::Int(self.integer()),
            2 => Value::Float(self.float()),
            3 => Value::String(self.text()),
            4 => Value::Array((0..self.below(3)).map(|_| self.any(depth - 1)).collect()),
            _ => {
                let count = self.below(3);
                let entries = (0..count).map(|_| (self.text(), self.any(depth - 1)));
                Value::Object(entries.collect())
            }
        }
    }
}
