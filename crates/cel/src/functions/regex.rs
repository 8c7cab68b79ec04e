//! Regular expressions. Matching takes linear time for every pattern.

use super::{Implementation, int_arg, text_arg};
use crate::value::{EvalError, EvalResult, Val};
use keelson_meta::go_regex;
use regex::{Regex, RegexBuilder};

/// Maximum number of Unicode properties that are checked to find the one that is invalid.
const PROPERTIES_LOOKED_AT_MAX: usize = 100;

/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 2 << 20;

/// Checks that Go's `regexp` accepts a pattern. Returns Go's error message.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    compile(pattern).map(drop)
}

/// Compiles a pattern with the meaning it has in Go. Returns Go's error message.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = go_regex::translate(pattern)
        .map_err(|message| format!("error parsing regexp: {message}"))?;
    let built = RegexBuilder::new(&translated.text)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .build();
    built.map_err(|_| {
        let properties = translated.properties.iter().take(PROPERTIES_LOOKED_AT_MAX);
        let mut texts = properties.map(|at| &pattern[at.clone()]);
        match texts.find(|text| Regex::new(text).is_err()) {
            Some(text) => format!("error parsing regexp: invalid character class range: `{text}`"),
            None => format!("error parsing regexp: expression too large: `{pattern}`"),
        }
    })
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

fn find<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let pattern = pattern(args)?;
    let found = pattern.find(text_arg(args, 0)?);
    Ok(Val::text(found.map_or("", |found| found.as_str())))
}

fn find_all<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let limit = if args.len() > 2 { int_arg(args, 2)? } else { -1 };
    let pattern = pattern(args)?;
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = pattern.find_iter(text_arg(args, 0)?).take(count);
    Ok(Val::list(found.map(|found| Val::text(found.as_str())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_the_meaning_of_go() {
        let check = |pattern: &str, text: &str, expected: bool| {
            let compiled = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern} of {text:?}");
        };
        check(r"^\d+$", "123", true);
        check(r"^\d+$", "\u{661}\u{662}", false);
        check(r"^\w+$", "aé", false);
        check(r"^[\w-]+$", "a-b_1", true);
        check(r"^[^\d\s]+$", "ab c", false);
        check(r"\bfoo\b", "a foo b", true);
        check("^[a&&b]+$", "a&b", true);
        check("^[^[]+$", "abc", true);
        check("^[]a]+$", "a]", true);
        check("^[[:alpha:]-]+$", "a-b", true);
        check(r"^\Qa.b\E+$", "a.bb", true);
        check(r"^\x41\x{42}\103$", "ABC", true);
        check("^a{,5}$", "a{,5}", true);
        check("^(?i:A)b$", "ab", true);
        check("(?P<n>a)(?<n>b)", "ab", true);
        check("^a#b c$", "a#b c", true);
        check(r"^[a\-z]+$", "b", false);
        check(r"^\p{Greek}\pL$", "αb", true);
        check("^(?s).$", "\n", true);
    }
}
