//! The functions of `kubernetes.Semver`.

use super::{Implementation, text_arg};
use crate::semver::Semver;
use crate::value::{EvalError, EvalResult, Opaque, Val};
use std::cmp::Ordering;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "semver" => |args| match parse(args)? {
            Ok(version) => Ok(Val::opaque(Opaque::Semver(version))),
            Err(message) => Err(EvalError::new(message)),
        },
        "isSemver" => |args| Ok(Val::Bool(parse(args)?.is_ok())),
        "major" => |args| with(args, 0, |version| version.major).map(|n| Val::Int(n as i64)),
        "minor" => |args| with(args, 0, |version| version.minor).map(|n| Val::Int(n as i64)),
        "patch" => |args| with(args, 0, |version| version.patch).map(|n| Val::Int(n as i64)),
        _ => return None,
    })
}

fn parse(args: &[Val<'_>]) -> Result<Result<Semver, String>, EvalError> {
    let text = text_arg(args, 0)?;
    match args.get(1) {
        None | Some(Val::Bool(false)) => Ok(Semver::parse(text)),
        Some(Val::Bool(true)) => Ok(Semver::parse_tolerant(text)),
        _ => Err(EvalError::no_overload()),
    }
}

fn with<T>(args: &[Val<'_>], at: usize, f: impl Fn(&Semver) -> T) -> Result<T, EvalError> {
    match args.get(at) {
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Semver(version) => Ok(f(version)),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn order(args: &[Val<'_>]) -> Result<Ordering, EvalError> {
    with(args, 0, |one| with(args, 1, |two| one.cmp(two)))?
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
