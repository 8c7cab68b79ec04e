//! Regular expressions: linear time, whatever the pattern.

use super::{Implementation, int_arg, text_arg};
use crate::value::{EvalError, Evaluated, Val};
use regex::{Regex, RegexBuilder};

/// A compiled pattern takes at most this much.
const PATTERN_BYTES_MAX: usize = 2 << 20;

/// Compiles a pattern; the error is worded as Go's where that is easy to tell.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| {
            format!("error parsing regexp: {}", go_message(pattern, &error.to_string()))
        })
}

/// Go's words for what is wrong with a pattern.
fn go_message(pattern: &str, error: &str) -> String {
    if error.contains("unclosed group") {
        return format!("missing closing ): `{pattern}`");
    }
    if error.contains("unopened group") {
        return format!("unexpected ): `{pattern}`");
    }
    if error.contains("unclosed character class") {
        let from = pattern.find('[').unwrap_or(0);
        return format!("missing closing ]: `{}`", &pattern[from..]);
    }
    if error.contains("repetition operator missing expression") {
        let found = pattern.chars().find(|c| "*+?".contains(*c)).unwrap_or('*');
        return format!("missing argument to repetition operator: `{found}`");
    }
    if error.contains("incomplete escape sequence") {
        return "trailing backslash at end of expression: ``".to_owned();
    }
    let line = error.lines().rev().find_map(|line| line.strip_prefix("error: "));
    format!("{}: `{pattern}`", line.unwrap_or("invalid or unsupported Perl syntax"))
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "matches" => |args| {
            let pattern = compile(text_arg(args, 1)?).map_err(EvalError::new)?;
            Ok(Val::Bool(pattern.is_match(text_arg(args, 0)?)))
        },
        "find" => find,
        "findAll" => find_all,
        _ => return None,
    })
}

fn pattern(args: &[Val<'_>]) -> Result<Regex, EvalError> {
    compile(text_arg(args, 1)?).map_err(|error| EvalError::new(format!("Illegal regex: {error}")))
}

fn find<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    let pattern = pattern(args)?;
    let found = pattern.find(text_arg(args, 0)?);
    Ok(Val::text(found.map_or("", |found| found.as_str())))
}

fn find_all<'a>(args: &[Val<'a>]) -> Evaluated<'a> {
    let limit = if args.len() > 2 { int_arg(args, 2)? } else { -1 };
    let pattern = pattern(args)?;
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = pattern.find_iter(text_arg(args, 0)?).take(count);
    Ok(Val::list(found.map(|found| Val::text(found.as_str())).collect()))
}
