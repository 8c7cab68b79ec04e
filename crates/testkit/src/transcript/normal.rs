//! The normal form of answers: what a server makes anew each time is a placeholder, so that two recordings of one
//! server are the same bytes.
//!
//! - In `metadata`, `resourceVersion` is `<version>`, `uid` is `<uid>`, the times are `<time>`.
//! - Anywhere else UUIDs and times that no request of the case has are `<uid>` and `<time>`.
//! - The end of a name that was made for a `generateName` is `<name>`.
//! - Owners of fields stand by manager, operation and subresource: their order is that of seconds, of which one may
//!   end at any moment.
//! - In texts of a `Status` JSON values are `(value)`, objects in quotes `(object)`, and of several lines the first is kept:
//!   these print Go's structs. The time in names of types (`selfType17`) is left out.
//! - Warnings are sorted, and members stand in the order of their names.

use super::Reply;
use crate::sorted;
use serde_json::Value;

/// Letters that a server adds to a `generateName`.
const GENERATED_CHARS: usize = 5;

/// The normal form of an answer to a case whose requests are `sent`.
#[must_use]
pub fn normal(mut reply: Reply, sent: &str, is_any_order: bool) -> Reply {
    let made = generated(&reply.body);
    let mut body = sorted(reply.body);
    let is_status = body["kind"] == "Status";
    for_texts(&mut body, &mut |text| {
        if let Some((name, stem)) = &made {
            *text = text.replace(name, &format!("{stem}<name>"));
        }
        *text = match is_time(text) && !sent.contains(text.as_str()) {
            true => "<time>".to_owned(),
            false => without_uuids(text, sent),
        };
        if is_status {
            *text = plain(text);
        }
    });
    normal_metadata(&mut body);
    if is_any_order && is_status {
        sort_causes(&mut body);
    }
    reply.warnings.sort();
    Reply { body, ..reply }
}

/// A name that was made, and what it was made of.
fn generated(body: &Value) -> Option<(String, String)> {
    let (name, stem) =
        (body["metadata"]["name"].as_str()?, body["metadata"]["generateName"].as_str()?);
    let is_made = name.strip_prefix(stem).is_some_and(|end| end.len() == GENERATED_CHARS);
    is_made.then(|| (name.to_owned(), stem.to_owned()))
}

fn for_texts(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| for_texts(item, change)),
        Value::Object(map) => map.values_mut().for_each(|value| for_texts(value, change)),
        _ => {}
    }
}

/// The metadata of the object, of the items of a list and of templates.
fn normal_metadata(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normal_metadata),
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if name == "metadata" {
                    replace_made(value);
                }
                normal_metadata(value);
            }
        }
        _ => {}
    }
}

fn replace_made(metadata: &mut Value) {
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

/// Causes in an order of their own. The message joins them in that of the server.
fn sort_causes(status: &mut Value) {
    let Some(Value::Array(causes)) = status["details"].get_mut("causes") else { return };
    causes.sort_by_key(Value::to_string);
    if let Some(status) = status.as_object_mut() {
        status.remove("message");
    }
}

/// `2024-01-01T00:00:00Z`, with parts of seconds or without.
fn is_time(text: &str) -> bool {
    const FORM: &str = "0000-00-00T00:00:00";
    let alike = |(c, form): (u8, u8)| if form == b'0' { c.is_ascii_digit() } else { c == form };
    let Some(end) = text.get(FORM.len()..) else { return false };
    let part = end.strip_prefix('.').unwrap_or_default().strip_suffix('Z').unwrap_or_default();
    let is_ended = end == "Z" || !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    is_ended && text.bytes().zip(FORM.bytes()).all(alike)
}

/// A text in which UUIDs are `<uid>`, but for those that were sent.
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

/// A text of a refusal without what only mirrors structs of the reference.
fn plain(text: &str) -> String {
    without_values(&without_type_times(&without_object(text)))
}

/// A message without JSON values, which only mirror structs of the reference, and without the lines
/// after the first, which are diffs of them.
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

/// A message that shows a whole object in quotes, without it.
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
