//! String functions: standard ones and cel-go's extended ones. Indices count characters.

pub(crate) mod text_format;

use super::{Implementation, int_arg, text_arg, text_val};
use crate::meter;
use crate::value::{EvalError, EvalResult, Text, Val};
use base64::Engine;
use keelson_meta::Str;

/// Maximum length of a string that a function returns.
const TEXT_BYTES_MAX: usize = 16 << 20;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "contains" => |args| test(args, |text, part| text.contains(part)),
        "startsWith" => |args| test(args, |text, part| text.starts_with(part)),
        "endsWith" => |args| test(args, |text, part| text.ends_with(part)),
        "charAt" => char_at,
        "lowerAscii" => |args| Val::made_text(text_arg(args, 0)?.to_ascii_lowercase()),
        "upperAscii" => |args| Val::made_text(text_arg(args, 0)?.to_ascii_uppercase()),
        "trim" => |args| Val::made_text(text_arg(args, 0)?.trim()),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => text_format::format,
        "strings.quote" => |args| Val::made_text(quote(text_arg(args, 0)?)),
        "jsonpatch.escapeKey" => {
            |args| Val::made_text(text_arg(args, 0)?.replace('~', "~0").replace('/', "~1"))
        }
        "base64.encode" => |args| match args {
            [Val::Bytes(bytes)] => {
                Val::made_text(base64::engine::general_purpose::STANDARD.encode(bytes))
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
    Val::made_text(text)
}

fn test<'a>(args: &[Val<'a>], holds: fn(&str, &str) -> bool) -> EvalResult<'a> {
    Ok(Val::Bool(holds(text_arg(args, 0)?, text_arg(args, 1)?)))
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

/// Returns the byte offset of the character at index `at`; the end of the text is a valid index.
fn byte_offset(text: &Text<'_>, at: i64) -> Result<usize, EvalError> {
    let wanted = usize::try_from(at).map_err(|_| out_of_range(at))?;
    text.offset(wanted).ok_or_else(|| out_of_range(at))
}

fn char_at<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_val(args, 0)?;
    let place = byte_offset(text, int_arg(args, 1)?)?;
    let found = text.as_str()[place..].chars().next();
    Ok(Val::text(found.map_or_else(Str::default, |c| Str::new(c.encode_utf8(&mut [0; 4])))))
}

fn chars_before(text: &Text<'_>, place: usize) -> Val<'static> {
    Val::Int(text.chars_before(place) as i64)
}

pub(crate) fn index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_val(args, 0)?;
    let part = text_arg(args, 1)?;
    let start = if args.len() > 2 { int_arg(args, 2)? } else { 0 };
    if part.is_empty() {
        return Ok(Val::Int(start));
    }
    if start < 0 {
        return Err(out_of_range(start));
    }
    let Ok(from) = byte_offset(text, start) else { return Ok(Val::Int(-1)) };
    Ok(match text.as_str()[from..].find(part) {
        Some(place) => chars_before(text, from + place),
        None => Val::Int(-1),
    })
}

pub(crate) fn last_index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_val(args, 0)?;
    let part = text_arg(args, 1)?;
    let content = text.as_str();
    let length = text.chars() as i64;
    let start = if args.len() > 2 { Some(int_arg(args, 2)?) } else { None };
    if part.is_empty() {
        return Ok(Val::Int(start.unwrap_or(length)));
    }
    let mut end = match start {
        None => content.len(),
        Some(start) if start < 0 => return Err(out_of_range(start)),
        Some(start) if start >= length => return Ok(Val::Int(-1)),
        // The last match may begin at `start`.
        Some(start) => (byte_offset(text, start)? + part.len()).min(content.len()),
    };
    while !content.is_char_boundary(end) {
        end += 1;
    }
    Ok(match content[..end].rfind(part) {
        Some(place) => chars_before(text, place),
        None => Val::Int(-1),
    })
}

fn substring<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_val(args, 0)?;
    let start = int_arg(args, 1)?;
    if args.len() < 3 {
        return Val::made_text(&text.as_str()[byte_offset(text, start)?..]);
    }
    let end = int_arg(args, 2)?;
    if start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::new(message));
    }
    let from = byte_offset(text, start)?;
    Val::made_text(&text.as_str()[from..byte_offset(text, end)?])
}

fn replace<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_arg(args, 0)?;
    let old = text_arg(args, 1)?;
    let new = text_arg(args, 2)?;
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
    let text = text_arg(args, 0)?;
    let separator = text_arg(args, 1)?;
    let limit = if args.len() > 2 { int_arg(args, 2)? } else { -1 };
    if limit == 0 {
        return Ok(Val::list(vec![]));
    }
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    if separator.is_empty() {
        return Val::made_list(split_chars(text, count)?);
    }
    let mut out = vec![];
    for part in text.splitn(count, separator) {
        crate::value::make_items(1)?;
        out.push(Val::made_text(part)?);
    }
    Val::made_list(out)
}

/// Splits a text into characters; the last item holds the rest.
fn split_chars<'a>(text: &str, count: usize) -> Result<Vec<Val<'a>>, EvalError> {
    let mut out = vec![];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        crate::value::make_items(1)?;
        if out.len() + 1 == count {
            out.push(Val::made_text(rest)?);
            break;
        }
        let (one, more) = rest.split_at(c.len_utf8());
        out.push(Val::text(one));
        rest = more;
    }
    Ok(out)
}

fn join<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Some(Val::List(list)) = args.first() else { return Err(EvalError::no_overload()) };
    let separator = if args.len() > 1 { text_arg(args, 1)? } else { "" };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        let item = item?;
        let text = item.as_str().ok_or_else(EvalError::no_overload)?;
        meter::make(text.len() + separator.len())?;
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
        if out.len() > TEXT_BYTES_MAX {
            return Err(crate::runtime_cost::too_long());
        }
    }
    Ok(Val::text(out))
}

pub(crate) fn reverse<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Val::made_text(text_arg(args, 0)?.chars().rev().collect::<String>())
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
        Ok(bytes) => Val::made_bytes(bytes),
        Err(error) => Err(EvalError::new(format!("illegal base64 data: {error}"))),
    }
}
