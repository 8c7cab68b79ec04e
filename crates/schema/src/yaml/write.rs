//! Writes YAML as sigs.k8s.io/yaml does.

use super::write_scalar::{is_break, write_scalar, write_string};
use keelson_meta::{Map, Str, Value, go_sort};
use std::cmp::Ordering;
use std::convert::Infallible;

/// Appends a value as a YAML document, as sigs.k8s.io/yaml does: keys sorted, lists not indented.
pub fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, false, out),
        Value::Array(items) if !items.is_empty() => write_items(items, 0, out),
        other => {
            write_scalar(other, 2, out);
            out.push('\n');
        }
    }
}

fn write_map(map: &Map, indent: usize, mut inline_first: bool, out: &mut String) {
    let mut entries: Vec<(&Str, &Value)> = map.iter().collect();
    // The order of keys may be a circle: `12`, `1a`, `9`.
    let is_less = |one: &(&Str, &Value), other: &(&Str, &Value)| {
        Ok::<bool, Infallible>(compare_keys(one.0, other.0).is_lt())
    };
    let Ok(()) = go_sort::sort_by(&mut entries, is_less);
    for (key, value) in entries {
        if !inline_first {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        inline_first = false;
        if key.len() > KEY_BYTES_MAX || key.contains(is_break) {
            write_long_key(key, value, indent, out);
            continue;
        }
        write_string(key, None, out);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(inner, indent + 2, false, out);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                write_items(items, indent, out);
            }
            other => {
                out.push(' ');
                write_scalar(other, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

/// Maximum length of a key on one line with its value.
const KEY_BYTES_MAX: usize = 128;

/// Writes a key on its own lines (`? key`), and its value.
fn write_long_key(key: &Str, value: &Value, indent: usize, out: &mut String) {
    out.push_str("? ");
    write_string(key, Some(indent + 2), out);
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    out.push_str(": ");
    write_nested(value, indent + 2, out);
}

/// Writes a value after text on the same line.
fn write_nested(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, indent, true, out),
        Value::Array(inner) if !inner.is_empty() => {
            let mut nested = String::new();
            write_items(inner, indent, &mut nested);
            out.push_str(nested.trim_start_matches(' '));
        }
        other => {
            write_scalar(other, indent, out);
            out.push('\n');
        }
    }
}

fn write_items(items: &[Value], indent: usize, out: &mut String) {
    for item in items {
        out.extend(std::iter::repeat_n(' ', indent));
        out.push_str("- ");
        write_nested(item, indent + 2, out);
    }
}

/// Orders keys as upstream does: letters after all else, and numbers by their value.
fn compare_keys(one: &str, other: &str) -> Ordering {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let mut rests = [one, other].map(|key| key.chars().skip(same));
    let (a, b) = match rests.each_mut().map(Iterator::next) {
        [Some(a), Some(b)] => (a, b),
        [a, b] => return a.is_some().cmp(&b.is_some()),
    };
    if a.is_alphabetic() || b.is_alphabetic() {
        return a.is_alphabetic().cmp(&b.is_alphabetic()).then(a.cmp(&b));
    }
    // A zero within a number is not a leading one.
    let is_within_number = (a == '0' || b == '0') && {
        let digits = one.chars().take(same).collect::<Vec<char>>();
        digits.into_iter().rev().take_while(char::is_ascii_digit).any(|digit| digit != '0')
    };
    let number = |first: char, rest: &mut dyn Iterator<Item = char>| {
        let digits: Vec<i64> = std::iter::once(first)
            .chain(rest)
            .map_while(|c| c.to_digit(10).map(i64::from))
            .collect();
        let add = |sum: i64, digit: &i64| sum.wrapping_mul(10).wrapping_add(*digit);
        (digits.iter().fold(i64::from(is_within_number), add), digits.len())
    };
    let [rest, other_rest] = &mut rests;
    number(a, rest).cmp(&number(b, other_rest)).then(a.cmp(&b))
}
