//! The functions of `kubernetes.URL`.

use super::{Implementation, text_arg};
use crate::url::{Url, unescape};
use crate::value::{EvalError, EvalResult, Key, Map, Opaque, OwnedMap, Val};
use keelson_meta::Str;
use std::sync::Arc;

/// Returns the query parameters, each with a list of values. Malformed parameters are skipped.
fn query<'a>(url: &Url) -> EvalResult<'a> {
    let mut found: Vec<(String, Vec<Val<'a>>)> = vec![];
    for pair in url.query.split('#').next().unwrap_or_default().split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescape(name), unescape(value)) else { continue };
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(Val::text(value)),
            None => found.push((name, vec![Val::text(value)])),
        }
    }
    let mut out = OwnedMap::default();
    for (name, values) in found {
        let name: Str = name.into();
        out.insert(Key::String(name.clone()), Val::text(name), Val::list(values));
    }
    Ok(Val::Map(Map::Owned(Arc::new(out))))
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "url" => |args| match Url::parse(text_arg(args, 0)?) {
            Ok(url) => Ok(Val::opaque(Opaque::Url(url))),
            Err(why) => {
                let message = format!("URL parse error during conversion from string: {why}");
                Err(EvalError::new(message))
            }
        },
        "isURL" => |args| Ok(Val::Bool(Url::parse(text_arg(args, 0)?).is_ok())),
        "getScheme" => |args| with(args, |url| Ok(Val::text(url.scheme.clone()))),
        "getHost" => |args| with(args, |url| Ok(Val::text(url.host.clone()))),
        "getHostname" => |args| with(args, |url| Ok(Val::text(url.hostname()))),
        "getPort" => |args| with(args, |url| Ok(Val::text(url.port()))),
        "getEscapedPath" => |args| with(args, |url| Ok(Val::text(url.escaped_path.clone()))),
        "getQuery" => |args| with(args, query),
        _ => return None,
    })
}

fn with<'a>(args: &[Val<'a>], f: fn(&Url) -> EvalResult<'a>) -> EvalResult<'a> {
    match args.first() {
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Url(url) => f(url),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}
