//! `runtime.RawExtension`: Go keeps such a value as the text of the request, compares it as text,
//! and writes it compactly. In an object it is a [`Value::Raw`] outside the metadata.

use super::parse::Reader;
use crate::json_writer::write_value;
use keelson_meta::json_text::compact;
use keelson_meta::{Map, Path, Str, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::str::{Split, from_utf8};

/// Returns a text as [`Value::Raw`]; `parsed` is its value. A text that is not UTF-8 is encoded
/// again.
pub fn raw_from_text(text: &[u8], parsed: Value) -> Value {
    match from_utf8(text) {
        Ok(text) => Value::Raw(Str::new(text)),
        Err(_) => raw_from_value(parsed),
    }
}

/// Encodes a value as [`Value::Raw`].
pub fn raw_from_value(value: Value) -> Value {
    let mut text = vec![];
    write_value(&value, &mut text);
    Value::Raw(String::from_utf8_lossy(&text).into())
}

/// Separates the texts of [`raw_texts`]; JSON does not contain it.
const SEPARATOR: char = '\0';

/// Returns the raw texts of an object, if one of them is not compact. Encoding makes them compact,
/// so a store that needs the original texts must keep them. Metadata is not included.
pub fn raw_texts(root: &Map) -> Option<String> {
    let mut texts = vec![];
    let members = root.iter().filter(|(name, _)| *name != "metadata");
    members.for_each(|(_, value)| collect(value, &mut texts));
    let is_compact = |text: &&str| matches!(compact(text), Cow::Borrowed(_));
    match texts.iter().all(is_compact) {
        true => None,
        false => Some(texts.join(SEPARATOR.encode_utf8(&mut [0; 4]))),
    }
}

fn collect<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::Raw(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(map) => map.iter().for_each(|(_, item)| collect(item, texts)),
        _ => {}
    }
}

/// Puts the texts of [`raw_texts`] back into the object, which was encoded and decoded since. Texts
/// that do not match are ignored.
pub fn restore_raw_texts(root: &mut Map, texts: &str) {
    let mut texts = texts.split(SEPARATOR);
    let members = root.iter_mut().filter(|(name, _)| **name != "metadata");
    members.for_each(|(_, value)| restore(value, &mut texts));
}

fn restore(value: &mut Value, texts: &mut Split<'_, char>) {
    match value {
        Value::Raw(written) => {
            if let Some(text) = texts.next().filter(|text| compact(text) == written.as_str()) {
                *written = text.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| restore(item, texts)),
        Value::Object(map) => map.iter_mut().for_each(|(_, item)| restore(item, texts)),
        _ => {}
    }
}

/// Replaces the raw values of an object by their original text in the body.
pub(crate) fn restore_raw_from_body(body: &[u8], root: &mut Map) {
    let mut whole = Value::Object(std::mem::take(root));
    let read = restore_raw(&mut Reader::new(body), &mut whole);
    debug_assert!(read.is_some(), "the body was read before");
    if let Value::Object(map) = whole {
        *root = map;
    }
}

fn restore_raw(reader: &mut Reader<'_>, value: &mut Value) -> Option<()> {
    match (reader.peek().ok()?, value) {
        (_, Value::Raw(text)) => {
            let start = reader.at;
            skip(reader)?;
            if let Ok(given) = from_utf8(&reader.text[start..reader.at]) {
                *text = given.into();
            }
        }
        (b'{', Value::Object(map)) => {
            reader.begin().ok()?;
            if reader.take_end(b'}') {
                return Some(());
            }
            loop {
                reader.peek().ok()?;
                let key = reader.string().ok()?;
                reader.peek().ok()?;
                reader.at += 1;
                match map.get_mut(&key) {
                    Some(member) => restore_raw(reader, member)?,
                    None => skip(reader)?,
                }
                if reader.take_end(b'}') {
                    return Some(());
                }
                reader.at += 1;
            }
        }
        (b'[', Value::Array(items)) => {
            reader.begin().ok()?;
            if reader.take_end(b']') {
                return Some(());
            }
            for at in 0.. {
                match items.get_mut(at) {
                    Some(item) => restore_raw(reader, item)?,
                    None => skip(reader)?,
                }
                if reader.take_end(b']') {
                    break;
                }
                reader.at += 1;
            }
        }
        _ => skip(reader)?,
    }
    Some(())
}

fn skip(reader: &mut Reader<'_>) -> Option<()> {
    reader.value(&Path::ROOT).ok().map(drop)
}

/// Returns a patched object in which unchanged parts of raw values keep the text they had in
/// `before`. Like upstream, maps that the patch touches are decoded level by level: their members
/// are sorted, and unchanged members keep their text. `patch` holds the maps that the patch
/// contains, even where it changes nothing.
pub fn keep_unchanged_raw(before: &Value, after: Value, patch: Option<&Value>) -> Value {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let members = after.into_iter().map(|(name, value)| {
                let value = match before.get(&name) {
                    Some(before) if name != "metadata" => {
                        let patch = patch.and_then(|patch| patch.get(&name));
                        keep_unchanged_raw(before, value, patch)
                    }
                    _ => value,
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => Value::Array(
            before.iter().zip(after).map(|(b, a)| keep_unchanged_raw(b, a, None)).collect(),
        ),
        (Value::Raw(text), after) => keep_unchanged_text(text, after, patch),
        (_, after) => after,
    }
}

fn keep_unchanged_text(text: &Str, after: Value, patch: Option<&Value>) -> Value {
    let mut reader = Reader::new(text.as_bytes());
    match parse_node(&mut reader).map(|place| place.compared(text, after, patch)) {
        None | Some(Comparison::Unchanged(_)) => Value::Raw(compact(text).into()),
        Some(Comparison::Changed(value)) => value,
    }
}

/// A parsed raw value: its range in the text, and its value or members.
struct RawNode {
    range: Range<usize>,
    content: Content,
}

enum Content {
    Members(HashMap<Str, RawNode>),
    Other(Value),
}

fn parse_node(reader: &mut Reader<'_>) -> Option<RawNode> {
    let first = reader.peek().ok()?;
    let start = reader.at;
    if first != b'{' {
        let value = reader.value(&Path::ROOT).ok()?;
        return Some(RawNode { range: start..reader.at, content: Content::Other(value) });
    }
    reader.begin().ok()?;
    let mut members = HashMap::new();
    let mut is_first = true;
    while !reader.take_end(b'}') {
        reader.at += usize::from(!is_first);
        is_first = false;
        reader.peek().ok()?;
        let key = reader.string().ok()?;
        reader.peek().ok()?;
        reader.at += 1;
        members.insert(key, parse_node(reader)?);
    }
    Some(RawNode { range: start..reader.at, content: Content::Members(members) })
}

enum Comparison {
    /// The range of the unchanged value.
    Unchanged(Range<usize>),
    Changed(Value),
}

impl RawNode {
    /// Compares the value with the patched one. Visits each value once, regardless of depth.
    fn compared(self, text: &str, after: Value, patch: Option<&Value>) -> Comparison {
        let (mut before, map) = match (self.content, after) {
            (Content::Members(members), Value::Object(map)) => (members, map),
            (Content::Other(before), after) if before == after => {
                return Comparison::Unchanged(self.range);
            }
            (_, after) => return Comparison::Changed(after),
        };
        let is_open = patch.is_some_and(Value::is_map) || map.len() < before.len();
        let members: Vec<_> = map
            .into_iter()
            .map(|(name, value)| match before.remove(&name) {
                Some(place) => {
                    let patch = patch.and_then(|patch| patch.get(&name));
                    (name, place.compared(text, value, patch))
                }
                None => (name, Comparison::Changed(value)),
            })
            .collect();
        if !is_open && members.iter().all(|(_, value)| matches!(value, Comparison::Unchanged(_))) {
            return Comparison::Unchanged(self.range);
        }
        let members = members.into_iter().map(|(name, value)| match value {
            Comparison::Unchanged(range) => (name, Value::Raw(text[range].into())),
            Comparison::Changed(value) => (name, value),
        });
        let mut map: Map = members.collect();
        map.sort();
        Comparison::Changed(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn raw(text: &str) -> Value {
        Value::Raw(text.into())
    }

    fn text_of(value: &Value) -> String {
        let mut out = vec![];
        write_value(value, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn raw_texts_are_restored_in_place() {
        let with = |first: &str, second: &str| {
            let metadata = value!({"managedFields": [{"fieldsV1": (raw("{}"))}]});
            let items =
                Value::Array(vec![value!({"x": (raw(first))}), value!({"x": (raw(second))})]);
            let Value::Object(map) = value!({"metadata": (metadata), "a": (items)}) else {
                unreachable!()
            };
            map
        };
        let object = with(r#"{"b": 1.0}"#, r#"{"b":1,"a":2}"#);
        let texts = raw_texts(&object).expect("a text that is not compact");
        let mut written = with(r#"{"b":1.0}"#, r#"{"b":1,"a":2}"#);
        assert_eq!(raw_texts(&written), None);
        restore_raw_texts(&mut written, &texts);
        assert_eq!(written, object);
        // Texts of another object are ignored.
        let mut other = with("{}", r#"{"b":1,"a":2}"#);
        restore_raw_texts(&mut other, &texts);
        assert_eq!(other, with("{}", r#"{"b":1,"a":2}"#));
    }

    #[test]
    fn raw_values_keep_the_text_of_the_body() {
        let body = br#" {"no": {"x": [1]}, "x": { "b" : 1e3 }, "l": [7, {"x":  [ 1 ]}], "x": {"c": 2.0} }"#;
        let list = Value::Array(vec![value!(7), value!({"x": (raw("[1]"))})]);
        let Value::Object(mut map) = value!({"x": (raw(r#"{"c":2}"#)), "l": (list)}) else {
            unreachable!()
        };
        restore_raw_from_body(body, &mut map);
        assert_eq!(map.get("x"), Some(&raw(r#"{"c": 2.0}"#)));
        assert_eq!(map.get("l").and_then(|l| l.as_array()?[1].get("x")), Some(&raw("[ 1 ]")));
    }

    #[test]
    fn patched_maps_are_sorted_and_unchanged_members_keep_their_text() {
        let before = value!({"x": (raw(r#"{"b": {"z":1.0, "y":2}, "a": 0.10}"#))});
        let check = |after: Value, patch: Option<Value>, expected: &str| {
            let made = keep_unchanged_raw(&before, value!({"x": (after)}), patch.as_ref());
            assert_eq!(made.get("x").map(text_of).as_deref(), Some(expected));
        };
        let same = value!({"b": {"z": 1.0, "y": 2}, "a": 0.1});
        check(same.clone(), None, r#"{"b":{"z":1.0,"y":2},"a":0.10}"#);
        let opened = Some(value!({"x": {"a": 0.1}}));
        check(same.clone(), opened, r#"{"a":0.10,"b":{"z":1.0,"y":2}}"#);
        let changed = value!({"b": {"z": 1.0, "y": 2}, "a": 0.1, "0": true});
        check(changed, None, r#"{"0":true,"a":0.10,"b":{"z":1.0,"y":2}}"#);
        let deeper = value!({"b": {"z": 1.0, "y": 3}, "a": 0.1});
        check(deeper, None, r#"{"a":0.10,"b":{"y":3,"z":1.0}}"#);
        check(value!({"a": 0.1}), None, r#"{"a":0.10}"#);
        check(value!([1]), None, "[1]");
    }
}
