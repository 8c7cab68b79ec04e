//! Compares an answer with a recorded one. Values that differ from run to run are placeholders.

use keelson_meta::Value;
use keelson_testkit::transcript::normal::without_values;

/// Members of `metadata` that differ from run to run, or that other parts of a server set.
const METADATA: &[&str] =
    &["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"];

/// Removes the members of [`METADATA`].
pub fn strip(value: &mut Value) {
    let Some(root) = value.as_object_mut() else { return };
    if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in METADATA {
            metadata.remove(name);
        }
    }
}

/// Returns the differences, one per line; empty if `got` is what was recorded.
pub fn differences(want: &Value, got: &Value, path: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a.iter() {
                match b.get(key) {
                    Some(other) => differences(value, other, &format!("{path}.{key}"), out),
                    None => out.push(format!("{path}.{key}: missing, want {}", short(value))),
                }
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(key)) {
                out.push(format!("{path}.{key}: unexpected {}", short(value)));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                out.push(format!("{path}: want {} got {}", short(want), short(got)));
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}[{index}]"), out);
            }
        }
        (Value::String(a), Value::String(b)) if matches(&without_values(a), &without_values(b)) => {
        }
        (Value::String(a), Value::Int(_)) if a.starts_with('<') => {}
        (Value::Float(a), Value::Int(b)) if *a == *b as f64 => {}
        (Value::Int(a), Value::Float(b)) if *b == *a as f64 => {}
        (a, b) if a == b => {}
        _ => out.push(format!("{path}: want {} got {}", short(want), short(got))),
    }
}

fn short(value: &Value) -> String {
    keelson_meta::status::show(value).chars().take(400).collect()
}

/// Whether a text is as recorded, where `<uid-1>`, `<time>` and the like stand for anything.
pub fn matches(want: &str, got: &str) -> bool {
    let Some((head, tail)) = placeholder(want) else { return want == got };
    let Some(rest) = got.strip_prefix(head) else { return false };
    (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
}

/// Returns the text before and after the first placeholder.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    text.match_indices('<').find_map(|(start, _)| {
        let end = start + text[start..].find('>')?;
        let word = &text[start + 1..end];
        let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (!word.is_empty() && word != "nil" && word.chars().all(inside))
            .then(|| (&text[..start], &text[end + 1..]))
    })
}
