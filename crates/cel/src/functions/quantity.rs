//! The functions of `kubernetes.Quantity`.

use super::{Implementation, text_arg};
use crate::value::{EvalError, EvalResult, Opaque, Val};
use keelson_meta::Quantity;
use keelson_meta::quantity::Format;
use std::cmp::Ordering;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "quantity" => |args| {
            let parsed: Result<Quantity, _> = text_arg(args, 0)?.parse();
            match parsed {
                Ok(quantity) => Ok(Val::opaque(Opaque::Quantity(quantity))),
                Err(error) => Err(EvalError::new(error.to_string())),
            }
        },
        "isQuantity" => |args| Ok(Val::Bool(text_arg(args, 0)?.parse::<Quantity>().is_ok())),
        "sign" => |args| with(args, |quantity| Ok(Val::Int(quantity.sign().into()))),
        "asInteger" => |args| {
            with(args, |quantity| match quantity.as_i64() {
                Some(number) => Ok(Val::Int(number)),
                None => Err(EvalError::new("cannot convert value to integer")),
            })
        },
        "isInteger" => |args| with(args, |quantity| Ok(Val::Bool(quantity.as_i64().is_some()))),
        "asApproximateFloat" => |args| with(args, |quantity| Ok(Val::Double(quantity.as_f64()))),
        "add" => |args| {
            let (one, two) = pair(args)?;
            Ok(Val::opaque(Opaque::Quantity(one.add(&two))))
        },
        "sub" => |args| {
            let (one, two) = pair(args)?;
            Ok(Val::opaque(Opaque::Quantity(one.sub(&two))))
        },
        _ => return None,
    })
}

fn with<'a>(args: &[Val<'a>], use_it: impl Fn(&Quantity) -> EvalResult<'a>) -> EvalResult<'a> {
    match args.first() {
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Quantity(quantity) => use_it(quantity),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}

/// Returns two quantities; the second argument may be an integer.
fn pair(args: &[Val<'_>]) -> Result<(Quantity, Quantity), EvalError> {
    let one = |val: &Val<'_>| match val {
        Val::Opaque(opaque) => match &**opaque {
            Opaque::Quantity(quantity) => Ok(quantity.clone()),
            _ => Err(EvalError::no_overload()),
        },
        Val::Int(number) => Ok(Quantity::new(*number, Format::DecimalSi)),
        _ => Err(EvalError::no_overload()),
    };
    match args {
        [first @ Val::Opaque(_), second] => Ok((one(first)?, one(second)?)),
        _ => Err(EvalError::no_overload()),
    }
}

fn order(args: &[Val<'_>]) -> Result<Ordering, EvalError> {
    let (one, two) = pair(args)?;
    Ok(one.cmp(&two))
}

pub(crate) fn is_less<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Ok(Val::Bool(order(args)?.is_lt()))
}

pub(crate) fn is_greater<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Ok(Val::Bool(order(args)?.is_gt()))
}

pub(crate) fn compare_to<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    Ok(Val::Int(order(args)? as i64))
}
