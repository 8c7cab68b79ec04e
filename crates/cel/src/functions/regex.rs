//! Regular expressions. Matching takes linear time for every pattern.

use super::{Implementation, int_arg, text_arg};
use crate::pattern::{self, Pattern};
use crate::value::{EvalError, EvalResult, Val};
use std::sync::Arc;

/// Checks that Go's `regexp` accepts a pattern. Returns Go's error message.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    Pattern::new(pattern).map(drop)
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "matches" => |args| {
            let pattern = pattern::computed(text_arg(args, 1)?).map_err(EvalError::new)?;
            pattern.is_match(text_arg(args, 0)?).map(Val::Bool)
        },
        "find" => |args| {
            let pattern = computed(args)?;
            find(args, &pattern)
        },
        "findAll" => |args| {
            let pattern = computed(args)?;
            find_all(args, &pattern)
        },
        _ => return None,
    })
}

fn computed(args: &[Val<'_>]) -> Result<Arc<Pattern>, EvalError> {
    pattern::computed(text_arg(args, 1)?)
        .map_err(|error| EvalError::new(format!("Illegal regex: {error}")))
}

/// `text.find(pattern)`.
pub(crate) fn find<'a>(args: &[Val<'a>], pattern: &Pattern) -> EvalResult<'a> {
    let text = text_arg(args, 0)?;
    let found = pattern.find_at(text, 0)?;
    Val::made_text(found.map_or("", |found| &text[found]))
}

/// `text.findAll(pattern)`, or with a limit. An empty match that follows a match at once is none.
pub(crate) fn find_all<'a>(args: &[Val<'a>], pattern: &Pattern) -> EvalResult<'a> {
    let text = text_arg(args, 0)?;
    let limit = if args.len() > 2 { int_arg(args, 2)? } else { -1 };
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut out = vec![];
    let mut from = 0;
    let mut last_end = None;
    while out.len() < count && from <= text.len() {
        let Some(found) = pattern.find_at(text, from)? else { break };
        from = found.end;
        if found.is_empty() {
            from += text[found.end..].chars().next().map_or(1, char::len_utf8);
            if last_end == Some(found.end) {
                continue;
            }
        }
        last_end = Some(found.end);
        crate::value::make_items(1)?;
        out.push(Val::made_text(&text[found])?);
    }
    Val::made_list(out)
}
