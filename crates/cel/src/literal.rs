//! Parses literals: strings, bytes and numbers.

use keelson_meta::Str;
use std::sync::Arc;

/// A literal of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Str),
    Bytes(Arc<[u8]>),
}

pub(crate) fn parse_int(sign: &str, text: &str) -> Result<Literal, &'static str> {
    let (digits, radix) = radix(text);
    i64::from_str_radix(&format!("{sign}{digits}"), radix)
        .map(Literal::Int)
        .map_err(|_| "invalid int literal")
}

pub(crate) fn parse_uint(text: &str) -> Result<Literal, &'static str> {
    let (digits, radix) = radix(&text[..text.len() - 1]);
    u64::from_str_radix(digits, radix).map(Literal::Uint).map_err(|_| "invalid uint literal")
}

pub(crate) fn parse_double(sign: &str, text: &str) -> Result<Literal, &'static str> {
    match format!("{sign}{text}").parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
        _ => Err("invalid double literal"),
    }
}

fn radix(text: &str) -> (&str, u32) {
    text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16))
}

/// Parses a string token, including quotes and prefix.
pub(crate) fn parse_string(text: &str) -> Result<Literal, &'static str> {
    let bytes = unescape(text, false)?;
    let text = String::from_utf8(bytes).map_err(|_| "unable to unescape string")?;
    Ok(Literal::String(text.into()))
}

/// Parses a bytes token, including quotes and prefix.
pub(crate) fn parse_bytes(text: &str) -> Result<Literal, &'static str> {
    Ok(Literal::Bytes(unescape(&text[1..], true)?.into()))
}

/// Unescapes a quoted text. In bytes, `\x` and octal escapes are single bytes, and Unicode escapes
/// are errors.
fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let quotes = if quoted.len() >= 6 && ["'''", "\"\"\""].iter().any(|q| quoted.starts_with(q)) {
        3
    } else {
        1
    };
    let inner = &quoted[quotes..quoted.len() - quotes];
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            escape(&mut chars, is_bytes, &mut out)?;
        } else {
            push(&mut out, c);
        }
    }
    Ok(out)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn escape(
    chars: &mut std::str::Chars<'_>,
    is_bytes: bool,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const FAULT: &str = "unable to unescape string";
    let kind = chars.next().ok_or(FAULT)?;
    let plain = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => kind as u8,
        _ => {
            let (first, count, radix) = match kind {
                'x' | 'X' => (0, 2, 16),
                'u' if !is_bytes => (0, 4, 16),
                'U' if !is_bytes => (0, 8, 16),
                '0'..='3' => (kind as u32 - '0' as u32, 2, 8),
                _ => return Err(FAULT),
            };
            let mut value: u32 = first;
            for _ in 0..count {
                let digit = chars.next().and_then(|c| c.to_digit(radix)).ok_or(FAULT)?;
                value = value.wrapping_mul(radix).wrapping_add(digit);
            }
            if is_bytes {
                out.push(value as u8);
            } else {
                push(out, char::from_u32(value).ok_or("invalid unicode code point")?);
            }
            return Ok(());
        }
    };
    out.push(plain);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unescaped() {
        let check = |text: &str, expected: Result<&str, &'static str>| {
            assert_eq!(parse_string(text), expected.map(|s| Literal::String(s.into())), "{text}");
        };
        check("'a'", Ok("a"));
        check(r"'\n\'\x41\101\u00e9\U0001F600\?'", Ok("\n'AA\u{e9}\u{1f600}?"));
        check(r"r'\n'", Ok("\\n"));
        check("\"\"\"a'\"b\r\nc\"\"\"", Ok("a'\"b\nc"));
        check(r"'\ud800'", Err("invalid unicode code point"));
    }

    #[test]
    fn bytes_literals_reject_unicode_escapes() {
        let check = |text: &str, expected: Result<&[u8], &'static str>| {
            assert_eq!(parse_bytes(text), expected.map(|b| Literal::Bytes(b.into())), "{text}");
        };
        check(r"b'\xff\377a'", Ok(&[255, 255, 97]));
        check("b'\u{e9}'", Ok(&[0xc3, 0xa9]));
        check(r"b'\u0041'", Err("unable to unescape string"));
    }

    #[test]
    fn integers_out_of_64_bits_are_errors() {
        assert_eq!(parse_int("-", "9223372036854775808"), Ok(Literal::Int(i64::MIN)));
        assert_eq!(parse_int("", "9223372036854775808"), Err("invalid int literal"));
        assert_eq!(parse_int("", "0x1F"), Ok(Literal::Int(31)));
        assert_eq!(parse_uint("18446744073709551615u"), Ok(Literal::Uint(u64::MAX)));
        assert_eq!(parse_double("", "1e400"), Err("invalid double literal"));
    }
}
