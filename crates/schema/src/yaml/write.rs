//! Writes YAML as sigs.k8s.io/yaml does.

use super::resolve::is_string;
use crate::json;
use keelson_meta::{Map, Str, Value};
use std::borrow::Cow;

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
    for (key, value) in map.sorted() {
        if !inline_first {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        inline_first = false;
        if key.len() > KEY_BYTES_MAX || key.contains('\n') {
            write_long_key(key, value, indent, out);
            continue;
        }
        out.push_str(&one_line_form(key));
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
    write_scalar(&Value::String(key.clone()), indent + 2, out);
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

fn write_scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(text) if text.contains('\n') && is_block_safe(text) => {
            write_block(text, indent, out);
        }
        Value::String(text) => out.push_str(&one_line_form(text)),
        other => {
            let mut json = vec![];
            json::write_value(other, &mut json);
            out.push_str(&String::from_utf8_lossy(&json));
        }
    }
}

/// Writes a literal block: `|`, with `-` or `+` for trailing line breaks.
fn write_block(text: &str, indent: usize, out: &mut String) {
    let trailing = text.len() - text.trim_end_matches('\n').len();
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    match trailing {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    let body = text.strip_suffix('\n').unwrap_or(text);
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
    }
}

fn is_block_safe(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
        && !text.split('\n').any(|line| line.ends_with([' ', '\t']))
        && !text.trim_matches('\n').is_empty()
}

/// Returns a string in its one-line form: plain, single-quoted or double-quoted.
fn one_line_form(text: &str) -> Cow<'_, str> {
    if !text.chars().all(is_printable) {
        return Cow::Owned(double_quoted(text));
    }
    if is_plain_safe(text) {
        return Cow::Borrowed(text);
    }
    if !is_string(text) {
        return Cow::Owned(double_quoted(text));
    }
    Cow::Owned(format!("'{}'", text.replace('\'', "''")))
}

/// Whether upstream writes a character without an escape. It escapes all beyond U+FFFF.
fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}'..)
}

fn double_quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        let letter = match c {
            '"' | '\\' => c,
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c if is_printable(c) => {
                out.push(c);
                continue;
            }
            c => {
                let code = u32::from(c);
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                });
                continue;
            }
        };
        out.extend(['\\', letter]);
    }
    out.push('"');
    out
}

fn is_plain_safe(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let follows = text.chars().nth(1);
    let indicator = match first {
        '-' | '?' | ':' => follows.is_none_or(|c| c == ' '),
        c => "#,[]{}&*!|>'\"%@` ".contains(c),
    };
    !indicator
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
        && text != "="
        && text != "<<"
        && is_string(text)
}
