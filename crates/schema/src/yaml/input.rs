//! Decodes the bytes of a document to text.
//!
//! Upstream reads a document in stretches of [`STRETCH_BYTES`]. A byte that YAML forbids is
//! reported when the scanner asks for its stretch, before any other error that is found later, and
//! not at all if the first document ends before. So the ends of the stretches are kept.

use std::borrow::Cow;

/// Number of bytes that upstream reads at once.
const STRETCH_BYTES: usize = 512;

/// The character that may begin a text, and upstream takes for nothing at the start of a line.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text of a document, up to the stretch that has a forbidden byte.
pub(super) struct Input<'a> {
    /// Characters that YAML allows.
    pub text: Cow<'a, str>,
    /// Offset in the text of the end of each stretch.
    pub stretch_ends: Vec<usize>,
    /// Why the text ends, if not because the document does.
    pub fault: Option<&'static str>,
}

const CONTROL: &str = "control characters are not allowed";

impl<'a> Input<'a> {
    /// Decodes UTF-16 with a byte order mark, or UTF-8.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        match bytes {
            [0xff, 0xfe, ..] => utf16(bytes, u16::from_le_bytes),
            [0xfe, 0xff, ..] => utf16(bytes, u16::from_be_bytes),
            _ => utf8(bytes),
        }
    }
}

fn utf8(bytes: &[u8]) -> Input<'_> {
    let start = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let mut stretch_ends = vec![];
    // The first stretch begins at the byte order mark.
    let mut read_until = 0;
    let mut decoded_until = start;
    let mut fault = None;
    while decoded_until < bytes.len() {
        let is_last = read_until + STRETCH_BYTES >= bytes.len();
        let stretch = &bytes[decoded_until..bytes.len().min(read_until + STRETCH_BYTES)];
        let decoded = match check_utf8(stretch) {
            // A character that a stretch cuts belongs to the next one.
            Ok(length) if length > 0 || !is_last => length,
            Ok(_) => {
                fault = Some("incomplete UTF-8 octet sequence");
                break;
            }
            Err(why) => {
                fault = Some(why);
                break;
            }
        };
        decoded_until += decoded;
        read_until = decoded_until;
        stretch_ends.push(decoded_until - start);
    }
    let text = String::from_utf8_lossy(&bytes[start..decoded_until]);
    Input { text, stretch_ends, fault }
}

/// Returns the length of the whole characters of a stretch.
fn check_utf8(stretch: &[u8]) -> Result<usize, &'static str> {
    let text = match std::str::from_utf8(stretch) {
        Ok(text) => text,
        Err(error) => {
            let (valid, rest) = stretch.split_at(error.valid_up_to());
            let text = std::str::from_utf8(valid).unwrap_or_default();
            check_characters(text)?;
            return invalid_utf8(rest).map_or(Ok(valid.len()), Err);
        }
    };
    check_characters(text)?;
    Ok(text.len())
}

/// Names what is wrong with a text whose first character is not UTF-8. Returns `None` if the
/// character is not complete.
fn invalid_utf8(rest: &[u8]) -> Option<&'static str> {
    let first = *rest.first()?;
    let length = match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return Some("invalid leading UTF-8 octet"),
    };
    let trailing = rest.get(1..length)?;
    if trailing.iter().any(|byte| byte & 0xc0 != 0x80) {
        return Some("invalid trailing UTF-8 octet");
    }
    let bits = u32::from(first) & (0x7f >> length);
    let code = trailing.iter().fold(bits, |code, byte| code << 6 | u32::from(byte & 0x3f));
    let least = [0x80, 0x800, 0x1_0000][length - 2];
    Some(if code < least {
        "invalid length of a UTF-8 sequence"
    } else {
        "invalid Unicode character"
    })
}

fn check_characters(text: &str) -> Result<(), &'static str> {
    // Most texts are ASCII without control characters other than line breaks.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n'));
    if is_plain || text.chars().all(is_allowed) { Ok(()) } else { Err(CONTROL) }
}

/// Whether YAML allows a character.
pub(super) fn is_allowed(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        c => !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Input<'static> {
    let unit_at = |at: usize| Some(u32::from(unit([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let mut text = String::with_capacity(bytes.len());
    let mut stretch_ends = vec![];
    let mut fault = None;
    let mut at = 2;
    let mut read_until = STRETCH_BYTES;
    while at < bytes.len() {
        let length = if matches!(unit_at(at), Some(0xd800..0xdc00)) { 4 } else { 2 };
        // A character that a stretch cuts belongs to the next one.
        if at + length > read_until.min(bytes.len()) {
            stretch_ends.push(text.len());
            read_until = at + STRETCH_BYTES;
        }
        match utf16_character(unit_at(at), || unit_at(at + 2)) {
            Ok(c) => text.push(c),
            Err(why) => {
                fault = Some(why);
                text.truncate(stretch_ends.last().copied().unwrap_or_default());
                break;
            }
        }
        at += length;
    }
    if fault.is_none() {
        stretch_ends.push(text.len());
    }
    Input { text: Cow::Owned(text), stretch_ends, fault }
}

fn utf16_character(
    unit: Option<u32>,
    next: impl Fn() -> Option<u32>,
) -> Result<char, &'static str> {
    let code = match unit.ok_or("incomplete UTF-16 character")? {
        0xdc00..0xe000 => return Err("unexpected low surrogate area"),
        high @ 0xd800..0xdc00 => match next().ok_or("incomplete UTF-16 surrogate pair")? {
            low @ 0xdc00..0xe000 => 0x1_0000 + ((high & 0x3ff) << 10) + (low & 0x3ff),
            _ => return Err("expected low surrogate area"),
        },
        code => code,
    };
    char::from_u32(code).filter(|c| is_allowed(*c)).ok_or(CONTROL)
}
