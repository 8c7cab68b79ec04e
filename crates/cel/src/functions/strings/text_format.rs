//! The `format` function of strings: `'%s is %d'.format([name, 5])`.

use super::{TEXT_BYTES_MAX, checked_text, quote};
use crate::functions::convert;
use crate::meter;
use crate::types::Type;
use crate::value::{EvalError, EvalResult, List, Map, Val};
use std::fmt::Write;

/// Maximum number of decimals of a number.
const PRECISION_MAX: usize = 1000;

/// A part of a format string.
pub(crate) enum Clause {
    Text(String),
    Value { verb: char, precision: Option<usize> },
}

/// Parses a format string. Returns cel-go's error message.
pub(crate) fn parse(format: &str) -> Result<Vec<Clause>, String> {
    let mut out = vec![];
    let mut text = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        if !text.is_empty() {
            out.push(Clause::Text(std::mem::take(&mut text)));
        }
        if chars.peek().is_none() {
            return Err("unexpected end of string".to_owned());
        }
        let mut precision = None;
        if chars.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            if chars.peek().is_none() {
                let message = "could not find end of precision specifier";
                return Err(format!("error while parsing precision: {message}"));
            }
            let fault = "error while converting precision to integer";
            let number: usize = digits.parse().map_err(|_| {
                format!(
                    "error while parsing precision: {fault}: strconv.Atoi: parsing \
                     {digits:?}: invalid syntax"
                )
            })?;
            precision = Some(number.min(PRECISION_MAX));
        }
        let verb = chars.next().ok_or("unexpected end of string")?;
        if !"sdfebxXo".contains(verb) {
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            ));
        }
        out.push(Clause::Value { verb, precision });
    }
    if !text.is_empty() {
        out.push(Clause::Text(text));
    }
    Ok(out)
}

/// `format.format(values)`.
pub(crate) fn format<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let [Val::String(format), Val::List(values)] = args else {
        return Err(EvalError::no_overload());
    };
    let mut out = String::new();
    let mut at = 0;
    for clause in parse(format.as_str()).map_err(EvalError::new)? {
        match clause {
            Clause::Text(text) => out.push_str(&text),
            Clause::Value { verb, precision } => {
                let Some(val) = values.get(at) else {
                    return Err(EvalError::new(format!("index {at} out of range")));
                };
                at += 1;
                write_value(&mut out, &val?, verb, precision).map_err(|error| {
                    match error.is_cancelled() {
                        true => error,
                        false => error.within(|why| format!("error during formatting: {why}")),
                    }
                })?;
            }
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(crate::runtime_cost::too_long());
        }
    }
    checked_text(out)
}

fn write_value(
    out: &mut String,
    val: &Val<'_>,
    verb: char,
    precision: Option<usize>,
) -> Result<(), EvalError> {
    match verb {
        's' => write_string(out, val),
        'd' => decimal(out, val),
        'f' => fixed(out, val, precision.unwrap_or(6)),
        // Upstream ignores the precision here.
        'e' => scientific(out, val, 6),
        'b' => binary(out, val),
        'o' => octal(out, val),
        _ => hex(out, val, verb == 'X'),
    }
}

fn type_name(val: &Val<'_>) -> String {
    val.ty().runtime_name().to_owned()
}

const STRING_FAULT: &str = "string clause can only be used on strings, bools, bytes, ints, doubles, \
                            maps, lists, types, durations, and timestamps, was given";

/// Appends a text and counts its memory.
fn push(out: &mut String, text: &str) -> Result<(), EvalError> {
    meter::make(text.len())?;
    out.push_str(text);
    Ok(())
}

fn write_string(out: &mut String, val: &Val<'_>) -> Result<(), EvalError> {
    match val {
        Val::Null => out.push_str("null"),
        Val::Type(ty) => out.push_str(ty.runtime_name()),
        Val::List(list) => return write_list(out, list),
        Val::Map(map) => return write_map(out, map),
        Val::Double(number) => out.push_str(
            &special(*number).map_or_else(|| convert::double_text(*number), str::to_owned),
        ),
        Val::Optional(_) | Val::Opaque(_) => {
            return Err(EvalError::new(format!("{STRING_FAULT} {}", type_name(val))));
        }
        other => push(out, &convert::to_text(other)?)?,
    }
    Ok(())
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        return Some("NaN");
    }
    number.is_infinite().then_some(if number > 0.0 { "Infinity" } else { "-Infinity" })
}

fn write_list(out: &mut String, list: &List<'_>) -> Result<(), EvalError> {
    out.push('[');
    for (at, item) in list.iter().enumerate() {
        meter::item()?;
        if at > 0 {
            out.push_str(", ");
        }
        write_element(out, &item?)?;
    }
    out.push(']');
    Ok(())
}

fn write_map(out: &mut String, map: &Map<'_>) -> Result<(), EvalError> {
    let mut entries = vec![];
    for (key, value) in map.entries()? {
        let is_key = matches!(key, Val::String(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_));
        if !is_key {
            return Err(EvalError::new(format!(
                "no formatting function for map key of type {}",
                type_name(&key)
            )));
        }
        let mut name = String::new();
        let mut text = String::new();
        meter::item()?;
        write_element(&mut name, &key)?;
        write_element(&mut text, &value)?;
        meter::make(name.len() + text.len())?;
        entries.push(format!("{name}:{text}"));
    }
    entries.sort();
    let _ = write!(out, "{{{}}}", entries.join(", "));
    Ok(())
}

/// Writes an element of a list or map: strings in quotes, doubles with six decimals.
fn write_element(out: &mut String, val: &Val<'_>) -> Result<(), EvalError> {
    match val {
        Val::String(text) => push(out, &quote(text.as_str()))?,
        Val::Bytes(bytes) => push(out, &quote(&String::from_utf8_lossy(bytes)))?,
        Val::Double(number) => match special(*number) {
            Some(word) => out.push_str(&quote(word)),
            None => {
                let _ = write!(out, "{number:.6}");
            }
        },
        Val::Timestamp(_) => {
            let _ = write!(out, "timestamp({})", quote(&convert::display(val)));
        }
        Val::Duration(_) => {
            let _ = write!(out, "duration({})", quote(&convert::display(val)));
        }
        other => return write_string(out, other),
    }
    Ok(())
}

fn decimal(out: &mut String, val: &Val<'_>) -> Result<(), EvalError> {
    match val {
        Val::Int(number) => out.push_str(&number.to_string()),
        Val::Uint(number) => out.push_str(&number.to_string()),
        other => {
            return Err(EvalError::new(format!(
                "decimal clause can only be used on integers, was given {}",
                type_name(other)
            )));
        }
    }
    Ok(())
}

/// Groups digits in threes.
fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn fixed(out: &mut String, val: &Val<'_>, precision: usize) -> Result<(), EvalError> {
    let Some(number) = double(val) else {
        return Err(EvalError::new(format!(
            "fixed-point clause can only be used on doubles, was given {}",
            type_name(val)
        )));
    };
    if let Some(word) = special_sign(number) {
        out.push_str(word);
        return Ok(());
    }
    let text = format!("{:.precision$}", number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    if number.is_sign_negative() {
        out.push('-');
    }
    out.push_str(&grouped(whole));
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    Ok(())
}

fn special_sign(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        return Some("NaN");
    }
    number.is_infinite().then_some(if number > 0.0 { "∞" } else { "-∞" })
}

/// Returns a double; `"NaN"`, `"Infinity"` and `"-Infinity"` stand for values without a literal.
fn double(val: &Val<'_>) -> Option<f64> {
    match val {
        Val::Double(number) => Some(*number),
        Val::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn scientific(out: &mut String, val: &Val<'_>, precision: usize) -> Result<(), EvalError> {
    let Some(number) = double(val) else {
        return Err(EvalError::new(format!(
            "scientific clause can only be used on doubles, was given {}",
            type_name(val)
        )));
    };
    if let Some(word) = special_sign(number) {
        out.push_str(word);
        return Ok(());
    }
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    out.push_str(mantissa);
    out.push_str("×10");
    if exponent < 0 {
        out.push('⁻');
    }
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    for digit in format!("{:02}", exponent.abs()).chars() {
        out.extend(digit.to_digit(10).and_then(|digit| RAISED.get(digit as usize)));
    }
    Ok(())
}

fn binary(out: &mut String, val: &Val<'_>) -> Result<(), EvalError> {
    let _ = match val {
        Val::Int(number) if *number < 0 => write!(out, "-{:b}", number.unsigned_abs()),
        Val::Int(number) => write!(out, "{number:b}"),
        Val::Uint(number) => write!(out, "{number:b}"),
        Val::Bool(flag) => write!(out, "{}", u8::from(*flag)),
        other => {
            return Err(EvalError::new(format!(
                "only integers and bools can be formatted as binary, was given {}",
                type_name(other)
            )));
        }
    };
    Ok(())
}

fn octal(out: &mut String, val: &Val<'_>) -> Result<(), EvalError> {
    let _ = match val {
        Val::Int(number) if *number < 0 => write!(out, "-{:o}", number.unsigned_abs()),
        Val::Int(number) => write!(out, "{number:o}"),
        Val::Uint(number) => write!(out, "{number:o}"),
        other => {
            return Err(EvalError::new(format!(
                "octal clause can only be used on integers, was given {}",
                type_name(other)
            )));
        }
    };
    Ok(())
}

fn hex(out: &mut String, val: &Val<'_>, upper: bool) -> Result<(), EvalError> {
    let text = match val {
        Val::Int(number) if *number < 0 => format!("-{:x}", number.unsigned_abs()),
        Val::Int(number) => format!("{number:x}"),
        Val::Uint(number) => format!("{number:x}"),
        Val::String(text) => hex_bytes(text.as_str().as_bytes()),
        Val::Bytes(bytes) => hex_bytes(bytes),
        other => {
            return Err(EvalError::new(format!(
                "only integers, byte buffers, and strings can be formatted as hex, was given {}",
                type_name(other)
            )));
        }
    };
    push(out, &if upper { text.to_uppercase() } else { text })
}

fn hex_bytes(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Returns the error of formatting a value of this type; `None` when the type is valid or `dyn`.
pub(crate) fn type_error(verb: char, ty: &Type) -> Option<String> {
    let name = ty.runtime_name();
    let fits = match (verb, ty) {
        (_, Type::Dyn | Type::Any | Type::Error | Type::Param(_)) => true,
        ('s', Type::Optional(_) | Type::Opaque(_) | Type::Object(_)) => false,
        ('s', _) => true,
        ('d' | 'o', Type::Int | Type::Uint) => true,
        ('f' | 'e', Type::Double) => true,
        ('b', Type::Int | Type::Uint | Type::Bool) => true,
        ('x' | 'X', Type::Int | Type::Uint | Type::String | Type::Bytes) => true,
        _ => false,
    };
    if fits {
        return None;
    }
    let words = match verb {
        's' => STRING_FAULT,
        'd' => "decimal clause can only be used on integers, was given",
        'o' => "octal clause can only be used on integers, was given",
        'f' => "fixed-point clause can only be used on doubles, was given",
        'e' => "scientific clause can only be used on doubles, was given",
        'b' => "only integers and bools can be formatted as binary, was given",
        _ => "only integers, byte buffers, and strings can be formatted as hex, was given",
    };
    Some(format!("{words} {name}"))
}
