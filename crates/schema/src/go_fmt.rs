//! Formats values as Go's package `fmt` does, because upstream's messages contain them.

use crate::json;
use keelson_meta::Value;
use keelson_meta::status::quote;
use std::fmt::Write;

/// Formats a value like `%v`: `map[a:1 b:[x y]]`.
pub fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(value, &mut out);
    out
}

/// Formats a list of lists like `%v`.
pub fn plain_lists(lists: &[&[Value]]) -> String {
    let mut out = String::from("[");
    for (i, list) in lists.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        write_items(list, &mut out);
    }
    out.push(']');
    out
}

/// Formats a list like `%v`.
pub fn plain_items(items: &[Value]) -> String {
    let mut out = String::new();
    write_items(items, &mut out);
    out
}

/// Formats a value like `%s`: a string as it is, other scalars as `%!s(int64=5)`.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Array(_) | Value::Object(_) => plain(value),
        other => format!("%!s({}={})", type_name(other), plain(other)),
    }
}

/// Formats a value like `%#v`: `map[string]interface {}{"a":1}`.
pub fn syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(value, &mut out);
    out
}

fn write_syntax(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&quote(text)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_syntax(item, out);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[string]interface {}{");
            for (at, (key, item)) in map.sorted().into_iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(&quote(key));
                out.push(':');
                write_syntax(item, out);
            }
            out.push('}');
        }
        scalar => write_plain(scalar, out),
    }
}

/// Returns the type name like `%T` for a value in an `interface{}`.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) | Value::Raw(_) => "map[string]interface {}",
    }
}

fn write_plain(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{number}");
        }
        Value::Float(number) => out.push_str(&keelson_meta::status::float(*number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_items(items, out),
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.sorted().into_iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_plain(item, out);
            }
            out.push(']');
        }
        Value::Raw(_) => write_plain(&json::parse_raw(value.clone()), out),
    }
}

fn write_items(items: &[Value], out: &mut String) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        write_plain(item, out);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn maps_are_sorted_and_strings_unquoted() {
        let all = value!({"b": [1, "x y", null], "a": {"f": 1.5, "t": true}});
        assert_eq!(plain(&all), "map[a:map[f:1.5 t:true] b:[1 x y <nil>]]");
        assert_eq!(text(&value!(5)), "%!s(int64=5)");
        assert_eq!(
            syntax(&value!({"a": ["x"]})),
            r#"map[string]interface {}{"a":[]interface {}{"x"}}"#
        );
    }
}
