//! YAML decoding and encoding, as sigs.k8s.io/yaml does them: with the syntax of libyaml, the
//! scalars of YAML 1.1 and the error messages of its Go translation.
//!
//! Bytes become text (`input`), text tokens (`scanner`), tokens events (`parser`), events nodes
//! (`document`), and nodes values (`construct`). Nothing recurses before the last step, whose depth
//! is limited; each step takes time in proportion to the text, and the last one to the expansion of
//! aliases, which is limited too.

mod construct;
mod cursor;
mod document;
mod go_value;
mod input;
mod parser;
mod places;
mod resolve;
mod scanner;
#[cfg(test)]
mod tests;
mod timestamp;
mod write;
mod write_scalar;

pub use places::{Found, Place, Places, parse_with_places};
pub use write::write;

use document::Document;
use input::Input;
use keelson_meta::Value;
use std::fmt;

use crate::json;

/// Maximum length of a text: places in it are numbers of 32 bits. Bodies are shorter.
const TEXT_BYTES_MAX: usize = 1 << 30;

/// A parsed document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedYaml {
    /// The value.
    pub value: Value,
    /// (line, key in Go syntax) of duplicate keys.
    pub duplicates: Vec<(usize, String)>,
}

/// Why a text is not YAML that the API accepts. Displays as upstream's message.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlError {
    /// A syntax error, or bytes that are no text: (line or 0, message).
    Syntax(usize, &'static str),
    /// The text is longer than any body.
    Length,
    /// Nesting exceeds [`json::DEPTH_MAX`].
    Depth,
    /// Aliases that expand to too much.
    Aliases,
    /// An alias of this anchor, which the document does not have before it.
    UnknownAnchor(String),
    /// An alias within the node that it refers to: the name of the anchor.
    SelfReference(String),
    /// A merge of something else than maps.
    Merge,
    /// A scalar that its tag does not fit.
    Tag {
        /// The tag that fits.
        found: &'static str,
        /// The scalar.
        text: String,
        /// The tag that it has.
        wanted: &'static str,
    },
    /// `!!binary` text that is not base64.
    Binary,
    /// A map key that is a list or a map, in Go syntax.
    Key(String),
    /// A map key that JSON cannot hold: upstream's message.
    KeyType(String),
    /// A number that JSON cannot hold.
    Number(f64),
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            YamlError::Syntax(0, message) => write!(f, "yaml: {message}"),
            YamlError::Syntax(line, message) => write!(f, "yaml: line {line}: {message}"),
            YamlError::Length => write!(f, "yaml: exceeded max length of {TEXT_BYTES_MAX}"),
            YamlError::Depth => f.write_str("yaml: exceeded max depth of 10000"),
            YamlError::Aliases => f.write_str("yaml: document contains excessive aliasing"),
            YamlError::UnknownAnchor(name) => {
                write!(f, "yaml: unknown anchor '{name}' referenced")
            }
            YamlError::SelfReference(name) => {
                write!(f, "yaml: anchor '{name}' value contains itself")
            }
            YamlError::Merge => {
                f.write_str("yaml: map merge requires map or sequence of maps as the value")
            }
            YamlError::Tag { found, text, wanted } => {
                write!(f, "yaml: cannot decode {found} `{text}` as a {wanted}")
            }
            YamlError::Binary => f.write_str("yaml: !!binary value contains invalid base64 data"),
            YamlError::Key(key) => write!(f, "yaml: invalid map key: {key}"),
            YamlError::KeyType(message) => f.write_str(message),
            YamlError::Number(number) if number.is_nan() => {
                f.write_str("json: unsupported value: NaN")
            }
            YamlError::Number(number) => {
                let sign = if *number < 0.0 { '-' } else { '+' };
                write!(f, "json: unsupported value: {sign}Inf")
            }
        }
    }
}

impl std::error::Error for YamlError {}

/// Parses the first document of a text, in UTF-8, or in UTF-16 with a byte order mark. Like
/// upstream, ignores the rest.
pub fn parse(text: impl AsRef<[u8]>) -> Result<ParsedYaml, YamlError> {
    let bytes = text.as_ref();
    match plain_json(bytes) {
        Some(value) => Ok(ParsedYaml { value, duplicates: vec![] }),
        None => scan(bytes),
    }
}

/// Same as [`parse`], without the shortcut for JSON.
fn scan(bytes: &[u8]) -> Result<ParsedYaml, YamlError> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(YamlError::Length);
    }
    let input = Input::new(bytes);
    construct::construct(&Document::read(&input)?)
}

/// What YAML reads differently than JSON, anywhere in a text: tabs between tokens, escaped
/// surrogates and slashes, line breaks of Unicode in strings, and byte order marks.
const DIFFERENT: [&[u8]; 7] =
    [b"\t", b"\\ud", b"\\uD", b"\\/", "\u{85}".as_bytes(), b"\xe2\x80", input::BYTE_ORDER_MARK];

/// Length up to which a key in JSON is a key in YAML, however it is escaped.
const JSON_KEY_BYTES_MAX: usize = 128;

/// Parses a text that is JSON, as most YAML bodies are; JSON parsing is several times faster.
/// Returns `None` for texts that YAML might read differently.
fn plain_json(bytes: &[u8]) -> Option<Value> {
    if bytes.first() != Some(&b'{') {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let has_different = DIFFERENT.iter().any(|part| memchr::memmem::find(bytes, part).is_some());
    // A key and the colon after it must be in one line.
    let has_space_before_colon = memchr::memchr_iter(b':', bytes)
        .any(|at| matches!(bytes.get(at.wrapping_sub(1)), Some(b' ' | b'\n' | b'\r')));
    if has_different || has_space_before_colon || text.chars().any(|c| !input::is_allowed(c)) {
        return None;
    }
    let parsed = json::parse(bytes).ok()?;
    let is_same = parsed.duplicates.is_empty() && parsed.overflow.is_none();
    (is_same && is_read_alike(&parsed.value)).then_some(parsed.value)
}

/// Whether the numbers and keys of a value are the same in YAML: whole floats become integers
/// there, and a long key is none.
fn is_read_alike(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.fract() != 0.0,
        Value::Array(items) => items.iter().all(is_read_alike),
        Value::Object(map) => {
            map.iter().all(|(key, value)| key.len() <= JSON_KEY_BYTES_MAX && is_read_alike(value))
        }
        _ => true,
    }
}
