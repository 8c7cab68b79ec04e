//! The value of a document as upstream's YAML package returns it, before it is converted to JSON:
//! keys may be of any type. Only the messages about keys show it.

use super::YamlError;
use super::document::{Document, NodeKind};
use super::resolve::{Scalar, resolve};
use keelson_meta::Str;
use keelson_meta::status::{float, quote};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Maximum length of a value in a message; the rest is not shown. kube-apiserver shows all.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// A value of Go.
#[derive(Clone, Debug, PartialEq)]
enum GoValue<'a> {
    Scalar(Scalar<'a>),
    List(Vec<GoValue<'a>>),
    /// In the order in which the keys were first set.
    Map(Vec<(GoValue<'a>, GoValue<'a>)>),
}

/// Returns the message about the first key that is no key of JSON: null, or an integer that is too
/// large. The nodes were decoded before, within all limits.
pub(super) fn invalid_key(document: &Document<'_>) -> Result<Option<String>, YamlError> {
    Ok(first_invalid_key(&read(document, 0)?).map(|(key, value)| {
        let kind = if *key == GoValue::Scalar(Scalar::Null) { "%!s(<nil>)" } else { "uint64" };
        let key = shown(key);
        let value = shown(value);
        format!("unsupported map key of type: {kind}, key: {key}, value: {value}")
    }))
}

/// Formats a node like `%#v`.
pub(super) fn syntax(document: &Document<'_>, at: usize) -> Result<String, YamlError> {
    read(document, at).map(|value| shown(&value))
}

/// Formats a float as a key: like `%g` of a float of 32 bits.
pub(super) fn float_key(number: f64) -> Str {
    let number = number as f32;
    if number.is_infinite() {
        return Str::new_static(if number > 0.0 { ".inf" } else { "-.inf" });
    }
    // The shortest digits of 32 bits, which the shortest digits of 64 bits then repeat.
    Str::from(float(number.to_string().parse().unwrap_or_default()))
}

fn first_invalid_key<'v, 'a>(value: &'v GoValue<'a>) -> Option<(&'v GoValue<'a>, &'v GoValue<'a>)> {
    match value {
        GoValue::Scalar(_) => None,
        GoValue::List(items) => items.iter().find_map(first_invalid_key),
        GoValue::Map(entries) => entries.iter().find_map(|(key, item)| match key {
            GoValue::Scalar(Scalar::Null | Scalar::Uint(_)) => Some((key, item)),
            _ => first_invalid_key(item),
        }),
    }
}

fn read<'a>(document: &'a Document<'_>, at: usize) -> Result<GoValue<'a>, YamlError> {
    match document.nodes[at].kind {
        NodeKind::Scalar { text, tag, is_implicit } => {
            resolve(document.text(text), tag, is_implicit).map(GoValue::Scalar)
        }
        NodeKind::Alias { target, .. } => read(document, target as usize),
        NodeKind::Sequence { end } => {
            let mut items = vec![];
            let mut item = at + 1;
            while item < end as usize {
                items.push(read(document, item)?);
                item = document.after(item);
            }
            Ok(GoValue::List(items))
        }
        NodeKind::Mapping { .. } => {
            let mut entries = vec![];
            set_entries(document, at, &mut entries)?;
            // A later value of a key replaces the earlier one.
            entries.sort_by(|one, other| compare(&one.0, &other.0));
            entries.dedup_by(|later, kept| {
                let is_same = compare(&later.0, &kept.0) == Ordering::Equal;
                if is_same {
                    std::mem::swap(&mut later.1, &mut kept.1);
                }
                is_same
            });
            Ok(GoValue::Map(entries))
        }
    }
}

fn set_entries<'a>(
    document: &'a Document<'_>,
    mapping: usize,
    entries: &mut Vec<(GoValue<'a>, GoValue<'a>)>,
) -> Result<(), YamlError> {
    let mut key = mapping + 1;
    while key < document.after(mapping) {
        let value = document.after(key);
        if document.is_merge(key) {
            let mut maps = vec![value];
            if let NodeKind::Sequence { end } = document.nodes[value].kind {
                maps.clear();
                let mut item = value + 1;
                while item < end as usize {
                    maps.push(item);
                    item = document.after(item);
                }
            }
            for map in maps.into_iter().rev() {
                let map = match document.nodes[map].kind {
                    NodeKind::Alias { target, .. } => target as usize,
                    _ => map,
                };
                set_entries(document, map, entries)?;
            }
        } else {
            entries.push((read(document, key)?, read(document, value)?));
        }
        key = document.after(value);
    }
    Ok(())
}

/// Orders keys as Go's package `fmt` shows them: by their type, and then by their value.
fn compare(one: &GoValue<'_>, other: &GoValue<'_>) -> Ordering {
    let rank = |value: &GoValue<'_>| match value {
        GoValue::Scalar(Scalar::Null) => 0,
        GoValue::Scalar(Scalar::Bool(_)) => 1,
        GoValue::Scalar(Scalar::Int(_)) => 2,
        GoValue::Scalar(Scalar::Uint(_)) => 3,
        GoValue::Scalar(Scalar::Float(_)) => 4,
        GoValue::Scalar(Scalar::Text(_)) => 5,
        GoValue::List(_) | GoValue::Map(_) => 6,
    };
    match (one, other) {
        (GoValue::Scalar(Scalar::Bool(one)), GoValue::Scalar(Scalar::Bool(other))) => {
            one.cmp(other)
        }
        (GoValue::Scalar(Scalar::Int(one)), GoValue::Scalar(Scalar::Int(other))) => one.cmp(other),
        (GoValue::Scalar(Scalar::Uint(one)), GoValue::Scalar(Scalar::Uint(other))) => {
            one.cmp(other)
        }
        (GoValue::Scalar(Scalar::Float(one)), GoValue::Scalar(Scalar::Float(other))) => {
            one.total_cmp(other)
        }
        (GoValue::Scalar(Scalar::Text(one)), GoValue::Scalar(Scalar::Text(other))) => {
            one.cmp(other)
        }
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

fn shown(value: &GoValue<'_>) -> String {
    let mut out = String::new();
    match value {
        GoValue::Scalar(Scalar::Null) => out.push_str("<nil>"),
        other => show(other, &mut out),
    }
    let mut end = out.len().min(SHOWN_BYTES_MAX);
    while !out.is_char_boundary(end) {
        end -= 1;
    }
    out.truncate(end);
    out
}

fn show(value: &GoValue<'_>, out: &mut String) {
    if out.len() > SHOWN_BYTES_MAX {
        return;
    }
    match value {
        GoValue::Scalar(scalar) => out.push_str(&show_scalar(scalar)),
        GoValue::List(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                show(item, out);
            }
            out.push('}');
        }
        GoValue::Map(entries) => {
            out.push_str("map[interface {}]interface {}{");
            for (at, (key, item)) in entries.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                show(key, out);
                out.push(':');
                show(item, out);
            }
            out.push('}');
        }
    }
}

fn show_scalar<'a>(scalar: &Scalar<'a>) -> Cow<'a, str> {
    match scalar {
        Scalar::Null => "interface {}(nil)".into(),
        Scalar::Bool(true) => "true".into(),
        Scalar::Bool(false) => "false".into(),
        Scalar::Int(number) => number.to_string().into(),
        Scalar::Uint(number) => format!("{number:#x}").into(),
        Scalar::Float(number) => float(*number).into(),
        Scalar::Text(text) => quote(text).into(),
    }
}
