//! Type conversions.

use super::Implementation;
use crate::value::{EvalError, EvalResult, Opaque, Val};
use keelson_meta::time::{GoDuration, Timestamp};
use std::sync::Arc;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "dyn" => |args| args.first().cloned().ok_or_else(EvalError::no_overload),
        "type" => |args| match args {
            [val] => Ok(Val::Type(Arc::new(val.ty()))),
            _ => Err(EvalError::no_overload()),
        },
        "bool" => to_bool,
        "bytes" => to_bytes,
        "double" => to_double,
        "duration" => to_duration,
        "int" => to_int,
        "string" => |args| match args {
            [Val::String(text)] => Ok(Val::String(text.clone())),
            [val] => to_text(val).and_then(Val::made_text),
            _ => Err(EvalError::no_overload()),
        },
        "timestamp" => to_timestamp,
        "uint" => to_uint,
        _ => return None,
    })
}

fn conversion_error(to: &str) -> EvalError {
    EvalError::new(format!("type conversion error from 'string' to '{to}'"))
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn unsigned_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

fn to_bool<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Bool(flag)] => Ok(Val::Bool(*flag)),
        [Val::String(text)] => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Val::Bool(false)),
            _ => Err(conversion_error("bool")),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn to_bytes<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Bytes(bytes)] => Ok(Val::Bytes(bytes.clone())),
        [Val::String(text)] => Val::made_bytes(text.as_str().into()),
        _ => Err(EvalError::no_overload()),
    }
}

fn to_double<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Double(number)] => Ok(Val::Double(*number)),
        [Val::Int(number)] => Ok(Val::Double(*number as f64)),
        [Val::Uint(number)] => Ok(Val::Double(*number as f64)),
        [Val::String(text)] => {
            text.as_str().parse().map(Val::Double).map_err(|_| conversion_error("double"))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn to_int<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    /// 2^63, the smallest double that is out of range.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match args {
        [Val::Int(number)] => Ok(Val::Int(*number)),
        [Val::Uint(number)] => i64::try_from(*number).map(Val::Int).map_err(|_| overflow()),
        [Val::Double(number)] if number.abs() < LIMIT => Ok(Val::Int(*number as i64)),
        [Val::Double(_)] => Err(overflow()),
        [Val::String(text)] => {
            text.as_str().parse().map(Val::Int).map_err(|_| conversion_error("int"))
        }
        [Val::Timestamp(time)] => Ok(Val::Int(time.seconds)),
        [Val::Duration(span)] => Ok(Val::Int(span.0)),
        _ => Err(EvalError::no_overload()),
    }
}

fn to_uint<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    const LIMIT: f64 = 18_446_744_073_709_551_616.0;
    match args {
        [Val::Uint(number)] => Ok(Val::Uint(*number)),
        [Val::Int(number)] => {
            u64::try_from(*number).map(Val::Uint).map_err(|_| unsigned_overflow())
        }
        [Val::Double(number)] if (0.0..LIMIT).contains(number) => Ok(Val::Uint(*number as u64)),
        [Val::Double(_)] => Err(unsigned_overflow()),
        [Val::String(text)] => {
            text.as_str().parse().map(Val::Uint).map_err(|_| conversion_error("uint"))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn to_duration<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Duration(span)] => Ok(Val::Duration(*span)),
        [Val::Int(nanos)] => Ok(Val::Duration(GoDuration(*nanos))),
        [Val::String(text)] => GoDuration::parse(text.as_str())
            .map(Val::Duration)
            .map_err(|_| conversion_error("google.protobuf.Duration")),
        _ => Err(EvalError::no_overload()),
    }
}

fn to_timestamp<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Timestamp(time)] => Ok(Val::Timestamp(*time)),
        [Val::Int(seconds)] => {
            super::time::in_range(Timestamp::new(*seconds, 0)).map(Val::Timestamp)
        }
        [Val::String(text)] => Timestamp::parse(text.as_str())
            .map_err(|_| conversion_error("google.protobuf.Timestamp"))
            .and_then(super::time::in_range)
            .map(Val::Timestamp),
        _ => Err(EvalError::no_overload()),
    }
}

/// Converts a value as `string(value)` does.
pub(crate) fn to_text(val: &Val<'_>) -> Result<String, EvalError> {
    Ok(match val {
        Val::String(text) => text.as_str().to_owned(),
        Val::Bool(flag) => flag.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => double_text(*number),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                let message = "invalid UTF-8 in bytes, cannot convert to string";
                return Err(EvalError::new(message));
            }
        },
        Val::Duration(span) => duration_text(*span),
        Val::Timestamp(time) => super::time::text(*time),
        Val::Opaque(opaque) => match &**opaque {
            Opaque::Ip(ip) => ip.to_string(),
            Opaque::Cidr(cidr) => super::network::cidr_text(cidr),
            _ => return Err(EvalError::no_overload()),
        },
        _ => return Err(EvalError::no_overload()),
    })
}

/// Formats a duration in seconds with as many decimals as needed.
fn duration_text(span: GoDuration) -> String {
    let seconds = span.0 as f64 / 1e9;
    format!("{}s", plain_double(seconds))
}

/// Doubles from 10^6 on are printed with an exponent.
const EXPONENT_MIN: i32 = 6;

/// Formats a double as Go's `%g` does with the fewest digits.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..EXPONENT_MIN).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    plain_double(number)
}

/// Formats a double without an exponent.
pub(crate) fn plain_double(number: f64) -> String {
    format!("{number}")
}

/// Formats a value for an error message.
pub(crate) fn display(val: &Val<'_>) -> String {
    match val {
        Val::Null => "null".to_owned(),
        Val::Type(ty) => ty.runtime_name().to_owned(),
        other => to_text(other).unwrap_or_else(|_| other.ty().runtime_name().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_in_go() {
        let check = |number: f64, expected: &str| assert_eq!(double_text(number), expected);
        check(1.0, "1");
        check(1e6, "1e+06");
        check(123_456.0, "123456");
        check(1_234_567.5, "1.2345675e+06");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(1.5e-7, "1.5e-07");
        check(-2.5, "-2.5");
        check(f64::INFINITY, "+Inf");
    }
}
