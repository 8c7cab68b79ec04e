//! The normal form of responses: values that a server generates are replaced by placeholders, so
//! that two recordings of a server are identical.
//!
//! - In `metadata`, `resourceVersion` becomes `<version>`, `uid` `<uid>`, and times `<time>`.
//! - Elsewhere, UUIDs and times that are not in a request of the case become `<uid>` and `<time>`.
//! - The suffix of a name from `generateName` becomes `<name>`.
//! - `managedFields` are sorted by manager, operation and subresource, because their order depends
//!   on times in seconds.
//! - In texts of a `Status`, JSON values become `(value)`, quoted objects `(object)`, and only the
//!   first line is kept, because they print Go structs. The time in type names (`selfType17`) is
//!   removed.
//! - Warnings and members of objects are sorted.

use crate::api::Response;
use crate::sorted;
use serde_json::Value;

/// Length of the suffix of a generated name.
const GENERATED_CHARS: usize = 5;

/// Returns the normal form of a response in a case with the requests `sent`.
#[must_use]
pub fn normalize(mut response: Response, sent: &str, is_any_order: bool) -> Response {
    let generated = generated_name(&response.body);
    let mut body = sorted(response.body);
    let is_status = body["kind"] == "Status";
    for_texts(&mut body, &mut |text| {
        if let Some((name, prefix)) = &generated {
            *text = text.replace(name, &format!("{prefix}<name>"));
        }
        *text = match is_time(text) && !sent.contains(text.as_str()) {
            true => "<time>".to_owned(),
            false => without_uuids(text, sent),
        };
        if is_status {
            *text = normalize_message(text);
        }
    });
    normalize_metadata(&mut body);
    if is_any_order && is_status {
        sort_causes(&mut body);
    }
    response.warnings.sort();
    Response { body, ..response }
}

/// Returns a generated name and its `generateName`.
fn generated_name(body: &Value) -> Option<(String, String)> {
    let name = body["metadata"]["name"].as_str()?;
    let prefix = body["metadata"]["generateName"].as_str()?;
    let suffix = name.strip_prefix(prefix)?;
    (suffix.len() == GENERATED_CHARS).then(|| (name.to_owned(), prefix.to_owned()))
}

fn for_texts(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| for_texts(item, change)),
        Value::Object(map) => map.values_mut().for_each(|value| for_texts(value, change)),
        _ => {}
    }
}

/// Normalizes the metadata of the object, of the items of a list and of templates.
fn normalize_metadata(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalize_metadata),
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if name == "metadata" {
                    replace_generated(value);
                }
                normalize_metadata(value);
            }
        }
        _ => {}
    }
}

fn replace_generated(metadata: &mut Value) {
    for (name, by) in [
        ("resourceVersion", "<version>"),
        ("uid", "<uid>"),
        ("creationTimestamp", "<time>"),
        ("deletionTimestamp", "<time>"),
    ] {
        if let Some(text @ Value::String(_)) = metadata.get_mut(name) {
            *text = by.into();
        }
    }
    let Some(Value::Array(entries)) = metadata.get_mut("managedFields") else { return };
    for entry in entries.iter_mut() {
        if let Some(time @ Value::String(_)) = entry.get_mut("time") {
            *time = "<time>".into();
        }
    }
    entries.sort_by_key(|entry| {
        ["manager", "operation", "subresource"]
            .map(|name| entry[name].as_str().unwrap_or_default().to_owned())
    });
}

/// Sorts the causes of a `Status`, and removes its message, which joins them in the server's order.
fn sort_causes(status: &mut Value) {
    let Some(Value::Array(causes)) = status["details"].get_mut("causes") else { return };
    causes.sort_by_key(Value::to_string);
    if let Some(status) = status.as_object_mut() {
        status.remove("message");
    }
}

/// Returns whether a text is a time such as `2024-01-01T00:00:00Z`, with or without a fraction.
fn is_time(text: &str) -> bool {
    const FORM: &str = "0000-00-00T00:00:00";
    let alike = |(c, form): (u8, u8)| if form == b'0' { c.is_ascii_digit() } else { c == form };
    let Some(end) = text.get(FORM.len()..) else { return false };
    let part = end.strip_prefix('.').unwrap_or_default().strip_suffix('Z').unwrap_or_default();
    let is_ended = end == "Z" || !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    is_ended && text.bytes().zip(FORM.bytes()).all(alike)
}

/// Replaces UUIDs by `<uid>`, except those in requests.
fn without_uuids(text: &str, sent: &str) -> String {
    replace_uuids(text, |uuid| if sent.contains(uuid) { uuid } else { "<uid>" })
}

/// Replaces each UUID in a text.
#[must_use]
pub fn replace_uuids<'t>(text: &'t str, replacement: impl Fn(&'t str) -> &'t str) -> String {
    const LENGTH: usize = 36;
    let is_uuid = |part: &str| {
        part.len() == LENGTH
            && part.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(uuid) = rest.get(..LENGTH).filter(|part| is_uuid(part)) {
            out.push_str(replacement(uuid));
            rest = &rest[LENGTH..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Removes representations of Go structs from the message of a `Status`.
fn normalize_message(text: &str) -> String {
    without_values(&without_type_times(&without_object(text)))
}

/// Replaces JSON values in a message, which depend on Go structs of kube-apiserver, and removes the
/// lines after the first, which are diffs of them.
#[must_use]
pub fn without_values(text: &str) -> String {
    const MARK: &str = "Invalid value: ";
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let after = at + MARK.len();
        out.push_str(&rest[..after]);
        rest = &rest[after..];
        if rest.starts_with(['{', '[']) {
            let mut depth = 0;
            let end = rest.find(|c| {
                depth += i32::from(matches!(c, '{' | '[')) - i32::from(matches!(c, '}' | ']'));
                depth == 0
            });
            out.push_str("(value)");
            rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
        }
    }
    out.push_str(rest);
    match out.split_once('\n') {
        Some((first, _)) => format!("{first} (more)"),
        None => out,
    }
}

/// Replaces a quoted object in a message.
fn without_object(text: &str) -> String {
    const BEFORE: &str = "Invalid value: \"{";
    const AFTER: &str = "}\": ";
    match (text.find(BEFORE), text.rfind(AFTER)) {
        (Some(start), Some(end)) if start < end => {
            format!("{}Invalid value: (object): {}", &text[..start], &text[end + AFTER.len()..])
        }
        _ => text.to_owned(),
    }
}

fn without_type_times(text: &str) -> String {
    const TYPE: &str = "selfType";
    let mut parts = text.split(TYPE);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(TYPE);
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}
