//! Decodes CBOR to [`Value`] in one pass.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Map, Str, Value};
use std::borrow::Cow;
use std::fmt;

/// Maximum nesting of lists, maps and tags, as upstream has it.
pub const DEPTH_MAX: usize = 64;

/// Why bytes are not CBOR that the API accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CborError {
    /// The input is empty.
    Empty,
    /// The input ends too early.
    End,
    /// An invalid initial byte: (major type, additional information).
    Head(u8, u8),
    /// A break code outside an indefinite-length item, or within an entry.
    Break,
    /// A chunk of an indefinite-length string that is not a string of the same type.
    Chunk,
    /// Nesting exceeds [`DEPTH_MAX`].
    Depth,
    /// A text string that is not UTF-8.
    Utf8,
    /// An integer out of the range of `i64`.
    Integer(i128),
    /// NaN, an infinity, or a simple value other than false, true and null.
    Unacceptable(&'static str),
    /// A tag with content of the wrong type.
    Tag(u64),
    /// A map key that is not a string.
    Key,
    /// A duplicate map key: (key, index of the entry).
    Duplicate(Str, usize),
    /// Extra bytes after the item: (count, offset).
    Rest(usize, usize),
}

impl fmt::Display for CborError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CborError::Empty => f.write_str("EOF"),
            CborError::End => f.write_str("unexpected EOF"),
            CborError::Head(major, info) => {
                let kind = MAJOR_NAMES[usize::from(*major)];
                write!(f, "cbor: invalid additional information {info} for type {kind}")
            }
            CborError::Break => f.write_str("cbor: unexpected \"break\" code"),
            CborError::Chunk => f.write_str("cbor: wrong element type for an indefinite string"),
            CborError::Depth => write!(f, "cbor: exceeded max nested level {DEPTH_MAX}"),
            CborError::Utf8 => f.write_str("cbor: invalid UTF-8 string"),
            CborError::Integer(number) => {
                let sign = if *number < 0 { "negative" } else { "positive" };
                write!(
                    f,
                    "cbor: cannot unmarshal {sign} integer into Go value of type int64 \
                     ({number} overflows Go's int64)"
                )
            }
            CborError::Unacceptable(what) => write!(
                f,
                "cbor: data item of cbor type primitives is not accepted by protocol: {what}"
            ),
            CborError::Tag(tag) => write!(f, "cbor: invalid content of tag number {tag}"),
            CborError::Key => {
                f.write_str("cbor: cannot unmarshal a key into Go value of type string")
            }
            CborError::Duplicate(key, at) => {
                write!(f, "cbor: found duplicate map key {key:?} at map element index {at}")
            }
            CborError::Rest(count, at) => {
                write!(f, "cbor: {count} bytes of extraneous data starting at index {at}")
            }
        }
    }
}

impl std::error::Error for CborError {}

const MAJOR_NAMES: [&str; 8] = [
    "positive integer",
    "negative integer",
    "byte string",
    "UTF-8 text string",
    "array",
    "map",
    "tag",
    "primitives",
];

/// Decodes one item, which must be the whole input. The self-described CBOR tag is optional.
pub fn parse(bytes: &[u8]) -> Result<Value, CborError> {
    if bytes.is_empty() {
        return Err(CborError::Empty);
    }
    let mut reader = Reader { bytes, at: 0, depth: 0 };
    let value = reader.item()?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        rest => Err(CborError::Rest(rest, reader.at)),
    }
}

/// The argument of an item's head.
#[derive(Clone, Copy)]
enum Number {
    Definite(u64),
    Indefinite,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], CborError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        self.at += length.min(self.bytes.len());
        taken.ok_or(CborError::End)
    }

    /// Reads the next head: major type, additional information, argument.
    fn head(&mut self) -> Result<(u8, u8, Number), CborError> {
        let first = self.take(1)?[0];
        let major = first >> 5;
        let info = first & 31;
        let number = match info {
            0..24 => Number::Definite(u64::from(info)),
            24..28 => {
                let bytes = self.take(1 << (info - 24))?;
                let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                Number::Definite(number)
            }
            31 if matches!(major, 2..=5) => Number::Indefinite,
            31 if major == 7 => return Err(CborError::Break),
            _ => return Err(CborError::Head(major, info)),
        };
        Ok((major, info, number))
    }

    /// Takes the break code, if it is next.
    fn is_break(&mut self) -> bool {
        let is_break = self.bytes.get(self.at) == Some(&0xff);
        self.at += usize::from(is_break);
        is_break
    }

    fn item(&mut self) -> Result<Value, CborError> {
        let (major, info, number) = self.head()?;
        match (major, number) {
            (0, Number::Definite(number)) => integer(i128::from(number)),
            (1, Number::Definite(number)) => integer(-1 - i128::from(number)),
            (2 | 3, number) => {
                let bytes = self.string(major, number)?;
                Ok(Value::String(text(major, &bytes)?))
            }
            (4, number) => self.nested(|reader| reader.array(number)),
            (5, number) => self.nested(|reader| reader.map(number)),
            (6, Number::Definite(tag)) => self.nested(|reader| reader.tagged(tag)),
            (_, Number::Definite(number)) => primitive(info, number),
            (_, Number::Indefinite) => Err(CborError::Head(major, info)),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, CborError>,
    ) -> Result<Value, CborError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(CborError::Depth);
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Returns the bytes of a string whose head was read.
    fn string(&mut self, major: u8, number: Number) -> Result<Cow<'a, [u8]>, CborError> {
        if let Number::Definite(length) = number {
            let length = usize::try_from(length).map_err(|_| CborError::End)?;
            return self.take(length).map(Cow::Borrowed);
        }
        let mut out = vec![];
        while !self.is_break() {
            match self.head()? {
                (chunk, _, Number::Definite(length)) if chunk == major => {
                    let length = usize::try_from(length).map_err(|_| CborError::End)?;
                    let bytes = self.take(length)?;
                    text(major, bytes)?;
                    out.extend_from_slice(bytes);
                }
                _ => return Err(CborError::Chunk),
            }
        }
        Ok(Cow::Owned(out))
    }

    /// Whether a list or map has another item after `read` items.
    fn more(&mut self, number: Number, read: usize) -> Result<bool, CborError> {
        match number {
            Number::Indefinite => Ok(!self.is_break()),
            // Each item takes at least one byte, so the input length bounds the loop.
            Number::Definite(count) => Ok((read as u64) < count),
        }
    }

    fn array(&mut self, number: Number) -> Result<Value, CborError> {
        let mut items = vec![];
        while self.more(number, items.len())? {
            items.push(self.item()?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, number: Number) -> Result<Value, CborError> {
        let mut entries: Vec<(Str, Value)> = vec![];
        while self.more(number, entries.len())? {
            let key = match self.head()? {
                (major @ (2 | 3), _, number) => {
                    let bytes = self.string(major, number)?;
                    text(major, &bytes)?
                }
                _ => return Err(CborError::Key),
            };
            entries.push((key, self.item()?));
        }
        let keys: Vec<Str> = entries.iter().map(|(key, _)| key.clone()).collect();
        let mut duplicate = None;
        let mut map = Map::from_entries(entries, |key| {
            duplicate.get_or_insert_with(|| key.clone());
        });
        match duplicate {
            None => {
                // Without a schema upstream's JSON has sorted members.
                map.sort();
                Ok(Value::Object(map))
            }
            Some(key) => {
                let places = keys.iter().enumerate().filter(|(_, k)| **k == key);
                let at = places.map(|(at, _)| at).nth(1).unwrap_or_default();
                Err(CborError::Duplicate(key, at))
            }
        }
    }

    fn tagged(&mut self, tag: u64) -> Result<Value, CborError> {
        match tag {
            0 => match self.item()? {
                Value::String(text) if Timestamp::parse(&text).is_ok() => Ok(Value::String(text)),
                _ => Err(CborError::Tag(tag)),
            },
            1 => match self.item()? {
                Value::Int(seconds) => epoch(seconds, 0).ok_or(CborError::Tag(tag)),
                Value::Float(number) if number.abs() < 1e15 => {
                    let nanos = (number.rem_euclid(1.0) * 1e9) as i64;
                    epoch(number.floor() as i64, nanos).ok_or(CborError::Tag(tag))
                }
                _ => Err(CborError::Tag(tag)),
            },
            // Bignums have no JSON equivalent.
            2 | 3 => Err(CborError::Tag(tag)),
            // Expected later encoding: base64url, base64 or base16.
            21..=23 if self.bytes.get(self.at).is_some_and(|first| first >> 5 == 2) => {
                let (major, _, number) = self.head()?;
                let bytes = self.string(major, number)?;
                Ok(Value::from(match tag {
                    21 => URL_SAFE_NO_PAD.encode(&bytes),
                    22 => STANDARD.encode(&bytes),
                    _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                }))
            }
            _ => self.item(),
        }
    }
}

fn integer(number: i128) -> Result<Value, CborError> {
    i64::try_from(number).map(Value::Int).map_err(|_| CborError::Integer(number))
}

/// Converts a string. Invalid UTF-8 is an error in text strings and replaced in byte strings.
fn text(major: u8, bytes: &[u8]) -> Result<Str, CborError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Str::new(text)),
        Err(_) if major == 3 => Err(CborError::Utf8),
        Err(_) => Ok(Str::from(String::from_utf8_lossy(bytes))),
    }
}

fn primitive(info: u8, number: u64) -> Result<Value, CborError> {
    let float = match info {
        20 => return Ok(Value::Bool(false)),
        21 => return Ok(Value::Bool(true)),
        22 => return Ok(Value::Null),
        25 => from_half(number as u16),
        26 => f64::from(f32::from_bits(number as u32)),
        27 => f64::from_bits(number),
        _ => return Err(CborError::Unacceptable("simple value is not recognized")),
    };
    if float.is_nan() {
        return Err(CborError::Unacceptable("floating-point NaN"));
    }
    if float.is_infinite() {
        return Err(CborError::Unacceptable("floating-point infinity"));
    }
    Ok(Value::Float(float))
}

/// Converts a 16-bit float.
fn from_half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let mantissa = f64::from(bits & 0x3ff);
    match bits >> 10 & 0x1f {
        0 => sign * mantissa * 2_f64.powi(-24),
        31 if mantissa == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        exponent => sign * (1024.0 + mantissa) * 2_f64.powi(i32::from(exponent) - 25),
    }
}

/// Formats a time as RFC 3339 with as many decimals as needed, `None` if its year does not have
/// four digits.
fn epoch(seconds: i64, nanos: i64) -> Option<Value> {
    if !(-62_135_596_800..253_402_300_800).contains(&seconds) {
        return None;
    }
    let time = Timestamp { seconds, nanos: 0 }.plus(GoDuration(nanos));
    let text = time.truncated().to_string();
    if time.nanos == 0 {
        return Some(Value::from(text));
    }
    let digits = format!("{:09}", time.nanos);
    Some(Value::from(format!("{}.{}Z", text.trim_end_matches('Z'), digits.trim_end_matches('0'))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbor::encode;
    use keelson_meta::value;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    }

    /// Decodes `hex` to `want`, which encodes to `again`.
    fn check(hex: &str, want: Value, again: &str) {
        let got = parse(&bytes(hex));
        assert_eq!(got, Ok(want.clone()), "{hex}");
        let mut out = vec![];
        encode::value(&want, &mut out);
        let out: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(out, again, "{hex}");
    }

    fn refuse(hex: &str, want: &str) {
        let got = parse(&bytes(hex)).map_err(|error| error.to_string());
        assert_eq!(got, Err(want.to_owned()), "{hex}");
    }

    #[test]
    fn numbers_have_the_shortest_form() {
        for (hex, number) in [
            ("00", 0),
            ("17", 23),
            ("1818", 24),
            ("1903e8", 1000),
            ("1a000f4240", 1_000_000),
            ("1b000000e8d4a51000", 1_000_000_000_000),
            ("1b7fffffffffffffff", i64::MAX),
            ("20", -1),
            ("3903e7", -1000),
            ("3b7fffffffffffffff", i64::MIN),
        ] {
            check(hex, Value::Int(number), hex);
        }
        for (hex, number) in [
            ("f90000", 0.0),
            ("f93c00", 1.0),
            ("fb3ff199999999999a", 1.1),
            ("f97bff", 65504.0),
            ("fa47c35000", 100_000.0),
            ("fa7f7fffff", f64::from(f32::MAX)),
            ("fb7e37e43c8800759c", 1e300),
            ("f90001", 5.960_464_477_539_063e-8),
            ("f90400", 0.000_061_035_156_25),
            ("f9c400", -4.0),
        ] {
            check(hex, Value::Float(number), hex);
        }
    }

    #[test]
    fn strings_lists_and_maps_of_any_form_are_decoded() {
        check("6449455446", value!("IETF"), "4449455446");
        check("5f42010243030405ff", value!("\u{1}\u{2}\u{3}\u{4}\u{5}"), "450102030405");
        check("7f657374726561646d696e67ff", value!("streaming"), "4973747265616d696e67");
        check("9f018202039f0405ffff", value!([1, [2, 3], [4, 5]]), "8301820203820405");
        check("bf61610161629f0203ffff", value!({"a": 1, "b": [2, 3]}), "a24161014162820203");
        check(
            "bf6346756ef563416d7421ff",
            value!({"Fun": true, "Amt": (-2)}),
            "a243416d74214346756ef5",
        );
        check("d9d9f7a0", value!({}), "a0");
    }

    #[test]
    fn tags_that_json_knows_become_text() {
        let time = "54323031332d30332d32315432303a30343a30305a";
        check("c074323031332d30332d32315432303a30343a30305a", value!("2013-03-21T20:04:00Z"), time);
        check("c11a514b67b0", value!("2013-03-21T20:04:00Z"), time);
        let half = "56323031332d30332d32315432303a30343a30302e355a";
        check("c1fb41d452d9ec200000", value!("2013-03-21T20:04:00.5Z"), half);
        check("d74401020304", value!("01020304"), "483031303230333034");
        check("d64401020304", value!("AQIDBA=="), "484151494442413d3d");
        check("d818456449455446", value!("dIETF"), "456449455446");
    }

    #[test]
    fn items_without_a_json_form_are_rejected() {
        refuse("", "EOF");
        refuse("18", "unexpected EOF");
        refuse(
            "1bffffffffffffffff",
            "cbor: cannot unmarshal positive integer into Go value of type \
                int64 (18446744073709551615 overflows Go's int64)",
        );
        refuse("c249010000000000000000", "cbor: invalid content of tag number 2");
        for hex in ["f7", "f0", "f8ff"] {
            refuse(
                hex,
                "cbor: data item of cbor type primitives is not accepted by protocol: \
                    simple value is not recognized",
            );
        }
        refuse(
            "f97e00",
            "cbor: data item of cbor type primitives is not accepted by protocol: \
                floating-point NaN",
        );
        refuse("a201020304", "cbor: cannot unmarshal a key into Go value of type string");
        refuse("a2414101614102", "cbor: found duplicate map key \"A\" at map element index 1");
        refuse("6180", "cbor: invalid UTF-8 string");
        refuse("0000", "cbor: 1 bytes of extraneous data starting at index 1");
        refuse("1c", "cbor: invalid additional information 28 for type positive integer");
        refuse("ff", "cbor: unexpected \"break\" code");
        refuse("5f6161ff", "cbor: wrong element type for an indefinite string");
        refuse("9bffffffffffffffff00", "unexpected EOF");
        refuse(&"81".repeat(DEPTH_MAX + 1), "cbor: exceeded max nested level 64");
    }
}
