//! Differences between two responses.

use crate::api::Response;
use serde_json::Value;

/// Maximum characters of a value in a difference.
const SHOWN_CHARS_MAX: usize = 400;

/// Returns the differences, one line each.
#[must_use]
pub fn differences(want: &Response, got: &Response) -> Vec<String> {
    let mut lines = vec![];
    if want.code != got.code {
        lines.push(format!("code: want {} got {}", want.code, got.code));
    }
    if want.warnings != got.warnings {
        lines.push(format!("warnings: want {:?} got {:?}", want.warnings, got.warnings));
    }
    compare(&want.body, &got.body, "", &mut lines);
    lines
}

fn compare(want: &Value, got: &Value, path: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for (name, value) in want {
                match got.get(name) {
                    Some(other) => compare(value, other, &format!("{path}.{name}"), out),
                    None => out.push(format!("{path}.{name}: missing, want {}", short(value))),
                }
            }
            for (name, value) in got.iter().filter(|(name, _)| !want.contains_key(*name)) {
                out.push(format!("{path}.{name}: unexpected {}", short(value)));
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                compare(want, got, &format!("{path}[{index}]"), out);
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{path}: want {} got {}", short(want), short(got))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(SHOWN_CHARS_MAX).collect()
}
