//! String functions: standard ones and cel-go's extended ones. Indices count characters.

pub(crate) mod text_format;

use super::{Implementation, int_arg, text_arg};
use crate::value::{EvalError, EvalResult, Val, count_chars};
use base64::Engine;

/// Maximum length of a string that a function returns.
const TEXT_BYTES_MAX: usize = 16 << 20;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "contains" => |args| test(args, |text, part| text.contains(part)),
        "startsWith" => |args| test(args, |text, part| text.starts_with(part)),
        "endsWith" => |args| test(args, |text, part| text.ends_with(part)),
        "charAt" => char_at,
        "lowerAscii" => |args| Ok(Val::text(text_arg(args, 0)?.to_ascii_lowercase())),
        "upperAscii" => |args| Ok(Val::text(text_arg(args, 0)?.to_ascii_uppercase())),
        "trim" => |args| Ok(Val::text(text_arg(args, 0)?.trim())),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => text_format::format,
        "strings.quote" => |args| Ok(Val::text(quote(text_arg(args, 0)?))),
        "jsonpatch.escapeKey" => {
            |args| Ok(Val::text(text_arg(args, 0)?.replace('~', "~0").replace('/', "~1")))
        }
        "base64.encode" => |args| match args {
            [Val::Bytes(bytes)] => {
                Ok(Val::text(base64::engine::general_purpose::STANDARD.encode(bytes)))
            }
            _ => Err(EvalError::no_overload()),
        },
        "base64.decode" => base64_decode,
        _ => return None,
    })
}

/// Returns the text, or an error if it is longer than [`TEXT_BYTES_MAX`].
pub(crate) fn checked_text<'a>(text: String) -> EvalResult<'a> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(crate::runtime_cost::too_long());
    }
    Ok(Val::text(text))
}

fn test<'a>(args: &[Val<'a>], holds: fn(&str, &str) -> bool) -> EvalResult<'a> {
    Ok(Val::Bool(holds(text_arg(args, 0)?, text_arg(args, 1)?)))
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

/// Returns the byte offset of the character at index `at`; the end of the text is a valid index.
fn byte_offset(text: &str, at: i64) -> Result<usize, EvalError> {
    let wanted = usize::try_from(at).map_err(|_| out_of_range(at))?;
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    places.nth(wanted).ok_or_else(|| out_of_range(at))
}

fn char_at<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_arg(args, 0)?;
    let place = byte_offset(text, int_arg(args, 1)?)?;
    Ok(Val::text(text[place..].chars().take(1).collect::<String>()))
}

fn chars_before(text: &str, place: usize) -> Val<'static> {
    Val::Int(count_chars(&text[..place]) as i64)
}

pub(crate) fn index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, part) = (text_arg(args, 0)?, text_arg(args, 1)?);
    let start = if args.len() > 2 { int_arg(args, 2)? } else { 0 };
    if part.is_empty() {
        return Ok(Val::Int(start));
    }
    if start < 0 {
        return Err(out_of_range(start));
    }
    let Ok(from) = byte_offset(text, start) else { return Ok(Val::Int(-1)) };
    Ok(match text[from..].find(part) {
        Some(place) => chars_before(text, from + place),
        None => Val::Int(-1),
    })
}

pub(crate) fn last_index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, part) = (text_arg(args, 0)?, text_arg(args, 1)?);
    let length = count_chars(text) as i64;
    let start = if args.len() > 2 { Some(int_arg(args, 2)?) } else { None };
    if part.is_empty() {
        return Ok(Val::Int(start.unwrap_or(length)));
    }
    let end = match start {
        None => text.len(),
        Some(start) if start < 0 => return Err(out_of_range(start)),
        Some(start) if start >= length => return Ok(Val::Int(-1)),
        // The last match may begin at `start`.
        Some(start) => (byte_offset(text, start)? + part.len()).min(text.len()),
    };
    let mut end = end;
    while !text.is_char_boundary(end) {
        end += 1;
    }
    Ok(match text[..end].rfind(part) {
        Some(place) => chars_before(text, place),
        None => Val::Int(-1),
    })
}

fn substring<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_arg(args, 0)?;
    let start = int_arg(args, 1)?;
    if args.len() < 3 {
        return Ok(Val::text(&text[byte_offset(text, start)?..]));
    }
    let end = int_arg(args, 2)?;
    if start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::new(message));
    }
    let from = byte_offset(text, start)?;
    Ok(Val::text(&text[from..byte_offset(text, end)?]))
}

fn replace<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, old, new) = (text_arg(args, 0)?, text_arg(args, 1)?, text_arg(args, 2)?);
    let limit = if args.len() > 3 { int_arg(args, 3)? } else { -1 };
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    let places = if old.is_empty() { text.len() + 1 } else { text.len() / old.len() };
    let grown = places.min(count).saturating_mul(new.len()).saturating_add(text.len());
    if grown > TEXT_BYTES_MAX {
        return Err(crate::runtime_cost::too_long());
    }
    checked_text(text.replacen(old, new, count))
}

fn split<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (text, separator) = (text_arg(args, 0)?, text_arg(args, 1)?);
    let limit = if args.len() > 2 { int_arg(args, 2)? } else { -1 };
    if limit == 0 {
        return Ok(Val::list(vec![]));
    }
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    if separator.is_empty() {
        return Ok(Val::list(split_chars(text, count)));
    }
    Ok(Val::list(text.splitn(count, separator).map(Val::text).collect()))
}

/// Splits a text into characters; the last item holds the rest.
fn split_chars<'a>(text: &str, count: usize) -> Vec<Val<'a>> {
    let mut out = vec![];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if out.len() + 1 == count {
            out.push(Val::text(rest));
            break;
        }
        let (one, more) = rest.split_at(c.len_utf8());
        out.push(Val::text(one));
        rest = more;
    }
    out
}

fn join<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Some(Val::List(list)) = args.first() else { return Err(EvalError::no_overload()) };
    let separator = if args.len() > 1 { text_arg(args, 1)? } else { "" };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(item?.as_str().ok_or_else(EvalError::no_overload)?);
        if out.len() > TEXT_BYTES_MAX {
            return Err(crate::runtime_cost::too_long());
        }
    }
    Ok(Val::text(out))
}

pub(crate) fn reverse<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Ok(Val::text(text_arg(args, 0)?.chars().rev().collect::<String>()))
}

/// Quotes a text and escapes control characters that have a short escape.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

fn base64_decode<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    let text = text_arg(args, 0)?;
    match STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)) {
        Ok(bytes) => Ok(Val::Bytes(bytes.into())),
        Err(error) => Err(EvalError::new(format!("illegal base64 data: {error}"))),
    }
}
