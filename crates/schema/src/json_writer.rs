//! Encodes [`Value`] to JSON without a schema: members in map order.

use keelson_meta::Value;
use keelson_meta::float_digits::ShortestDigits;
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

/// Appends a float as Go does: with an exponent below 1e-6 and from 1e21 on.
fn write_float(number: f64, out: &mut Vec<u8>) {
    let size = number.abs();
    let digits = ShortestDigits::of(number);
    let has_exponent = size != 0.0 && !(1e-6..1e21).contains(&size);
    let text = if has_exponent { digits.scientific(1) } else { digits.decimal() };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a quoted string. Escapes what Go's encoder escapes: quotes, backslashes, control
/// characters, `<`, `>`, `&`, U+2028 and U+2029.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    write_utf8(text.as_bytes(), out);
}

/// Same as [`write_string`] for UTF-8 bytes.
pub fn write_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    if !needs_no_escape(bytes) {
        return write_escaped(bytes, out);
    }
    match bytes.len() {
        0..2 => {
            out.push(b'"');
            out.extend(bytes.first());
            out.push(b'"');
        }
        2..4 => write_quoted_halves::<2>(bytes, out),
        4..8 => write_quoted_halves::<4>(bytes, out),
        8..16 => write_quoted_halves::<8>(bytes, out),
        16..=SHORT_BYTES_MAX => write_quoted_halves::<16>(bytes, out),
        _ => {
            out.reserve(bytes.len() + 2);
            out.push(b'"');
            out.extend_from_slice(bytes);
            out.push(b'"');
        }
    }
}

/// Maximum length of text that is written as two halves.
const SHORT_BYTES_MAX: usize = 32;

/// Appends a quoted text by copying two halves of constant length, which may overlap, over a run of
/// quotes. This reserves memory only once and calls no function.
#[inline(always)]
fn write_quoted_halves<const N: usize>(bytes: &[u8], out: &mut Vec<u8>) {
    let end = out.len() + bytes.len() + 2;
    out.extend_from_slice(&[b'"'; SHORT_BYTES_MAX + 2]);
    if let Some(to) = out.last_chunk_mut::<{ SHORT_BYTES_MAX + 2 }>()
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
            // U+2028 and U+2029 are e2 80 a8 and e2 80 a9. Other characters begin with e2 too.
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

/// Whether no byte may need an escape. Compares many bytes at once.
#[inline(always)]
fn needs_no_escape(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..4 => bytes.iter().all(|byte| !NEEDS_ESCAPE[usize::from(*byte)]),
        4..8 => halves_need_no_escape::<4>(bytes),
        8..16 => halves_need_no_escape::<8>(bytes),
        _ => long_needs_no_escape(bytes),
    }
}

/// Same as [`needs_no_escape`] for `N` to `2 * N` bytes, as two halves that may overlap.
#[inline(always)]
fn halves_need_no_escape<const N: usize>(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else {
        return false;
    };
    let mut both = [b' '; CHUNK_BYTES];
    both[..N].copy_from_slice(first);
    both[N..2 * N].copy_from_slice(last);
    !may_need_escape(&both)
}

/// Same as [`needs_no_escape`] for at least [`CHUNK_BYTES`].
#[inline(always)]
fn long_needs_no_escape(bytes: &[u8]) -> bool {
    let (long, rest) = bytes.as_chunks::<LONG_CHUNK_BYTES>();
    if long.iter().any(long_may_need_escape) {
        return false;
    }
    let (chunks, rest) = rest.as_chunks::<CHUNK_BYTES>();
    // The last chunk overlaps the one before.
    !chunks.iter().any(may_need_escape)
        && (rest.is_empty() || bytes.last_chunk().is_none_or(|last| !may_need_escape(last)))
}

/// Bytes of a chunk that is compared at once.
const CHUNK_BYTES: usize = 16;
/// Bytes of a chunk of long text that is compared at once.
const LONG_CHUNK_BYTES: usize = 8 * CHUNK_BYTES;

/// Whether one of the bytes may need an escape. Branchless, so that it is vectorized.
#[inline(always)]
fn may_need_escape(bytes: &[u8; CHUNK_BYTES]) -> bool {
    bytes.iter().fold(u8::MAX, |least, byte| least.min(zero_if_special(*byte))) == 0
}

/// Same as [`may_need_escape`] for a long chunk, with one comparison at the end.
#[inline(never)]
fn long_may_need_escape(bytes: &[u8; LONG_CHUNK_BYTES]) -> bool {
    let mut least = [u8::MAX; CHUNK_BYTES];
    for chunk in bytes.as_chunks::<CHUNK_BYTES>().0 {
        for (least, byte) in least.iter_mut().zip(chunk) {
            *least = (*least).min(zero_if_special(*byte));
        }
    }
    least.contains(&0)
}

/// Returns zero for a byte that may need an escape.
#[inline(always)]
fn zero_if_special(byte: u8) -> u8 {
    // `<` and `>` differ in one bit, as do `"` and `&`.
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
    fn special_characters_are_escaped_at_every_offset() {
        for c in (0..0x300).chain([0x2028, 0x2029, 0x2030]).filter_map(char::from_u32) {
            let long = [0, 127, 128, 200, 255, 256, 299].map(|before| (before, 300));
            for (before, bytes) in (0..17).map(|before| (before, 16)).chain(long) {
                let text = format!("{}{c}{}", "a".repeat(before), "b".repeat(bytes - before));
                let mut out = vec![];
                write_string(&text, &mut out);
                let needs_no_escape = out.len() == text.len() + 2;
                let escaped = c < ' ' || "\"\\<>&\u{2028}\u{2029}".contains(c);
                assert_eq!(needs_no_escape, !escaped, "{c:?} after {before}");
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
