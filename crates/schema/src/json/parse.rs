//! JSON text to [`Value`], in one pass over the bytes.
//!
//! Syntax errors carry the words of Go's encoding/json, because clients compare them. Keys that stand
//! twice in one object are reported with their path, the last one wins (sigs.k8s.io/json).

mod maps;

use keelson_meta::{Map, Path, Str, Value};
use maps::maps_length;
use std::fmt;

/// Levels of nesting that are read. Real objects stay below 100; deeper bodies are refused with a 400.
/// A level costs some KiB of the stack in a debug build, and a thread of an async runtime has 2 MiB.
pub const DEPTH_MAX: usize = 250;

/// Paths of duplicate fields that are kept; further ones are not reported (the same cap as upstream).
const DUPLICATES_MAX: usize = 100;
/// Bytes of their paths; the one that goes beyond is the last.
const DUPLICATE_BYTES_MAX: usize = 1 << 20;

/// A decoded text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// What the text says.
    pub value: Value,
    /// Paths of the members that stood twice in one object, in order of appearance.
    pub duplicates: Vec<String>,
}

/// Why a text is not JSON, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyntaxError {
    /// A byte where it cannot stand, and what was looked for.
    Character(char, &'static str),
    /// The text ends too early.
    End,
    /// More than [`DEPTH_MAX`] levels.
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

/// Reads a whole JSON text.
pub fn parse(text: &[u8]) -> Result<Parsed, SyntaxError> {
    let mut reader = Reader::new(text);
    let value = reader.value(&Path::ROOT)?;
    reader.end()?;
    Ok(Parsed { value, duplicates: reader.duplicates })
}

/// A text that is read from its beginning to its end.
pub(super) struct Reader<'a> {
    /// The text.
    pub text: &'a [u8],
    /// The text, when all of it is UTF-8: then no part needs another look.
    utf8: Option<&'a str>,
    /// The next byte.
    pub at: usize,
    /// Lists and maps around the next byte.
    pub depth: usize,
    /// Paths of the members that stood twice in one object.
    pub duplicates: Vec<String>,
    duplicate_bytes: usize,
}

impl<'a> Reader<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a [u8]) -> Self {
        let utf8 = std::str::from_utf8(text).ok();
        Reader { text, utf8, at: 0, depth: 0, duplicates: vec![], duplicate_bytes: 0 }
    }

    /// Refuses what stands after the value.
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

    /// The next byte after white space, not taken.
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

    /// The error for a byte that does not belong where it stands.
    pub fn unexpected<T>(&self, what: &'static str) -> Result<T, SyntaxError> {
        match self.text.get(self.at) {
            Some(byte) => Err(SyntaxError::Character(char::from(*byte), what)),
            None => Err(SyntaxError::End),
        }
    }

    /// Reads a value of any kind.
    pub fn value(&mut self, path: &Path<'_>) -> Result<Value, SyntaxError> {
        match self.peek()? {
            b'{' => self.nested(|reader| reader.object(path)),
            b'[' => self.nested(|reader| reader.array(path)),
            b'"' => Ok(Value::String(self.string()?)),
            b't' | b'f' => self.bool(),
            b'n' => self.word("null", Value::Null),
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

    /// Goes past the bracket that begins a list or map.
    pub fn begin(&mut self) -> Result<(), SyntaxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(SyntaxError::Depth);
        }
        self.at += 1;
        Ok(())
    }

    /// Goes past the bracket that ends a list or map, if it comes next.
    pub fn is_end(&mut self, close: u8) -> bool {
        let is_end = self.peek() == Ok(close);
        if is_end {
            (self.at, self.depth) = (self.at + 1, self.depth - 1);
        }
        is_end
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, SyntaxError> {
        for (i, byte) in word.bytes().enumerate() {
            if self.text.get(self.at) != Some(&byte) {
                return self.unexpected(literal_words(word, i));
            }
            self.at += 1;
        }
        Ok(value)
    }

    /// `true` or `false`, the first byte of which is the next one.
    pub fn bool(&mut self) -> Result<Value, SyntaxError> {
        match self.text.get(self.at) {
            Some(b't') => self.word("true", Value::Bool(true)),
            _ => self.word("false", Value::Bool(false)),
        }
    }

    /// The number of up to eight digits, without a sign, that comes next; none when it is written otherwise.
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

    /// A number, the first byte of which is the next one.
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
            self.digit_or("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            whole = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digit_or("in exponent of numeric literal")?;
        }
        let digits = &self.text[start..self.at];
        if whole && let Some(number) = small_integer(digits) {
            return Ok(Value::Int(number));
        }
        // The bytes matched above are ASCII.
        let text = std::str::from_utf8(digits).unwrap_or_default();
        if whole && let Ok(number) = text.parse::<i64>() {
            return Ok(Value::Int(number));
        }
        Ok(Value::Float(text.parse::<f64>().ok().filter(|n| n.is_finite()).unwrap_or(f64::MAX)))
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn digit_or(&mut self, what: &'static str) -> Result<(), SyntaxError> {
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
        let (duplicates, bytes) = (&mut self.duplicates, &mut self.duplicate_bytes);
        Ok(Value::Object(Map::from_entries(entries, |key| {
            if duplicates.len() < DUPLICATES_MAX && *bytes < DUPLICATE_BYTES_MAX {
                let text = path.field(key).to_string();
                *bytes += text.len();
                duplicates.push(text);
            }
        })))
    }

    /// A string without escapes, as it stands in the text, with the opening quote as the next byte. None
    /// when it holds an escape or a fault, or stands in a text that is not UTF-8.
    #[inline(always)]
    pub fn plain_string(&mut self) -> Option<&'a str> {
        let rest = self.utf8?.get(self.at + 1..)?;
        let length = plain_length(rest.as_bytes());
        if rest.as_bytes().get(length) != Some(&b'"') {
            return None;
        }
        let text = rest.get(..length)?;
        self.at += length + 2;
        Some(text)
    }

    /// A map of maps as it stands in the text, with the opening brace as the next byte. None when it is
    /// written in any way but the usual one.
    pub fn maps(&mut self) -> Option<&'a str> {
        let rest = self.utf8?.get(self.at..)?;
        let text = rest.get(..maps_length(rest.as_bytes(), self.depth)?)?;
        self.at += text.len();
        Some(text)
    }

    /// A string, with the opening quote as the next byte.
    #[inline]
    pub fn string(&mut self) -> Result<Str, SyntaxError> {
        match self.plain_string() {
            Some(text) => Ok(text_of(text)),
            None => self.odd_string(),
        }
    }

    /// A string that is not plain, with the opening quote as the next byte.
    #[cold]
    #[inline(never)]
    pub fn odd_string(&mut self) -> Result<Str, SyntaxError> {
        self.at += 1;
        let rest = &self.text[self.at..];
        let plain = plain_length(rest);
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

    /// A string that holds an escape; the first `plain` bytes do not.
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

    /// The four digits after `\u`, and a second escape when they are half of a surrogate pair; a lone
    /// half becomes U+FFFD.
    fn unicode_escape(&mut self) -> Result<char, SyntaxError> {
        let first = self.hex4()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or('\u{fffd}'));
        }
        if first < 0xdc00 && self.text[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(joined).unwrap_or('\u{fffd}'));
            }
            self.at = back;
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

/// The number of up to 18 digits, which fits without a look.
fn small_integer(digits: &[u8]) -> Option<i64> {
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

/// Bytes of a string that needs no memory of its own.
pub(super) const STR_INLINE_BYTES: usize = 23;

#[inline(always)]
fn text_of(text: &str) -> Str {
    // The short way is a copy without a call.
    if text.len() <= STR_INLINE_BYTES { Str::new_inline(text) } else { Str::new(text) }
}

/// Bytes before the first quote, backslash or control character. Most text is short and ends soon.
#[inline(always)]
pub(super) fn plain_length(text: &[u8]) -> usize {
    match text.first_chunk().map(marks) {
        Some(marks) if marks != 0 => marked_at(marks),
        Some(_) => long_plain_length(text),
        None => ends_at(text),
    }
}

/// The same for a text of which the first [`MARKED_BYTES`] are plain.
#[inline(never)]
fn long_plain_length(text: &[u8]) -> usize {
    let mut at = MARKED_BYTES;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk())
        && is_plain(chunk)
    {
        at += PLAIN_BYTES;
    }
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let marks = marks(chunk);
        if marks != 0 {
            return at + marked_at(marks);
        }
        at += MARKED_BYTES;
    }
    at + ends_at(&text[at..])
}

/// The same, byte for byte.
#[cold]
fn ends_at(text: &[u8]) -> usize {
    text.iter().position(|byte| ends_plain(*byte)).unwrap_or(text.len())
}

/// Bytes that are looked at together.
const MARKED_BYTES: usize = 16;

/// Bytes of long text that are looked at together.
const PLAIN_BYTES: usize = 64;

/// Whether none of the bytes ends plain text.
#[inline(never)]
fn is_plain(chunk: &[u8; PLAIN_BYTES]) -> bool {
    chunk.iter().fold(0, |ends, byte| ends | u8::from(ends_plain(*byte))) == 0
}

/// A byte with all bits set for each that ends plain text, the first one lowest. Where this is inlined, the
/// bytes are no longer compared all at once.
#[inline(never)]
fn marks(chunk: &[u8; MARKED_BYTES]) -> u128 {
    let mut marks = [0; MARKED_BYTES];
    for at in 0..MARKED_BYTES {
        marks[at] = if ends_plain(chunk[at]) { u8::MAX } else { 0 };
    }
    u128::from_le_bytes(marks)
}

/// The place of the first byte that is marked.
#[inline(always)]
fn marked_at(marks: u128) -> usize {
    marks.trailing_zeros() as usize / 8
}

#[inline(always)]
fn ends_plain(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Go's words for a byte that breaks a literal at place `at`.
fn literal_words(word: &str, at: usize) -> &'static str {
    match (word, at) {
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
    fn the_end_of_plain_text_is_found_in_every_place() {
        for length in 0..200 {
            let mut text = "x".repeat(length).into_bytes();
            assert_eq!(plain_length(&text), length);
            for end in *b"\"\\\x00\x1f" {
                text.push(end);
                text.extend([b'x'; 90]);
                assert_eq!(plain_length(&text), length, "{end}");
                text.truncate(length);
            }
        }
    }

    #[test]
    fn text_of_any_length_is_read_as_it_stands() {
        for length in 0..60 {
            let text = "é".repeat(length / 2) + &"x".repeat(length % 2);
            let parsed = parse(format!("{text:?}").as_bytes()).map(|parsed| parsed.value);
            assert_eq!(parsed, Ok(text.into()));
        }
    }

    #[test]
    fn values_are_read() {
        check(
            r#" {"a":[1,-2.5,true,null,"x"],"b":{}} "#,
            Ok(value!({"a": [1, (-2.5), true, null, "x"], "b": {}})),
        );
        check(r#""\u0041\n\ud83d\ude00\ud800""#, Ok("A\n😀\u{fffd}".into()));
        check("9223372036854775807", Ok(Value::Int(i64::MAX)));
        check("9223372036854775808", Ok(Value::Float(9223372036854775808.0)));
    }

    #[test]
    fn syntax_errors_have_the_words_of_go() {
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
    fn members_that_stand_twice_are_named_with_their_path() {
        let parsed = parse(br#"{"a":{"b":[{"c":1,"c":2}]},"a":3}"#).unwrap();
        assert_eq!(parsed.duplicates, ["a.b[0].c", "a"]);
        assert_eq!(parsed.value, value!({"a": 3}));
    }
}
