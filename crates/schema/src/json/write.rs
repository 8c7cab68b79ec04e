//! [`Value`] to JSON text without a schema: members in the order of the map.

use keelson_meta::Value;

/// Appends `value` as compact JSON.
pub fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => write_int(*number, out),
        Value::Float(number) => write_float(*number, out),
        Value::String(text) => write_string(text, out),
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
pub(super) fn write_int(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a float as Go does: plain between 1e-6 and 1e21, else with an exponent.
pub(super) fn write_float(number: f64, out: &mut Vec<u8>) {
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
    let bytes = text.as_bytes();
    if !is_plain(bytes) {
        return write_escaped(bytes, out);
    }
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    copy(bytes, out);
    out.push(b'"');
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

/// Appends bytes; as two halves of a known length, which may overlap, when they are few.
#[inline]
fn copy(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        0..4 => bytes.iter().for_each(|byte| out.push(*byte)),
        4..8 => halves::<4>(bytes, out),
        8..=16 => halves::<8>(bytes, out),
        17..=32 => halves::<16>(bytes, out),
        _ => out.extend_from_slice(bytes),
    }
}

#[inline]
fn halves<const N: usize>(bytes: &[u8], out: &mut Vec<u8>) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) {
        let end = out.len() + bytes.len();
        out.extend_from_slice(first);
        out.truncate(end - N);
        out.extend_from_slice(last);
    }
}

/// Whether no byte needs a look; many of them at a time.
#[inline(always)]
fn is_plain(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..4 => bytes.iter().all(|byte| !NEEDS_ESCAPE[usize::from(*byte)]),
        4..8 => is_plain_short(bytes),
        8..16 => is_plain_by::<8>(bytes),
        _ => is_plain_by::<16>(bytes),
    }
}

/// The same for four to eight bytes, as two halves, which may overlap.
#[inline(always)]
fn is_plain_short(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else {
        return false;
    };
    let word = u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    const ONES: u64 = u64::MAX / 255;
    // The top bit of a byte is set where that byte is zero.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is = |mask: u8, byte: u8| zero((word & (ONES * mask as u64)) ^ (ONES * byte as u64));
    // As in `needs_look`.
    let marks = is(!0x02, b'<') | is(!0x04, b'"') | is(!0, b'\\') | is(!0, 0xe2);
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (marks | controls) & (ONES << 7) == 0
}

/// The same for at least `N` bytes.
#[inline(always)]
fn is_plain_by<const N: usize>(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<N>() {
        if needs_look(chunk) {
            return false;
        }
        rest = after;
    }
    // The last ones overlap with those before.
    rest.is_empty() || bytes.last_chunk::<N>().is_none_or(|last| !needs_look(last))
}

/// Whether one of the bytes needs a look; without a branch, so that all of them are compared at once.
#[inline(always)]
fn needs_look<const N: usize>(bytes: &[u8; N]) -> bool {
    let mut found = 0;
    for byte in bytes {
        // `<` and `>`, and `"` and `&`, differ in one bit.
        let marks = (byte & !0x02 == b'<') | (byte & !0x04 == b'"');
        found |= u8::from(marks | (*byte == b'\\') | (*byte == 0xe2) | (*byte < 0x20));
    }
    found != 0
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
            for before in 0..17 {
                let text = format!("{}{c}{}", "a".repeat(before), "b".repeat(16 - before));
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
