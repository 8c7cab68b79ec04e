//! Formats values for messages, as Go does.

use crate::float_digits::ShortestDigits;
use crate::json_text::compact;
use crate::printable::is_printable;
use crate::value::Value;

/// Formats a value for a message: strings like Go's `%q`, scalars plain, others as JSON.
pub fn show(value: &Value) -> String {
    let mut text = String::new();
    show_in(value, &mut text);
    text
}

/// Formats a value like Go's `encoding/json`.
pub fn show_json(value: &Value) -> String {
    let mut text = String::new();
    show_json_in(value, &mut text);
    text
}

/// Formats a float like Go's `%v`: the shortest digits, with an exponent below 1e-4 and from 1e6.
pub fn float(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .into();
    }
    let digits = ShortestDigits::of(number);
    if (-4..6).contains(&digits.exponent) { digits.decimal() } else { digits.scientific(2) }
}

fn show_in(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => quote_in(text, out),
        Value::Float(number) => out.push_str(&float(*number)),
        value => show_json_in(value, out),
    }
}

/// Appends instead of joining, which would copy the innermost text once for each level.
fn show_json_in(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::String(text) => quote_json_in(text, out),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&ShortestDigits::of(*number).decimal()),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                show_json_in(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (at, (key, item)) in map.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                quote_json_in(key, out);
                out.push(':');
                show_json_in(item, out);
            }
            out.push('}');
        }
        Value::Raw(text) => out.push_str(&compact(text)),
    }
}

/// Formats a JSON string with Go's HTML escapes.
fn quote_json_in(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Formats a string like Go's `%q`: in double quotes, with control and unprintable characters
/// escaped.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote_in(text, &mut out);
    out
}

fn quote_in(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c if !is_printable(c) && (c as u32) < 0x1_0000 => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c if !is_printable(c) => out.push_str(&format!("\\U{:08x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_an_exponent_only_when_far_from_one() {
        let shown: Vec<String> = [1e6, 1.5, 1e21, 1e-5, 0.0].into_iter().map(float).collect();
        assert_eq!(shown, ["1e+06", "1.5", "1e+21", "1e-05", "0"]);
    }

    /// As kube-apiserver 1.36 shows numbers beside its words and within lists.
    #[test]
    fn a_float_by_itself_may_have_an_exponent() {
        assert_eq!(show(&Value::Float(2_147_483_648.5)), "2.1474836485e+09");
        assert_eq!(show(&Value::Array(vec![Value::Float(2_147_483_648.5)])), "[2147483648.5]");
        assert_eq!(show(&Value::Int(2_147_483_648)), "2147483648");
    }
}
