//! cel-go's math functions. Kubernetes does not have them.

use super::Implementation;
use crate::equality::compare;
use crate::value::{EvalError, EvalResult, Val};
use std::cmp::Ordering;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "math.@max" => |args| min_or_max(args, Ordering::Greater),
        "math.@min" => |args| min_or_max(args, Ordering::Less),
        "math.ceil" => |args| double(args, |number| Val::Double(number.ceil())),
        "math.floor" => |args| double(args, |number| Val::Double(number.floor())),
        "math.round" => |args| double(args, |number| Val::Double(number.round())),
        "math.trunc" => |args| double(args, |number| Val::Double(number.trunc())),
        "math.isInf" => |args| double(args, |number| Val::Bool(number.is_infinite())),
        "math.isNaN" => |args| double(args, |number| Val::Bool(number.is_nan())),
        "math.isFinite" => |args| double(args, |number| Val::Bool(number.is_finite())),
        "math.abs" => |args| match args {
            [Val::Int(number)] => match number.checked_abs() {
                Some(number) => Ok(Val::Int(number)),
                None => Err(EvalError::new("integer overflow")),
            },
            [Val::Uint(number)] => Ok(Val::Uint(*number)),
            [Val::Double(number)] => Ok(Val::Double(number.abs())),
            _ => Err(EvalError::no_overload()),
        },
        "math.sign" => |args| match args {
            [Val::Int(number)] => Ok(Val::Int(number.signum())),
            [Val::Uint(number)] => Ok(Val::Uint(u64::from(*number > 0))),
            [Val::Double(number)] if *number == 0.0 || number.is_nan() => Ok(Val::Double(*number)),
            [Val::Double(number)] => Ok(Val::Double(number.signum())),
            _ => Err(EvalError::no_overload()),
        },
        "math.sqrt" => |args| match args {
            [Val::Int(number)] => Ok(Val::Double((*number as f64).sqrt())),
            [Val::Uint(number)] => Ok(Val::Double((*number as f64).sqrt())),
            [Val::Double(number)] => Ok(Val::Double(number.sqrt())),
            _ => Err(EvalError::no_overload()),
        },
        "math.bitAnd" => |args| bits(args, |one, two| one & two),
        "math.bitOr" => |args| bits(args, |one, two| one | two),
        "math.bitXor" => |args| bits(args, |one, two| one ^ two),
        "math.bitNot" => |args| match args {
            [Val::Int(number)] => Ok(Val::Int(!number)),
            [Val::Uint(number)] => Ok(Val::Uint(!number)),
            _ => Err(EvalError::no_overload()),
        },
        "math.bitShiftLeft" => |args| shift(args, "math.bitShiftLeft()", u64::checked_shl),
        "math.bitShiftRight" => |args| shift(args, "math.bitShiftRight()", u64::checked_shr),
        _ => return None,
    })
}

fn double<'a>(args: &[Val<'a>], f: fn(f64) -> Val<'a>) -> EvalResult<'a> {
    match args {
        [Val::Double(number)] => Ok(f(*number)),
        _ => Err(EvalError::no_overload()),
    }
}

fn bits<'a>(args: &[Val<'a>], f: fn(u64, u64) -> u64) -> EvalResult<'a> {
    match args {
        [Val::Int(one), Val::Int(two)] => Ok(Val::Int(f(*one as u64, *two as u64) as i64)),
        [Val::Uint(one), Val::Uint(two)] => Ok(Val::Uint(f(*one, *two))),
        _ => Err(EvalError::no_overload()),
    }
}

fn shift<'a>(args: &[Val<'a>], name: &str, f: fn(u64, u32) -> Option<u64>) -> EvalResult<'a> {
    let Some(Val::Int(places)) = args.get(1) else { return Err(EvalError::no_overload()) };
    if *places < 0 {
        return Err(EvalError::new(format!("{name} negative offset: {places}")));
    }
    let places = u32::try_from(*places).unwrap_or(u32::MAX);
    match args {
        [Val::Int(number), _] => Ok(Val::Int(f(*number as u64, places).unwrap_or(0) as i64)),
        [Val::Uint(number), _] => Ok(Val::Uint(f(*number, places).unwrap_or(0))),
        _ => Err(EvalError::no_overload()),
    }
}

fn min_or_max<'a>(args: &[Val<'a>], order: Ordering) -> EvalResult<'a> {
    let items = match args {
        [Val::List(list)] => list.to_vec()?,
        _ => args.to_vec(),
    };
    let is_number = |val: &Val<'_>| matches!(val, Val::Int(_) | Val::Uint(_) | Val::Double(_));
    let mut best: Option<Val<'a>> = None;
    for item in items {
        if !is_number(&item) {
            return Err(EvalError::no_overload());
        }
        let better = match &best {
            None => true,
            Some(best) => compare(&item, best)? == Some(order),
        };
        if better {
            best = Some(item);
        }
    }
    let name = if order.is_gt() { "math.@max" } else { "math.@min" };
    best.ok_or_else(|| EvalError::new(format!("{name}(list) argument must not be empty")))
}
