//! Validates `meta/v1` conditions.

use crate::check::Field;
use keelson_meta::{ErrorList, SmallSet, names};

const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32768;

/// Validates a list of conditions.
pub(super) fn validate(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for at in list.items() {
        let kind = at.field("type");
        if !seen.insert(kind.text()) {
            kind.duplicate(errors);
        }
        kind.rule(errors, names::is_qualified_name);
        let status = at.field("status");
        if !["True", "False", "Unknown"].contains(&status.text()) {
            status.not_supported(errors, &["False", "True", "Unknown"]);
        }
        let generation = at.field("observedGeneration");
        if generation.number() < 0 {
            generation.invalid(errors, "must be greater than or equal to zero");
        }
        at.field("lastTransitionTime").not_empty(errors, "");
        let reason = at.field("reason");
        if reason.not_empty(errors, "") {
            reason.rule(errors, is_condition_reason);
            reason.not_too_long(errors, REASON_BYTES_MAX);
        }
        at.field("message").not_too_long(errors, MESSAGE_BYTES_MAX);
    }
}

fn is_condition_reason(text: &str) -> Vec<String> {
    const WORDS: &str = "a condition reason must start with alphabetic character, optionally \
                         followed by a string of alphanumeric characters or '_,:', and must end \
                         with an alphanumeric character or '_'";
    const EXAMPLES: &[&str] =
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    let bytes = text.as_bytes();
    let fits = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_,:".contains(byte));
    if fits {
        return vec![];
    }
    vec![names::regex_error(WORDS, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", EXAMPLES)]
}
