//! The functions of `kubernetes.URL`.

use super::{Implementation, text_arg};
use crate::meter;
use crate::value::{EvalError, EvalResult, Key, Opaque, OwnedMap, Val};
use keelson_meta::Str;
use keelson_meta::go_url::{Url, unescape};
use std::collections::HashMap;

/// Returns the query parameters, each with a list of values. Malformed parameters are skipped.
fn query<'a>(url: &Url) -> EvalResult<'a> {
    meter::read(url.query.len())?;
    let mut found: Vec<(Str, Vec<Val<'a>>)> = vec![];
    let mut places: HashMap<Str, usize> = HashMap::new();
    for pair in url.query.split('#').next().unwrap_or_default().split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescape(name), unescape(value)) else { continue };
        crate::value::make_items(1)?;
        let value = Val::made_text(value)?;
        let name = Str::from(name);
        match places.get(&name) {
            Some(place) => found[*place].1.push(value),
            None => {
                places.insert(name.clone(), found.len());
                found.push((name, vec![value]));
            }
        }
    }
    let mut out = OwnedMap::default();
    for (name, values) in found {
        let key = Val::text(name.clone());
        OwnedMap::make_entry(&key)?;
        out.insert(Key::String(name), key, Val::list(values));
    }
    out.finish()
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "url" => |args| match Url::parse(text_arg(args, 0)?) {
            Ok(url) => {
                meter::make(url.bytes())?;
                Ok(Val::opaque(Opaque::Url(url)))
            }
            Err(why) => {
                let message = format!("URL parse error during conversion from string: {why}");
                Err(EvalError::new(message))
            }
        },
        "isURL" => |args| Ok(Val::Bool(Url::check(text_arg(args, 0)?).is_ok())),
        "getScheme" => |args| with(args, |url| Ok(Val::text(url.scheme.clone()))),
        "getHost" => |args| with(args, |url| Ok(Val::text(url.host.clone()))),
        "getHostname" => |args| with(args, |url| Val::made_text(url.hostname())),
        "getPort" => |args| with(args, |url| Val::made_text(url.port())),
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
