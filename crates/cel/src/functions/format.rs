//! The functions of `kubernetes.NamedFormat`.

use super::{Implementation, text_arg};
use crate::format::named;
use crate::value::{EvalError, EvalResult, Opaque, Val};

macro_rules! constant {
    ($name:literal) => {
        |_| match named($name) {
            Some(format) => Ok(Val::opaque(Opaque::Format(format))),
            None => Err(EvalError::no_overload()),
        }
    };
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "format.named" => |args| {
            let found = named(text_arg(args, 0)?);
            Ok(match found {
                Some(format) => Val::some(Val::opaque(Opaque::Format(format))),
                None => Val::Optional(None),
            })
        },
        "validate" => validate,
        "format.dns1123Label" => constant!("dns1123Label"),
        "format.dns1123Subdomain" => constant!("dns1123Subdomain"),
        "format.dns1035Label" => constant!("dns1035Label"),
        "format.qualifiedName" => constant!("qualifiedName"),
        "format.dns1123LabelPrefix" => constant!("dns1123LabelPrefix"),
        "format.dns1123SubdomainPrefix" => constant!("dns1123SubdomainPrefix"),
        "format.dns1035LabelPrefix" => constant!("dns1035LabelPrefix"),
        "format.labelValue" => constant!("labelValue"),
        "format.uri" => constant!("uri"),
        "format.uuid" => constant!("uuid"),
        "format.byte" => constant!("byte"),
        "format.date" => constant!("date"),
        "format.datetime" => constant!("datetime"),
        _ => return None,
    })
}

fn validate<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let text = text_arg(args, 1)?;
    let Some(Val::Opaque(opaque)) = args.first() else { return Err(EvalError::no_overload()) };
    let Opaque::Format(format) = &**opaque else { return Err(EvalError::no_overload()) };
    let errors = (format.validate)(text);
    if errors.is_empty() {
        return Ok(Val::Optional(None));
    }
    Ok(Val::some(Val::list(errors.into_iter().map(Val::text).collect())))
}
