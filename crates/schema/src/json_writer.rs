//! [`Value`] to JSON text without a schema: members in the order of the map.

use keelson_meta::Value;
use keelson_meta::json_text::compact;

/// Appends `value` as compact JSON.
pub fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => write_int(*number, out),
        Value::Float(number) => write_float(*number, out),
        Value::String(text) => write_string(text, out),
        Value::Raw(text) => out.extend_from_slice(compact(text).as_bytes()),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write_value(item, out);
            }
            out.push(b'}');
        }
    }
}

/// Appends an integer.
fn write_int(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a float as Go does: plain between 1e-6 and 1e21, else with an exponent.
fn write_float(number: f64, out: &mut Vec<u8>) {
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        // Rust writes 1e21, Go 1e+21; negative exponents are the same but for one digit: e-7, e-10.
        let text = if text.contains("e-") { text } else { text.replace('e', "e+") };
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.extend_from_slice(format!("{number}").as_bytes());
}

/// Appends a quoted string. Escapes what Go's encoder escapes: quotes, backslashes, control characters,
/// `<`, `>`, `&` and the two Unicode line separators.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    write_utf8(text.as_bytes(), out);
}

/// [`write_string`] for the bytes of a text.
pub fn write_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    if !is_plain(bytes) {
        return write_escaped(bytes, out);
    }
    match bytes.len() {
        0..2 => {
            out.push(b'"');
            out.extend(bytes.first());
            out.push(b'"');
        }
        2..4 => quoted::<2>(bytes, out),
        4..8 => quoted::<4>(bytes, out),
        8..16 => quoted::<8>(bytes, out),
        16..=QUOTED_BYTES_MAX => quoted::<16>(bytes, out),
        _ => {
            out.reserve(bytes.len() + 2);
            out.push(b'"');
            out.extend_from_slice(bytes);
            out.push(b'"');
        }
    }
}

/// Bytes of text that is written as two halves.
const QUOTED_BYTES_MAX: usize = 32;

/// Appends a quoted text as two halves of a known length, which may overlap, over a row of quotes: so there is
/// room to ask for only once, and no call.
#[inline(always)]
fn quoted<const N: usize>(bytes: &[u8], out: &mut Vec<u8>) {
    let end = out.len() + bytes.len() + 2;
    out.extend_from_slice(&[b'"'; QUOTED_BYTES_MAX + 2]);
    if let Some(to) = out.last_chunk_mut::<{ QUOTED_BYTES_MAX + 2 }>()
        && let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>())
    {
        to[1..N + 1].copy_from_slice(first);
        to[bytes.len() + 1 - N..bytes.len() + 1].copy_from_slice(last);
    }
    out.truncate(end);
}

/// Appends a string that may need escapes.
#[cold]
#[inline(never)]
fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if !NEEDS_ESCAPE[usize::from(*byte)] {
            continue;
        }
        if *byte == 0xe2 {
            // U+2028 and U+2029 are e2 80 a8 and e2 80 a9; other characters begin with e2 too.
            if let Some([_, 0x80, last @ (0xa8 | 0xa9)]) = bytes.get(at..at + 3) {
                out.extend_from_slice(&bytes[start..at]);
                out.extend_from_slice(if *last == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                start = at + 3;
            }
            continue;
        }
        out.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

/// Whether no byte needs a look; many of them at a time.
#[inline(always)]
fn is_plain(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..4 => bytes.iter().all(|byte| !NEEDS_ESCAPE[usize::from(*byte)]),
        4..8 => is_plain_halves::<4>(bytes),
        8..16 => is_plain_halves::<8>(bytes),
        _ => is_plain_long(bytes),
    }
}

/// The same for `N` to twice as many bytes, as two halves, which may overlap.
#[inline(always)]
fn is_plain_halves<const N: usize>(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else {
        return false;
    };
    let mut both = [b' '; LOOKED_AT_BYTES];
    both[..N].copy_from_slice(first);
    both[N..2 * N].copy_from_slice(last);
    !needs_look(&both)
}

/// The same for at least [`LOOKED_AT_BYTES`].
#[inline(always)]
fn is_plain_long(bytes: &[u8]) -> bool {
    let (long, rest) = bytes.as_chunks::<LONG_BYTES>();
    if long.iter().any(needs_look_long) {
        return false;
    }
    let (chunks, rest) = rest.as_chunks::<LOOKED_AT_BYTES>();
    // The last ones overlap with those before.
    !chunks.iter().any(needs_look)
        && (rest.is_empty() || bytes.last_chunk().is_none_or(|last| !needs_look(last)))
}

/// Bytes that are looked at together.
const LOOKED_AT_BYTES: usize = 16;
/// Bytes of long text that are looked at together.
const LONG_BYTES: usize = 8 * LOOKED_AT_BYTES;

/// Whether one of the bytes needs a look; without a branch, so that all of them are compared at once.
#[inline(always)]
fn needs_look(bytes: &[u8; LOOKED_AT_BYTES]) -> bool {
    bytes.iter().fold(u8::MAX, |least, byte| least.min(sign(*byte))) == 0
}

/// [`needs_look`] for more bytes, which are compared with each other once.
#[inline(never)]
fn needs_look_long(bytes: &[u8; LONG_BYTES]) -> bool {
    let mut least = [u8::MAX; LOOKED_AT_BYTES];
    for chunk in bytes.as_chunks::<LOOKED_AT_BYTES>().0 {
        for (least, byte) in least.iter_mut().zip(chunk) {
            *least = (*least).min(sign(*byte));
        }
    }
    least.contains(&0)
}

/// Zero for a byte that needs a look.
#[inline(always)]
fn sign(byte: u8) -> u8 {
    // `<` and `>` differ in one bit; `"` and `&`, the same; and so on.
    let signs = ((byte & !0x02) ^ b'<').min((byte & !0x04) ^ b'"').min(byte ^ b'\\');
    signs.min(byte ^ 0xe2).min(byte & 0xe0)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

const NEEDS_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn text_is_escaped_as_go_escapes_it() {
        let mut out = vec![];
        write_value(&value!({"a<b": "q\"\\\n\u{1}\u{2028}é–&>"}), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"a\\u003cb\":\"q\\\"\\\\\\n\\u0001\\u2028é–\\u0026\\u003e\"}"
        );
    }

    #[test]
    fn every_byte_is_escaped_wherever_it_stands() {
        for c in (0..0x300).chain([0x2028, 0x2029, 0x2030]).filter_map(char::from_u32) {
            let long = [0, 127, 128, 200, 255, 256, 299].map(|before| (before, 300));
            for (before, bytes) in (0..17).map(|before| (before, 16)).chain(long) {
                let text = format!("{}{c}{}", "a".repeat(before), "b".repeat(bytes - before));
                let mut out = vec![];
                write_string(&text, &mut out);
                let is_plain = out.len() == text.len() + 2;
                let escaped = c < ' ' || "\"\\<>&\u{2028}\u{2029}".contains(c);
                assert_eq!(is_plain, !escaped, "{c:?} after {before}");
                let back = crate::json::parse(&out).map(|parsed| parsed.value);
                assert_eq!(back, Ok(text.into()));
            }
        }
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (number, want) in
            [(1.5, "1.5"), (1e21, "1e+21"), (1e-7, "1e-7"), (100.0, "100"), (0.0, "0")]
        {
            let mut out = vec![];
            write_float(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
