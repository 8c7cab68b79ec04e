//! `+`, `-`, `*`, `/`, `%` and `size`.

use super::Implementation;
use crate::equality::{equal, item_key};
use crate::types::ListKind;
use crate::value::{EvalError, Evaluated, List, Val};
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

/// The error for arguments that do not fit: it names the function when the first one never fits.
fn misfit(args: &[Val<'_>], function: &str) -> EvalError {
    let known = match args.first() {
        Some(Val::String(_) | Val::Timestamp(_) | Val::Duration(_)) => true,
        Some(Val::Int(_) | Val::Uint(_)) => true,
        Some(Val::Double(_)) => function != "_%_",
        Some(Val::Bytes(_) | Val::List(_)) => function == "_+_",
        _ => false,
    };
    if known { EvalError::no_overload() } else { EvalError::no_overload_of(function) }
}

fn int_result<'a>(number: Option<i64>) -> Evaluated<'a> {
    number.map(Val::Int).ok_or_else(|| EvalError::new("integer overflow"))
}

fn uint_result<'a>(number: Option<u64>) -> Evaluated<'a> {
    number.map(Val::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow"))
}

fn duration_result<'a>(nanos: Option<i64>) -> Evaluated<'a> {
    nanos
        .map(|nanos| Val::Duration(GoDuration(nanos)))
        .ok_or_else(|| EvalError::new("integer overflow"))
}

fn add<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [Val::Int(one), Val::Int(two)] => int_result(one.checked_add(*two)),
        [Val::Uint(one), Val::Uint(two)] => uint_result(one.checked_add(*two)),
        [Val::Double(one), Val::Double(two)] => Ok(Val::Double(one + two)),
        [Val::String(one), Val::String(two)] => {
            let (one, two) = (one.as_str(), two.as_str());
            let mut text = String::with_capacity(one.len() + two.len());
            text.push_str(one);
            text.push_str(two);
            Ok(Val::text(text))
        }
        [Val::Bytes(one), Val::Bytes(two)] => Ok(Val::Bytes([&**one, &**two].concat().into())),
        [Val::List(one), Val::List(two)] => add_lists(one, two).map(Val::List),
        [Val::Duration(one), Val::Duration(two)] => duration_result(one.0.checked_add(two.0)),
        [Val::Timestamp(time), Val::Duration(span)]
        | [Val::Duration(span), Val::Timestamp(time)] => {
            super::time::in_range(time.plus(*span)).map(Val::Timestamp)
        }
        _ => Err(misfit(args, "_+_")),
    }
}

/// Lists of type `set` and `map` of an object are merged, all others are put behind each other.
fn add_lists<'a>(one: &List<'a>, two: &List<'a>) -> Result<List<'a>, EvalError> {
    match one {
        List::Json { kind: ListKind::Set, .. } => {
            let mut out = one.to_vec()?;
            for item in two.iter() {
                let item = item?;
                if !contains(&out, &item)? {
                    out.push(item);
                }
            }
            Ok(List::Owned(Arc::new(out)))
        }
        List::Json { kind: ListKind::Map(keys), items, .. } => add_keyed(one, two, items, keys),
        _ => Ok(one.clone().join(two.clone())),
    }
}

fn contains(items: &[Val<'_>], item: &Val<'_>) -> Result<bool, EvalError> {
    for other in items {
        if equal(other, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn add_keyed<'a>(
    one: &List<'a>,
    two: &List<'a>,
    items: &[Value],
    keys: &[keelson_meta::Str],
) -> Result<List<'a>, EvalError> {
    let List::Json { items: added, .. } = two else { return Ok(one.clone().join(two.clone())) };
    let mut places: HashMap<String, usize> =
        items.iter().enumerate().map(|(at, item)| (item_key(item, keys), at)).collect();
    let mut out = one.to_vec()?;
    for (item, raw) in two.iter().zip(added.iter()) {
        let key = item_key(raw, keys);
        match places.get(&key) {
            Some(place) => out[*place] = item?,
            None => {
                places.insert(key, out.len());
                out.push(item?);
            }
        }
    }
    Ok(List::Owned(Arc::new(out)))
}

fn subtract<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [Val::Int(one), Val::Int(two)] => int_result(one.checked_sub(*two)),
        [Val::Uint(one), Val::Uint(two)] => uint_result(one.checked_sub(*two)),
        [Val::Double(one), Val::Double(two)] => Ok(Val::Double(one - two)),
        [Val::Duration(one), Val::Duration(two)] => duration_result(one.0.checked_sub(two.0)),
        [Val::Timestamp(time), Val::Duration(span)] => {
            let back = span.0.checked_neg().ok_or_else(|| EvalError::new("integer overflow"))?;
            super::time::in_range(time.plus(GoDuration(back))).map(Val::Timestamp)
        }
        [Val::Timestamp(one), Val::Timestamp(two)] => duration_result(between(*one, *two)),
        _ => Err(misfit(args, "_-_")),
    }
}

fn between(one: Timestamp, two: Timestamp) -> Option<i64> {
    let seconds = i128::from(one.seconds) - i128::from(two.seconds);
    let nanos = seconds * 1_000_000_000 + i128::from(one.nanos) - i128::from(two.nanos);
    i64::try_from(nanos).ok()
}

fn multiply<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [Val::Int(one), Val::Int(two)] => int_result(one.checked_mul(*two)),
        [Val::Uint(one), Val::Uint(two)] => uint_result(one.checked_mul(*two)),
        [Val::Double(one), Val::Double(two)] => Ok(Val::Double(one * two)),
        _ => Err(misfit(args, "_*_")),
    }
}

fn divide<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => {
            Err(EvalError::new("division by zero"))
        }
        [Val::Int(one), Val::Int(two)] => int_result(one.checked_div(*two)),
        [Val::Uint(one), Val::Uint(two)] => Ok(Val::Uint(one / two)),
        [Val::Double(one), Val::Double(two)] => Ok(Val::Double(one / two)),
        _ => Err(misfit(args, "_/_")),
    }
}

fn modulo<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => {
            Err(EvalError::new("modulus by zero"))
        }
        [Val::Int(one), Val::Int(two)] => int_result(one.checked_rem(*two)),
        [Val::Uint(one), Val::Uint(two)] => Ok(Val::Uint(one % two)),
        _ => Err(misfit(args, "_%_")),
    }
}

fn negate<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [Val::Int(number)] => int_result(number.checked_neg()),
        [Val::Double(number)] => Ok(Val::Double(-number)),
        _ => Err(misfit(args, "-_")),
    }
}

fn size<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    match args {
        [val @ (Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_))] => {
            Ok(Val::Int(i64::try_from(val.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(EvalError::no_overload_of("size")),
    }
}

/// Adds to the map in which `transformMap` gathers its result.
fn map_insert<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    use crate::value::{Map, OwnedMap};
    let Some(Val::Map(map)) = args.first() else { return Err(EvalError::no_overload()) };
    let mut out = match map {
        Map::Owned(map) => (**map).clone(),
        other => {
            let mut copy = OwnedMap::default();
            for (key, value) in other.entries()? {
                super::maps::insert(&mut copy, key, value)?;
            }
            copy
        }
    };
    match args {
        [_, Val::Map(added)] => {
            for (key, value) in added.entries()? {
                super::maps::insert(&mut out, key, value)?;
            }
        }
        [_, key, value] => super::maps::insert(&mut out, key.clone(), value.clone())?,
        _ => return Err(EvalError::no_overload()),
    }
    Ok(Val::Map(Map::Owned(Arc::new(out))))
}
