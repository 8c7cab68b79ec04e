//! What stands where a kind takes any object (`runtime.RawExtension`): Go keeps it as text, letter by letter,
//! compares it so, and writes it out compact. In an object it is a [`Value::Raw`] outside of the metadata.

use super::parse::Reader;
use crate::json_writer::write_value;
use keelson_meta::json_text::compact;
use keelson_meta::{Map, Path, Str, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::str::{Split, from_utf8};

/// The value that a text says, as that text; `parsed` is what it says. What is no UTF-8 is written anew.
pub fn kept(text: &[u8], parsed: Value) -> Value {
    match from_utf8(text) {
        Ok(text) => Value::Raw(Str::new(text)),
        Err(_) => kept_value(parsed),
    }
}

/// The value as text of our own.
pub fn kept_value(value: Value) -> Value {
    let mut text = vec![];
    write_value(&value, &mut text);
    Value::Raw(String::from_utf8_lossy(&text).into())
}

/// Stands between the texts of [`texts_of`]: no JSON has it.
const BETWEEN: char = '\0';

/// The texts in an object that are not written out as they are, and all others with them; `None` where there is
/// no such text. What metadata holds is always written as it is.
pub fn texts_of(root: &Map) -> Option<String> {
    let mut texts = vec![];
    let members = root.iter().filter(|(name, _)| *name != "metadata");
    members.for_each(|(_, value)| collect(value, &mut texts));
    let is_compact = |text: &&str| matches!(compact(text), Cow::Borrowed(_));
    match texts.iter().all(is_compact) {
        true => None,
        false => Some(texts.join(BETWEEN.encode_utf8(&mut [0; 4]))),
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

/// Puts the texts of [`texts_of`] back into the object of which they were taken, which was written out and read
/// since. Those that do not fit what stands there are left out.
pub fn with_texts(root: &mut Map, texts: &str) {
    let mut texts = texts.split(BETWEEN);
    let members = root.iter_mut().filter(|(name, _)| **name != "metadata");
    members.for_each(|(_, value)| put_back(value, &mut texts));
}

fn put_back(value: &mut Value, texts: &mut Split<'_, char>) {
    match value {
        Value::Raw(written) => {
            if let Some(text) = texts.next().filter(|text| compact(text) == written.as_str()) {
                *written = text.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put_back(item, texts)),
        Value::Object(map) => map.iter_mut().for_each(|(_, item)| put_back(item, texts)),
        _ => {}
    }
}

/// Takes the texts of a body into the object that was read of it by way of values.
pub(crate) fn keep_texts(body: &[u8], root: &mut Map) {
    let mut whole = Value::Object(std::mem::take(root));
    let read = keep_in(&mut Reader::new(body), &mut whole);
    debug_assert!(read.is_some(), "the body was read before");
    if let Value::Object(map) = whole {
        *root = map;
    }
}

fn keep_in(reader: &mut Reader<'_>, value: &mut Value) -> Option<()> {
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
            if reader.is_end(b'}') {
                return Some(());
            }
            loop {
                reader.peek().ok()?;
                let key = reader.string().ok()?;
                reader.peek().ok()?;
                reader.at += 1;
                match map.get_mut(&key) {
                    Some(member) => keep_in(reader, member)?,
                    None => skip(reader)?,
                }
                if reader.is_end(b'}') {
                    return Some(());
                }
                reader.at += 1;
            }
        }
        (b'[', Value::Array(items)) => {
            reader.begin().ok()?;
            if reader.is_end(b']') {
                return Some(());
            }
            for at in 0.. {
                match items.get_mut(at) {
                    Some(item) => keep_in(reader, item)?,
                    None => skip(reader)?,
                }
                if reader.is_end(b']') {
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

/// What a patch made of an object, with the texts of `before` where it did not touch them. `after` was made of
/// values. Like upstream, which opens level by level what a patch touches: the members of an opened map
/// are in order, and within it again what was not touched is as it was. `patch`: the maps that it opens, though
/// it changes nothing in them.
pub fn untouched(before: &Value, after: Value, patch: Option<&Value>) -> Value {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let members = after.into_iter().map(|(name, value)| {
                let value = match before.get(&name) {
                    Some(before) if name != "metadata" => {
                        let patch = patch.and_then(|patch| patch.get(&name));
                        untouched(before, value, patch)
                    }
                    _ => value,
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            Value::Array(before.iter().zip(after).map(|(b, a)| untouched(b, a, None)).collect())
        }
        (Value::Raw(text), after) => untouched_text(text, after, patch),
        (_, after) => after,
    }
}

fn untouched_text(text: &Str, after: Value, patch: Option<&Value>) -> Value {
    let mut reader = Reader::new(text.as_bytes());
    match place_of(&mut reader).map(|place| place.compared(text, after, patch)) {
        None | Some(Touched::No(_)) => Value::Raw(compact(text).into()),
        Some(Touched::Yes(value)) => value,
    }
}

/// Where a value stands in its text, and what it is, if it is no map.
struct Place {
    range: Range<usize>,
    holds: Holds,
}

enum Holds {
    Members(HashMap<Str, Place>),
    Other(Value),
}

fn place_of(reader: &mut Reader<'_>) -> Option<Place> {
    let first = reader.peek().ok()?;
    let start = reader.at;
    if first != b'{' {
        let value = reader.value(&Path::ROOT).ok()?;
        return Some(Place { range: start..reader.at, holds: Holds::Other(value) });
    }
    reader.begin().ok()?;
    let mut members = HashMap::new();
    let mut is_first = true;
    while !reader.is_end(b'}') {
        reader.at += usize::from(!is_first);
        is_first = false;
        reader.peek().ok()?;
        let key = reader.string().ok()?;
        reader.peek().ok()?;
        reader.at += 1;
        members.insert(key, place_of(reader)?);
    }
    Some(Place { range: start..reader.at, holds: Holds::Members(members) })
}

enum Touched {
    /// With where the value stood.
    No(Range<usize>),
    Yes(Value),
}

impl Place {
    /// Looks once at each value, however deep it is.
    fn compared(self, text: &str, after: Value, patch: Option<&Value>) -> Touched {
        let (mut before, map) = match (self.holds, after) {
            (Holds::Members(members), Value::Object(map)) => (members, map),
            (Holds::Other(before), after) if before == after => return Touched::No(self.range),
            (_, after) => return Touched::Yes(after),
        };
        let is_open = patch.is_some_and(Value::is_map) || map.len() < before.len();
        let members = map.into_iter().map(|(name, value)| match before.remove(&name) {
            Some(place) => {
                let patch = patch.and_then(|patch| patch.get(&name));
                (name, place.compared(text, value, patch))
            }
            None => (name, Touched::Yes(value)),
        });
        let members: Vec<_> = members.collect();
        if !is_open && members.iter().all(|(_, value)| matches!(value, Touched::No(_))) {
            return Touched::No(self.range);
        }
        let members = members.into_iter().map(|(name, value)| match value {
            Touched::No(range) => (name, Value::Raw(text[range].into())),
            Touched::Yes(value) => (name, value),
        });
        let mut map: Map = members.collect();
        map.sort();
        Touched::Yes(Value::Object(map))
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
    fn texts_come_back_where_they_were() {
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
        let texts = texts_of(&object).expect("a text that is not compact");
        let mut written = with(r#"{"b":1.0}"#, r#"{"b":1,"a":2}"#);
        assert_eq!(texts_of(&written), None);
        with_texts(&mut written, &texts);
        assert_eq!(written, object);
        // Another object than that of which they are keeps its own.
        let mut other = with("{}", r#"{"b":1,"a":2}"#);
        with_texts(&mut other, &texts);
        assert_eq!(other, with("{}", r#"{"b":1,"a":2}"#));
    }

    #[test]
    fn texts_of_a_body_are_taken_as_they_stand() {
        let body = br#" {"no": {"x": [1]}, "x": { "b" : 1e3 }, "l": [7, {"x":  [ 1 ]}], "x": {"c": 2.0} }"#;
        let list = Value::Array(vec![value!(7), value!({"x": (raw("[1]"))})]);
        let Value::Object(mut map) = value!({"x": (raw(r#"{"c":2}"#)), "l": (list)}) else {
            unreachable!()
        };
        keep_texts(body, &mut map);
        assert_eq!(map.get("x"), Some(&raw(r#"{"c": 2.0}"#)));
        assert_eq!(map.get("l").and_then(|l| l.as_array()?[1].get("x")), Some(&raw("[ 1 ]")));
    }

    #[test]
    fn a_patch_puts_in_order_what_it_opens() {
        let before = value!({"x": (raw(r#"{"b": {"z":1.0, "y":2}, "a": 0.10}"#))});
        let check = |after: Value, patch: Option<Value>, expected: &str| {
            let made = untouched(&before, value!({"x": (after)}), patch.as_ref());
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
