//! Parses JSON to [`Value`] in one pass.
//!
//! Syntax errors have the messages of Go's encoding/json, because clients compare them. Duplicate
//! keys are reported with their path, and the last one wins (sigs.k8s.io/json).

mod maps;

use keelson_meta::{Map, Path, Str, Value};
use maps::maps_length;
use std::fmt;

/// Maximum nesting. Real objects stay below 100; deeper bodies are rejected with 400. A level takes
/// some KiB of stack in a debug build, and a thread of an async runtime has 2 MiB.
pub const DEPTH_MAX: usize = 250;

/// Maximum number of duplicate fields that are reported, as upstream has it.
const REPORTED_DUPLICATES_MAX: usize = 100;
/// Maximum total length of their paths; the path that exceeds it is the last.
const REPORTED_DUPLICATES_BYTES_MAX: usize = 1 << 20;

/// A parsed text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The value.
    pub value: Value,
    /// Paths of duplicate keys, in order of appearance.
    pub duplicates: Vec<String>,
    /// The first number that no float can hold; the value has the largest float in its place.
    pub overflow: Option<String>,
}

/// Why a text is not JSON. Displays as Go's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyntaxError {
    /// An unexpected character, and what was expected.
    Character(char, &'static str),
    /// The text ends too early.
    End,
    /// Nesting exceeds [`DEPTH_MAX`].
    Depth,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyntaxError::Character(c, what) => {
                f.write_str("invalid character ")?;
                match c {
                    '\'' => f.write_str(r"'\''")?,
                    '"' => f.write_str("'\"'")?,
                    '\n' => f.write_str(r"'\n'")?,
                    '\r' => f.write_str(r"'\r'")?,
                    '\t' => f.write_str(r"'\t'")?,
                    '\\' => f.write_str(r"'\\'")?,
                    c if (*c as u32) < 0x20 || *c as u32 == 0x7f => {
                        write!(f, r"'\x{:02x}'", *c as u32)?;
                    }
                    c if c.is_control() => write!(f, r"'\u{:04x}'", *c as u32)?,
                    c => write!(f, "'{c}'")?,
                }
                write!(f, " {what}")
            }
            SyntaxError::End => f.write_str("unexpected end of JSON input"),
            SyntaxError::Depth => f.write_str("exceeded max depth"),
        }
    }
}

impl std::error::Error for SyntaxError {}

/// Parses a whole text. Duplicates of a map are reported after those of its values.
pub(super) fn parse(text: &[u8]) -> Result<Parsed, SyntaxError> {
    let mut reader = Reader::new(text);
    let value = reader.value(&Path::ROOT)?;
    reader.end()?;
    Ok(Parsed { value, duplicates: reader.duplicates, overflow: reader.overflow })
}

/// Returns Go's error for a number that no float can hold.
pub fn overflow_error(number: &str) -> String {
    format!("json: cannot unmarshal number {number} into Go value of type float64")
}

/// A cursor over a JSON text.
pub(super) struct Reader<'a> {
    /// The text.
    pub text: &'a [u8],
    /// The text, if all of it is UTF-8; then strings need no further check.
    utf8: Option<&'a str>,
    /// Offset of the next byte.
    pub at: usize,
    /// Number of enclosing lists and maps.
    pub depth: usize,
    /// Paths of duplicate keys.
    pub duplicates: Vec<String>,
    /// The first number that no float can hold.
    pub overflow: Option<String>,
    duplicate_bytes: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of a text.
    pub fn new(text: &'a [u8]) -> Self {
        let utf8 = std::str::from_utf8(text).ok();
        let duplicates = vec![];
        let duplicate_bytes = 0;
        Reader { text, utf8, at: 0, depth: 0, duplicates, overflow: None, duplicate_bytes }
    }

    /// Returns an error if anything follows the value.
    pub fn end(&mut self) -> Result<(), SyntaxError> {
        self.space();
        match self.text.get(self.at) {
            Some(byte) => Err(SyntaxError::Character(char::from(*byte), "after top-level value")),
            None => Ok(()),
        }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// Skips white space and returns the next byte without taking it.
    #[inline]
    pub fn peek(&mut self) -> Result<u8, SyntaxError> {
        match self.text.get(self.at) {
            Some(byte) if *byte > b' ' => Ok(*byte),
            _ => {
                self.space();
                self.text.get(self.at).copied().ok_or(SyntaxError::End)
            }
        }
    }

    /// Returns the error for the next byte.
    pub fn unexpected<T>(&self, what: &'static str) -> Result<T, SyntaxError> {
        match self.text.get(self.at) {
            Some(byte) => Err(SyntaxError::Character(char::from(*byte), what)),
            None => Err(SyntaxError::End),
        }
    }

    /// Parses a value of any type.
    pub fn value(&mut self, path: &Path<'_>) -> Result<Value, SyntaxError> {
        match self.peek()? {
            b'{' => self.nested(|reader| reader.object(path)),
            b'[' => self.nested(|reader| reader.array(path)),
            b'"' => Ok(Value::String(self.string()?)),
            b't' | b'f' => self.bool(),
            b'n' => self.literal("null", Value::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.unexpected("looking for beginning of value"),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, SyntaxError>,
    ) -> Result<Value, SyntaxError> {
        self.begin()?;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Takes the bracket that opens a list or map.
    pub fn begin(&mut self) -> Result<(), SyntaxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(SyntaxError::Depth);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the bracket that closes a list or map, if it is next.
    pub fn take_end(&mut self, close: u8) -> bool {
        let take_end = self.peek() == Ok(close);
        if take_end {
            (self.at, self.depth) = (self.at + 1, self.depth - 1);
        }
        take_end
    }

    fn literal(&mut self, literal: &'static str, value: Value) -> Result<Value, SyntaxError> {
        for (i, byte) in literal.bytes().enumerate() {
            if self.text.get(self.at) != Some(&byte) {
                return self.unexpected(literal_error(literal, i));
            }
            self.at += 1;
        }
        Ok(value)
    }

    /// Parses `true` or `false`; the first byte is next.
    pub fn bool(&mut self) -> Result<Value, SyntaxError> {
        match self.text.get(self.at) {
            Some(b't') => self.literal("true", Value::Bool(true)),
            _ => self.literal("false", Value::Bool(false)),
        }
    }

    /// Parses an unsigned integer of up to eight digits. Returns `None` for any other number.
    pub fn small_int(&mut self) -> Option<i64> {
        let rest = self.text.get(self.at..)?;
        let mut number = 0;
        for (length, byte) in rest.iter().take(9).enumerate() {
            match byte {
                b'0'..=b'9' => number = number * 10 + i64::from(byte - b'0'),
                b',' | b'}' | b']' if length > 0 && (rest[0] != b'0' || length == 1) => {
                    self.at += length;
                    return Some(number);
                }
                _ => return None,
            }
        }
        None
    }

    /// Parses a number; the first byte is next.
    pub fn number(&mut self) -> Result<Value, SyntaxError> {
        let start = self.at;
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.unexpected("in numeric literal"),
        }
        let mut whole = true;
        if self.text.get(self.at) == Some(&b'.') {
            whole = false;
            self.at += 1;
            self.require_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            whole = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.require_digits("in exponent of numeric literal")?;
        }
        let digits = &self.text[start..self.at];
        if whole && let Some(number) = parse_short_integer(digits) {
            return Ok(Value::Int(number));
        }
        // The matched bytes are ASCII.
        let text = std::str::from_utf8(digits).unwrap_or_default();
        if whole && let Ok(number) = text.parse::<i64>() {
            return Ok(Value::Int(number));
        }
        let number = text.parse::<f64>().unwrap_or_default();
        if number.is_finite() {
            return Ok(Value::Float(number));
        }
        self.overflow.get_or_insert_with(|| text.to_owned());
        Ok(Value::Float(f64::MAX.copysign(number)))
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn require_digits(&mut self, what: &'static str) -> Result<(), SyntaxError> {
        if !matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            return self.unexpected(what);
        }
        self.digits();
        Ok(())
    }

    fn array(&mut self, path: &Path<'_>) -> Result<Value, SyntaxError> {
        let mut items = vec![];
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            let item = self.value(&path.index(items.len()))?;
            items.push(item);
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return self.unexpected("after array element"),
            }
        }
    }

    fn object(&mut self, path: &Path<'_>) -> Result<Value, SyntaxError> {
        let mut entries: Vec<(Str, Value)> = vec![];
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(Value::Object(Map::new()));
        }
        loop {
            if self.peek()? != b'"' {
                return self.unexpected("looking for beginning of object key string");
            }
            let key = self.string()?;
            if self.peek()? != b':' {
                return self.unexpected("after object key");
            }
            self.at += 1;
            let value = self.value(&path.field(&key))?;
            entries.push((key, value));
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    break;
                }
                _ => return self.unexpected("after object key:value pair"),
            }
        }
        let duplicates = &mut self.duplicates;
        let bytes = &mut self.duplicate_bytes;
        Ok(Value::Object(Map::from_entries(entries, |key| {
            if duplicates.len() < REPORTED_DUPLICATES_MAX && *bytes < REPORTED_DUPLICATES_BYTES_MAX
            {
                let text = path.field(key).to_string();
                *bytes += text.len();
                duplicates.push(text);
            }
        })))
    }

    /// Takes a string without escapes; the opening quote is next. Returns `None` if it has an
    /// escape or an error, or if the text is not UTF-8.
    #[inline(always)]
    pub fn unescaped_string(&mut self) -> Option<&'a str> {
        let rest = self.utf8?.get(self.at + 1..)?;
        let length = unescaped_length(rest.as_bytes());
        if rest.as_bytes().get(length) != Some(&b'"') {
            return None;
        }
        let text = rest.get(..length)?;
        self.at += length + 2;
        Some(text)
    }

    /// Takes a map of maps as text; the opening brace is next. Returns `None` unless it is written
    /// compactly.
    pub fn map_of_maps(&mut self) -> Option<&'a str> {
        let rest = self.utf8?.get(self.at..)?;
        let text = rest.get(..maps_length(rest.as_bytes(), self.depth)?)?;
        self.at += text.len();
        Some(text)
    }

    /// Parses a string; the opening quote is next.
    #[inline]
    pub fn string(&mut self) -> Result<Str, SyntaxError> {
        match self.unescaped_string() {
            Some(text) => Ok(str_of(text)),
            None => self.escaped_or_invalid_string(),
        }
    }

    /// Parses a string that [`Self::unescaped_string`] does not take; the opening quote is next.
    #[cold]
    #[inline(never)]
    pub fn escaped_or_invalid_string(&mut self) -> Result<Str, SyntaxError> {
        self.at += 1;
        let rest = &self.text[self.at..];
        let plain = unescaped_length(rest);
        match rest.get(plain) {
            None => {
                self.at = self.text.len();
                Err(SyntaxError::End)
            }
            Some(b'"') => {
                self.at += plain + 1;
                Ok(Str::from(String::from_utf8_lossy(&rest[..plain])))
            }
            Some(_) => self.escaped_string(plain),
        }
    }

    /// Parses a string with escapes; the first `plain` bytes have none.
    fn escaped_string(&mut self, plain: usize) -> Result<Str, SyntaxError> {
        let mut out = self.text[self.at..self.at + plain].to_vec();
        self.at += plain;
        loop {
            let byte = *self.text.get(self.at).ok_or(SyntaxError::End)?;
            match byte {
                b'"' => {
                    self.at += 1;
                    return Ok(match String::from_utf8(out) {
                        Ok(text) => Str::from(text),
                        Err(bad) => Str::from(String::from_utf8_lossy(bad.as_bytes())),
                    });
                }
                b'\\' => {
                    self.at += 1;
                    let c = self.escape()?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                0..0x20 => return self.unexpected("in string literal"),
                _ => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let c = match *self.text.get(self.at).ok_or(SyntaxError::End)? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return self.unexpected("in string escape code"),
        };
        self.at += 1;
        Ok(c)
    }

    /// Parses the digits after `\u` and the second half of a surrogate pair. A lone surrogate
    /// becomes U+FFFD.
    fn unicode_escape(&mut self) -> Result<char, SyntaxError> {
        let first = self.hex4()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or('\u{fffd}'));
        }
        if first < 0xdc00 && self.text[self.at..].starts_with(b"\\u") {
            let restart = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(joined).unwrap_or('\u{fffd}'));
            }
            self.at = restart;
        }
        Ok('\u{fffd}')
    }

    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        let mut number = 0;
        for _ in 0..4 {
            let digit = self.text.get(self.at).and_then(|b| char::from(*b).to_digit(16));
            let Some(digit) = digit else {
                return self.unexpected("in \\u hexadecimal character escape");
            };
            number = number * 16 + digit;
            self.at += 1;
        }
        Ok(number)
    }
}

/// Parses an integer of up to 18 digits, which cannot overflow.
fn parse_short_integer(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > 18 {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    Some(if negative { -number } else { number })
}

/// Maximum length of a string that is stored inline.
pub(super) const STR_INLINE_BYTES: usize = 23;

#[inline(always)]
fn str_of(text: &str) -> Str {
    // An inline string is copied without a function call.
    if text.len() <= STR_INLINE_BYTES { Str::new_inline(text) } else { Str::new(text) }
}

/// Returns the number of bytes before the first quote, backslash or control character. Most strings
/// are short.
#[inline(always)]
pub(super) fn unescaped_length(text: &[u8]) -> usize {
    match text.first_chunk().map(special_bytes) {
        Some(special_bytes) if special_bytes != 0 => first_special(special_bytes),
        Some(_) => long_unescaped_length(text),
        None => scan_bytes(text),
    }
}

/// Same as [`unescaped_length`] when the first [`CHUNK_BYTES`] are known to have none of these.
#[inline(never)]
fn long_unescaped_length(text: &[u8]) -> usize {
    let mut at = CHUNK_BYTES;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk())
        && has_no_special(chunk)
    {
        at += LONG_CHUNK_BYTES;
    }
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let special_bytes = special_bytes(chunk);
        if special_bytes != 0 {
            return at + first_special(special_bytes);
        }
        at += CHUNK_BYTES;
    }
    at + scan_bytes(&text[at..])
}

/// Same as [`unescaped_length`], byte by byte.
#[cold]
fn scan_bytes(text: &[u8]) -> usize {
    text.iter().position(|byte| is_special(*byte)).unwrap_or(text.len())
}

/// Bytes of a chunk that is compared at once.
const CHUNK_BYTES: usize = 16;

/// Bytes of a chunk of long text that is compared at once.
const LONG_CHUNK_BYTES: usize = 64;

/// Whether a chunk has no quote, backslash or control character.
#[inline(never)]
fn has_no_special(chunk: &[u8; LONG_CHUNK_BYTES]) -> bool {
    chunk.iter().fold(0, |ends, byte| ends | u8::from(is_special(*byte))) == 0
}

/// Returns a mask with a byte of ones for each quote, backslash and control character, the first
/// one lowest. Not inlined: inlining prevents vectorization.
#[inline(never)]
fn special_bytes(chunk: &[u8; CHUNK_BYTES]) -> u128 {
    let mut special_bytes = [0; CHUNK_BYTES];
    for at in 0..CHUNK_BYTES {
        special_bytes[at] = if is_special(chunk[at]) { u8::MAX } else { 0 };
    }
    u128::from_le_bytes(special_bytes)
}

/// Returns the index of the first byte that is set in the mask.
#[inline(always)]
fn first_special(special_bytes: u128) -> usize {
    special_bytes.trailing_zeros() as usize / 8
}

#[inline(always)]
fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Returns Go's message for a wrong byte at index `at` of a literal.
fn literal_error(literal: &str, at: usize) -> &'static str {
    match (literal, at) {
        ("true", 1) => "in literal true (expecting 'r')",
        ("true", 2) => "in literal true (expecting 'u')",
        ("true", _) => "in literal true (expecting 'e')",
        ("false", 1) => "in literal false (expecting 'a')",
        ("false", 2) => "in literal false (expecting 'l')",
        ("false", 3) => "in literal false (expecting 's')",
        ("false", _) => "in literal false (expecting 'e')",
        ("null", 1) => "in literal null (expecting 'u')",
        _ => "in literal null (expecting 'l')",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn check(text: &str, want: Result<Value, &str>) {
        let got = parse(text.as_bytes()).map(|p| p.value).map_err(|e| e.to_string());
        assert_eq!(got, want.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn first_special_byte_is_found_at_every_offset() {
        for length in 0..200 {
            let mut text = "x".repeat(length).into_bytes();
            assert_eq!(unescaped_length(&text), length);
            for end in *b"\"\\\x00\x1f" {
                text.push(end);
                text.extend([b'x'; 90]);
                assert_eq!(unescaped_length(&text), length, "{end}");
                text.truncate(length);
            }
        }
    }

    #[test]
    fn strings_of_any_length_are_parsed() {
        for length in 0..60 {
            let text = "é".repeat(length / 2) + &"x".repeat(length % 2);
            let parsed = parse(format!("{text:?}").as_bytes()).map(|parsed| parsed.value);
            assert_eq!(parsed, Ok(text.into()));
        }
    }

    #[test]
    fn values_are_parsed() {
        check(
            r#" {"a":[1,-2.5,true,null,"x"],"b":{}} "#,
            Ok(value!({"a": [1, (-2.5), true, null, "x"], "b": {}})),
        );
        check(r#""\u0041\n\ud83d\ude00\ud800""#, Ok("A\n😀\u{fffd}".into()));
        check("9223372036854775807", Ok(Value::Int(i64::MAX)));
        check("9223372036854775808", Ok(Value::Float(9223372036854775808.0)));
        check("-1e400", Ok(Value::Float(f64::MIN)));
        assert_eq!(parse(b"[1, -1e400, 1e500]").unwrap().overflow.as_deref(), Some("-1e400"));
    }

    #[test]
    fn syntax_errors_match_go() {
        check("", Err("unexpected end of JSON input"));
        check("[]]", Err("invalid character ']' after top-level value"));
        check("{'a'", Err(r"invalid character '\'' looking for beginning of object key string"));
        check("{\"a\" 1}", Err("invalid character '1' after object key"));
        check("[1 2]", Err("invalid character '2' after array element"));
        check("{\"a\":1 \"b\"}", Err("invalid character '\"' after object key:value pair"));
        check("nul", Err("unexpected end of JSON input"));
        check("nulx", Err("invalid character 'x' in literal null (expecting 'l')"));
        check("\"a\nb\"", Err(r"invalid character '\n' in string literal"));
        check("-x", Err("invalid character 'x' in numeric literal"));
        check("1.x", Err("invalid character 'x' after decimal point in numeric literal"));
        check("\"\\q\"", Err("invalid character 'q' in string escape code"));
        check("dx", Err("invalid character 'd' looking for beginning of value"));
    }

    #[test]
    fn a_body_deeper_than_the_limit_is_refused() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(deep(DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(parse(deep(DEPTH_MAX + 1).as_bytes()), Err(SyntaxError::Depth));
        assert_eq!(parse("[".repeat(3_000_000).as_bytes()), Err(SyntaxError::Depth));
    }

    #[test]
    fn duplicate_keys_are_reported_with_their_path() {
        let parsed = parse(br#"{"a":{"b":[{"c":1,"c":2}]},"a":3}"#).unwrap();
        assert_eq!(parsed.duplicates, ["a.b[0].c", "a"]);
        assert_eq!(parsed.value, value!({"a": 3}));
    }
}
