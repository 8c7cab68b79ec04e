//! What functions do, by name. Arguments are looked at as they are, so that one function serves
//! expressions whose types are known and those whose types show only at evaluation.

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

use crate::value::{EvalError, Evaluated, Opaque, Val};

/// What a function does with its arguments, the target being the first.
pub(crate) type Implementation = for<'a> fn(&[Val<'a>]) -> Evaluated<'a>;

/// The implementation of a function.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    // Names that are functions of two libraries are told apart by their first argument.
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

fn by_text<'a>(
    args: &[Val<'a>],
    text: fn(&[Val<'a>]) -> Evaluated<'a>,
    other: fn(&[Val<'a>]) -> Evaluated<'a>,
) -> Evaluated<'a> {
    if matches!(args.first(), Some(Val::String(_))) { text(args) } else { other(args) }
}

fn by_kind<'a>(
    args: &[Val<'a>],
    quantity: fn(&[Val<'a>]) -> Evaluated<'a>,
    semver: fn(&[Val<'a>]) -> Evaluated<'a>,
) -> Evaluated<'a> {
    match args.first() {
        Some(Val::Opaque(opaque)) if matches!(**opaque, Opaque::Semver(_)) => semver(args),
        _ => quantity(args),
    }
}

/// A library function with one argument that is text.
pub(crate) fn text_arg<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v str, EvalError> {
    args.get(at).and_then(Val::as_str).ok_or_else(EvalError::no_overload)
}

/// A library function with an argument that is an integer.
pub(crate) fn int_arg(args: &[Val<'_>], at: usize) -> Result<i64, EvalError> {
    match args.get(at) {
        Some(Val::Int(number)) => Ok(*number),
        _ => Err(EvalError::no_overload()),
    }
}
