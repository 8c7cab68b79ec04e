//! The functions of optional values.

use super::Implementation;
use crate::value::{EvalError, EvalResult, Val};

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "optional.of" => |args| match args {
            [val] => Val::made_some(val.clone()),
            _ => Err(EvalError::no_overload()),
        },
        "optional.ofNonZeroValue" => |args| match args {
            [val] if is_zero(val) => Ok(Val::Optional(None)),
            [val] => Val::made_some(val.clone()),
            _ => Err(EvalError::no_overload()),
        },
        "optional.none" => |_| Ok(Val::Optional(None)),
        "value" => |args| match args {
            [Val::Optional(Some(val))] => Ok((**val).clone()),
            [Val::Optional(None)] => Err(EvalError::new("optional.none() dereference")),
            _ => Err(EvalError::no_overload()),
        },
        "hasValue" => |args| match args {
            [Val::Optional(val)] => Ok(Val::Bool(val.is_some())),
            _ => Err(EvalError::no_overload()),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        _ => return None,
    })
}

fn unwrap<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let [Val::List(list)] = args else { return Err(EvalError::no_overload()) };
    let mut out = vec![];
    for item in list.iter() {
        crate::meter::item()?;
        match item? {
            Val::Optional(Some(val)) => {
                crate::value::make_items(1)?;
                out.push((*val).clone());
            }
            Val::Optional(None) => {}
            _ => return Err(EvalError::no_overload()),
        }
    }
    Val::made_list(out)
}

/// Whether a value is the zero value of its type.
fn is_zero(val: &Val<'_>) -> bool {
    match val {
        Val::Null | Val::Optional(None) => true,
        Val::Bool(flag) => !flag,
        Val::Int(number) => *number == 0,
        Val::Uint(number) => *number == 0,
        Val::Double(number) => *number == 0.0,
        Val::String(text) => text.as_str().is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.is_empty(),
        Val::Map(map) => map.is_empty(),
        Val::Duration(span) => span.0 == 0,
        Val::Optional(Some(val)) => is_zero(val),
        Val::Timestamp(_) | Val::Type(_) | Val::Opaque(_) => false,
    }
}
