//! `+`, `-`, `*`, `/`, `%` and `size`.

use super::Implementation;
use crate::equality::{equal, item_key};
use crate::meter;
use crate::types::ListKind;
use crate::value::{ConcatList, EvalError, EvalResult, List, Map, Val};
use keelson_meta::Value;
use keelson_meta::time::{GoDuration, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => negate,
        "size" => size,
        "cel.@mapInsert" => map_insert,
        _ => return None,
    })
}

/// Returns the error for arguments without an overload. It names the function when no overload
/// takes the first argument.
fn no_overload_for(args: &[Val<'_>], function: &str) -> EvalError {
    let known = match args.first() {
        Some(Val::String(_) | Val::Timestamp(_) | Val::Duration(_)) => true,
        Some(Val::Int(_) | Val::Uint(_)) => true,
        Some(Val::Double(_)) => function != "_%_",
        Some(Val::Bytes(_) | Val::List(_)) => function == "_+_",
        _ => false,
    };
    if known { EvalError::no_overload() } else { EvalError::no_overload_of(function) }
}

fn int_result<'a>(number: Option<i64>) -> EvalResult<'a> {
    number.map(Val::Int).ok_or_else(|| EvalError::new("integer overflow"))
}

fn uint_result<'a>(number: Option<u64>) -> EvalResult<'a> {
    number.map(Val::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow"))
}

fn duration_result<'a>(nanos: Option<i64>) -> EvalResult<'a> {
    nanos
        .map(|nanos| Val::Duration(GoDuration(nanos)))
        .ok_or_else(|| EvalError::new("integer overflow"))
}

fn add<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(left), Val::Int(right)] => int_result(left.checked_add(*right)),
        [Val::Uint(left), Val::Uint(right)] => uint_result(left.checked_add(*right)),
        [Val::Double(left), Val::Double(right)] => Ok(Val::Double(left + right)),
        [Val::String(left), Val::String(right)] => {
            let left = left.as_str();
            let right = right.as_str();
            meter::make(left.len() + right.len())?;
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(left);
            text.push_str(right);
            Ok(Val::text(text))
        }
        [Val::Bytes(left), Val::Bytes(right)] => {
            meter::make(left.len() + right.len())?;
            Ok(Val::Bytes([&**left, &**right].concat().into()))
        }
        [Val::List(left), Val::List(right)] => add_lists(left, right),
        [Val::Duration(left), Val::Duration(right)] => duration_result(left.0.checked_add(right.0)),
        [Val::Timestamp(time), Val::Duration(span)]
        | [Val::Duration(span), Val::Timestamp(time)] => {
            super::time::in_range(time.plus(*span)).map(Val::Timestamp)
        }
        _ => Err(no_overload_for(args, "_+_")),
    }
}

/// Lists of list type `set` and `map` are merged, all others are concatenated.
fn add_lists<'a>(left: &List<'a>, right: &List<'a>) -> EvalResult<'a> {
    match left {
        List::Json { kind: ListKind::Set, .. } => {
            let mut out = left.to_vec()?;
            for item in right.iter() {
                let item = item?;
                if !contains(&out, &item)? {
                    crate::value::make_items(1)?;
                    out.push(item);
                }
            }
            Val::made_list(out)
        }
        List::Json { kind: ListKind::Map(keys), items, .. } => add_keyed(left, right, items, keys),
        _ => joined(left, right),
    }
}

fn joined<'a>(left: &List<'a>, right: &List<'a>) -> EvalResult<'a> {
    meter::make(size_of::<ConcatList<'_>>())?;
    Ok(Val::List(left.clone().join(right.clone())))
}

fn contains(items: &[Val<'_>], item: &Val<'_>) -> Result<bool, EvalError> {
    for other in items {
        meter::work(meter::ITEM_WORK / 4)?;
        if equal(other, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn add_keyed<'a>(
    left: &List<'a>,
    right: &List<'a>,
    items: &[Value],
    keys: &[keelson_meta::Str],
) -> EvalResult<'a> {
    let List::Json { items: added, .. } = right else {
        return joined(left, right);
    };
    let mut places: HashMap<String, usize> =
        items.iter().enumerate().map(|(at, item)| (item_key(item, keys), at)).collect();
    let mut out = left.to_vec()?;
    for (item, raw) in right.iter().zip(added.iter()) {
        meter::item()?;
        let key = item_key(raw, keys);
        match places.get(&key) {
            Some(place) => out[*place] = item?,
            None => {
                places.insert(key, out.len());
                crate::value::make_items(1)?;
                out.push(item?);
            }
        }
    }
    Val::made_list(out)
}

fn subtract<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(left), Val::Int(right)] => int_result(left.checked_sub(*right)),
        [Val::Uint(left), Val::Uint(right)] => uint_result(left.checked_sub(*right)),
        [Val::Double(left), Val::Double(right)] => Ok(Val::Double(left - right)),
        [Val::Duration(left), Val::Duration(right)] => duration_result(left.0.checked_sub(right.0)),
        [Val::Timestamp(time), Val::Duration(span)] => {
            let back = span.0.checked_neg().ok_or_else(|| EvalError::new("integer overflow"))?;
            super::time::in_range(time.plus(GoDuration(back))).map(Val::Timestamp)
        }
        [Val::Timestamp(left), Val::Timestamp(right)] => duration_result(between(*left, *right)),
        _ => Err(no_overload_for(args, "_-_")),
    }
}

fn between(left: Timestamp, right: Timestamp) -> Option<i64> {
    let seconds = i128::from(left.seconds) - i128::from(right.seconds);
    let nanos = seconds * 1_000_000_000 + i128::from(left.nanos) - i128::from(right.nanos);
    i64::try_from(nanos).ok()
}

fn multiply<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(left), Val::Int(right)] => int_result(left.checked_mul(*right)),
        [Val::Uint(left), Val::Uint(right)] => uint_result(left.checked_mul(*right)),
        [Val::Double(left), Val::Double(right)] => Ok(Val::Double(left * right)),
        _ => Err(no_overload_for(args, "_*_")),
    }
}

fn divide<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => {
            Err(EvalError::new("division by zero"))
        }
        [Val::Int(left), Val::Int(right)] => int_result(left.checked_div(*right)),
        [Val::Uint(left), Val::Uint(right)] => Ok(Val::Uint(left / right)),
        [Val::Double(left), Val::Double(right)] => Ok(Val::Double(left / right)),
        _ => Err(no_overload_for(args, "_/_")),
    }
}

fn modulo<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => {
            Err(EvalError::new("modulus by zero"))
        }
        [Val::Int(left), Val::Int(right)] => int_result(left.checked_rem(*right)),
        [Val::Uint(left), Val::Uint(right)] => Ok(Val::Uint(left % right)),
        _ => Err(no_overload_for(args, "_%_")),
    }
}

fn negate<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [Val::Int(number)] => int_result(number.checked_neg()),
        [Val::Double(number)] => Ok(Val::Double(-number)),
        _ => Err(no_overload_for(args, "-_")),
    }
}

fn size<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    match args {
        [val @ (Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_))] => {
            Ok(Val::Int(i64::try_from(val.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(EvalError::no_overload_of("size")),
    }
}

/// Adds an entry to the accumulator of `transformMap`. The evaluator does this in place.
fn map_insert<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let Some(Val::Map(map)) = args.first() else { return Err(EvalError::no_overload()) };
    let mut out = super::maps::copy(map)?;
    match args {
        [_, Val::Map(added)] => super::maps::insert_all(&mut out, added)?,
        [_, key, value] => super::maps::insert(&mut out, key.clone(), value.clone())?,
        _ => return Err(EvalError::no_overload()),
    }
    Ok(Val::Map(Map::Owned(Arc::new(out))))
}
