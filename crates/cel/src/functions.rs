//! The implementations of functions, by name. They dispatch on the values of their arguments,
//! because argument types may be `dyn` until evaluation.

pub(crate) mod arithmetic;
mod authorizer;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod maps;
pub(crate) mod math;
pub(crate) mod network;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::value::{EvalError, EvalResult, Opaque, Text, Val};

/// Returns the implementation of a function.
pub(crate) type Implementation = for<'a> fn(&[Val<'a>]) -> EvalResult<'a>;

/// Returns the implementation of a function.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    // Two libraries share these names; the first argument tells which one is called.
    let shared: Option<Implementation> = match name {
        "indexOf" => Some(|args| by_text(args, strings::index_of, lists::index_of)),
        "lastIndexOf" => Some(|args| by_text(args, strings::last_index_of, lists::last_index_of)),
        "reverse" => Some(|args| by_text(args, strings::reverse, lists::reverse)),
        "ip" => Some(|args| by_text(args, network::ip, network::cidr_ip)),
        "isLessThan" => Some(|args| by_kind(args, quantity::is_less, semver::is_less)),
        "isGreaterThan" => Some(|args| by_kind(args, quantity::is_greater, semver::is_greater)),
        "compareTo" => Some(|args| by_kind(args, quantity::compare_to, semver::compare_to)),
        _ => None,
    };
    shared
        .or_else(|| arithmetic::function(name))
        .or_else(|| convert::function(name))
        .or_else(|| time::function(name))
        .or_else(|| strings::function(name))
        .or_else(|| lists::function(name))
        .or_else(|| optional::function(name))
        .or_else(|| regex::function(name))
        .or_else(|| url::function(name))
        .or_else(|| network::function(name))
        .or_else(|| quantity::function(name))
        .or_else(|| semver::function(name))
        .or_else(|| format::function(name))
        .or_else(|| math::function(name))
        .or_else(|| authorizer::function(name))
}

/// Functions that take the same time for a long text as for a short one.
pub(crate) const READS_NO_TEXTS: [&str; 13] = [
    "charAt",
    "dyn",
    "first",
    "last",
    "lists.range",
    "optional.of",
    "optional.ofNonZeroValue",
    "hasValue",
    "size",
    "substring",
    "type",
    "value",
    "_+_",
];

fn by_text<'a>(
    args: &[Val<'a>],
    text: fn(&[Val<'a>]) -> EvalResult<'a>,
    other: fn(&[Val<'a>]) -> EvalResult<'a>,
) -> EvalResult<'a> {
    if matches!(args.first(), Some(Val::String(_))) { text(args) } else { other(args) }
}

fn by_kind<'a>(
    args: &[Val<'a>],
    quantity: fn(&[Val<'a>]) -> EvalResult<'a>,
    semver: fn(&[Val<'a>]) -> EvalResult<'a>,
) -> EvalResult<'a> {
    match args.first() {
        Some(Val::Opaque(opaque)) if matches!(**opaque, Opaque::Semver(_)) => semver(args),
        _ => quantity(args),
    }
}

/// Returns a string argument with what is known about it, or the error that no overload matches.
pub(crate) fn text_val<'v, 'a>(args: &'v [Val<'a>], at: usize) -> Result<&'v Text<'a>, EvalError> {
    match args.get(at) {
        Some(Val::String(text)) => Ok(text),
        _ => Err(EvalError::no_overload()),
    }
}

/// Returns a string argument, or the error that no overload matches.
pub(crate) fn text_arg<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v str, EvalError> {
    args.get(at).and_then(Val::as_str).ok_or_else(EvalError::no_overload)
}

/// Returns an integer argument, or the error that no overload matches.
pub(crate) fn int_arg(args: &[Val<'_>], at: usize) -> Result<i64, EvalError> {
    match args.get(at) {
        Some(Val::Int(number)) => Ok(*number),
        _ => Err(EvalError::no_overload()),
    }
}
