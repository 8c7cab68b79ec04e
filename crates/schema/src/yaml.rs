//! YAML decoding and encoding, with the YAML 1.1 scalar rules of sigs.k8s.io/yaml.

mod reader;

use keelson_meta::{Map, Str, Value};
use saphyr_parser::{ScalarStyle, Tag};
use std::borrow::Cow;
use std::fmt;

use crate::json;

/// A parsed document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedYaml {
    /// The value.
    pub value: Value,
    /// (line, key) of duplicate keys.
    pub duplicates: Vec<(usize, String)>,
}

/// Why a text is not YAML that the API accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YamlError {
    /// A syntax error: (line or 0, message).
    Syntax(usize, String),
    /// A character that YAML forbids.
    Control,
    /// Nesting exceeds [`json::DEPTH_MAX`].
    Depth,
    /// Aliases that expand to too much.
    Aliases,
    /// An alias within the node that it refers to: the name of the anchor.
    SelfReference(String),
    /// A map key that is a list or a map.
    Key,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            YamlError::Syntax(line, words) if *line > 0 => write!(f, "yaml: line {line}: {words}"),
            YamlError::Syntax(_, words) => write!(f, "yaml: {words}"),
            YamlError::Control => f.write_str("yaml: control characters are not allowed"),
            YamlError::Depth => f.write_str("yaml: exceeded max depth of 10000"),
            YamlError::Aliases => f.write_str("yaml: document contains excessive aliasing"),
            YamlError::SelfReference(name) => {
                write!(f, "yaml: anchor '{name}' value contains itself")
            }
            YamlError::Key => f.write_str("yaml: unsupported map key"),
        }
    }
}

impl std::error::Error for YamlError {}

/// Parses the first document of a text. Like upstream, ignores the rest.
pub fn parse(text: &str) -> Result<ParsedYaml, YamlError> {
    if text.chars().any(is_forbidden) {
        return Err(YamlError::Control);
    }
    if let Some(value) = plain_json(text) {
        return Ok(ParsedYaml { value, duplicates: vec![] });
    }
    reader::scan(text)
}

/// Parses a text that is JSON, as most YAML bodies are; JSON parsing is many times faster. Returns
/// `None` for texts that YAML might read differently: duplicate keys, tabs between tokens, escaped
/// surrogates, whole numbers with a fraction.
fn plain_json(text: &str) -> Option<Value> {
    let contains = |word| text.contains(word);
    if !text.starts_with('{') || ["\t", "\\ud", "\\uD"].into_iter().any(contains) {
        return None;
    }
    let parsed = json::parse(text.as_bytes()).ok()?;
    (parsed.duplicates.is_empty() && !has_whole_float(&parsed.value)).then_some(parsed.value)
}

fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.fract() == 0.0,
        Value::Array(items) => items.iter().any(has_whole_float),
        Value::Object(map) => map.iter().any(|(_, value)| has_whole_float(value)),
        _ => false,
    }
}

/// Whether YAML forbids a character.
fn is_forbidden(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        c => c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
    }
}

/// Resolves a scalar. Quoted and block scalars are strings; a plain one is null, a boolean, a
/// number or a string.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    if let Some(tag) = tag
        && tag.is_yaml_core_schema()
    {
        return match tag.suffix.as_str() {
            "str" | "binary" => Value::from(text),
            "float" => match plain_scalar(text) {
                Value::Int(number) => Value::Float(number as f64),
                other => other,
            },
            _ => plain_scalar(text),
        };
    }
    if style == ScalarStyle::Plain && tag.is_none() {
        plain_scalar(text)
    } else {
        Value::from(text)
    }
}

fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Value::from(text);
    }
    number(&text.replace('_', "")).unwrap_or_else(|| Value::from(text))
}

fn number(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let radix = if let Some(hex) = digits.strip_prefix("0x") {
        Some((hex, 16))
    } else if let Some(bits) = digits.strip_prefix("0b") {
        Some((bits, 2))
    } else if let Some(octal) = digits.strip_prefix("0o") {
        Some((octal, 8))
    } else if digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|b| b.is_ascii_digit())
    {
        Some((&digits[1..], 8))
    } else {
        None
    };
    if let Some((body, radix)) = radix
        && !body.is_empty()
        && let Ok(number) = i64::from_str_radix(body, radix)
    {
        return Some(Value::Int(if negative { -number } else { number }));
    }
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
        return Some(match signed.parse::<i64>() {
            Ok(number) => Value::Int(number),
            Err(_) => Value::Float(signed.parse().ok().filter(|number: &f64| number.is_finite())?),
        });
    }
    let is_float = digits.bytes().any(|b| b.is_ascii_digit())
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !is_float {
        return None;
    }
    let number: f64 = text.strip_prefix('+').unwrap_or(text).parse().ok()?;
    // Upstream converts YAML to JSON, where 1.0 becomes the integer 1; from 1e21 on a float has an
    // exponent there.
    if number.fract() == 0.0
        && number.abs() < 1e21
        && let Ok(whole) = number.to_string().parse()
    {
        return Some(Value::Int(whole));
    }
    number.is_finite().then_some(Value::Float(number))
}

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
    if plain_scalar(text) != Value::from(text) || looks_like_a_timestamp(text) {
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
        && plain_scalar(text) == Value::from(text)
        && !looks_like_a_timestamp(text)
}

fn looks_like_a_timestamp(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() >= 8
        && b[..4].iter().all(u8::is_ascii_digit)
        && b[4] == b'-'
        && text[5..].bytes().next().is_some_and(|c| c.is_ascii_digit())
        && text.bytes().all(|c| c.is_ascii_digit() || b"-:.TtZz+ ".contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn check(text: &str, want: Result<Value, &str>) {
        let got = parse(text).map(|p| p.value).map_err(|e| e.to_string());
        let excerpt: String = text.chars().take(80).collect();
        assert_eq!(got, want.map_err(str::to_owned), "{excerpt}");
    }

    #[test]
    fn scalars_follow_yaml_1_1() {
        check(
            "a: yes\nb: off\nc: 010\nd: 0x1F\ne: 1.0\nf: 1.5\ng: ~\nh: '1'\ni: 1_000\nj: 2001-01-01\nk: v1",
            Ok(value!({"a": true, "b": false, "c": 8, "d": 31, "e": 1, "f": 1.5, "g": null,
                       "h": "1", "i": 1000, "j": "2001-01-01", "k": "v1"})),
        );
        check("1: a\ntrue: b", Ok(value!({"1": "a", "true": "b"})));
    }

    #[test]
    fn json_fast_path_agrees_with_the_scanner() {
        for text in [
            r#"{"a":"b","c":[1,-2,true,null,{}],"d":{"e":[],"f":""}}"#,
            "{\n  \"a\": \"x: y # z\",\n  \"b\": [ \"- c\" ]\n}\n",
            r#"{"a":"\u00e9\n\t\"\\/😀","é":"ü"}"#,
            r#"{"a":1.5,"b":0.1,"c":9007199254740993,"d":-0.25}"#,
            r#"{"b":-0,"d":1E-2}"#,
            r#"{"yes":"no","null":"~","1":"2","":"="}"#,
        ] {
            assert_eq!(parse(text).unwrap(), reader::scan(text).unwrap(), "{text}");
            assert!(plain_json(text).is_some(), "{text}");
        }
        for odd in [r#"{"a":1,"a":2}"#, "{\t}", r#"{"a":"\ud83d\ude00"}"#, r#"{"a":1.0}"#, "a: 1"] {
            assert_eq!(plain_json(odd), None, "{odd}");
        }
    }

    #[test]
    fn only_the_first_document_counts() {
        check("---\na: 1\n---\nb: 2\n", Ok(value!({"a": 1})));
        check("", Ok(Value::Null));
        check("# only a comment\n", Ok(Value::Null));
    }

    #[test]
    fn merge_keys_and_aliases_are_expanded() {
        check(
            "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\n",
            Ok(value!({"base": {"x": 1, "z": 2}, "use": {"z": 3, "x": 1}})),
        );
    }

    #[test]
    fn expansion_of_aliases_is_limited() {
        let texts =
            |count: usize| format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), "*a,".repeat(count));
        check(&texts(4), Err("yaml: document contains excessive aliasing"));
        assert!(parse(&texts(3)).is_ok());
        // Each list is 100 levels deep and contains the one before.
        let level =
            |at: usize| format!("- &a{} {}*a{at}{}\n", at + 1, "[".repeat(100), "]".repeat(100));
        let levels = |count| format!("- &a0 []\n{}", (0..count).map(level).collect::<String>());
        check(&levels(5), Err("yaml: exceeded max depth of 10000"));
        assert_eq!(parse(&levels(2)).err(), None);
    }

    #[test]
    fn merged_maps_may_have_anchors_and_hold_aliases() {
        check(
            "a: &a {x: [1]}\nb: {<<: &b {q: *a, z: &c [2]}, z: 3}\nc: [*b, *c]\nd: {<<: [*a, *b], x: 4}",
            Ok(value!({
                "a": {"x": [1]},
                "b": {"z": 3, "q": {"x": [1]}},
                "c": [{"q": {"x": [1]}, "z": [2]}, [2]],
                "d": {"x": 4, "q": {"x": [1]}, "z": [2]}
            })),
        );
    }

    #[test]
    fn alias_bomb_is_rejected() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            let row = vec![format!("*a{}", i - 1); 10].join(",");
            text.push_str(&format!("a{i}: &a{i} [{row}]\n"));
        }
        check(&text, Err("yaml: document contains excessive aliasing"));
        check(&"[".repeat(5_000), Err("yaml: exceeded max depth of 10000"));
    }

    #[test]
    fn errors_name_the_line() {
        check("a: b: c", Err("yaml: mapping values are not allowed in this context"));
        check("a: 1\nb: c: d", Err("yaml: line 2: mapping values are not allowed in this context"));
        check("{", Err("yaml: line 1: did not find expected node content"));
    }

    #[test]
    fn long_and_multiline_keys_have_their_own_line() {
        let long = "k".repeat(129);
        let mut map = Map::new();
        map.insert(long.as_str(), value!({"a": [1, {"b": 2}]}));
        map.insert("x\ny", value!([1, 2]));
        let mut text = String::new();
        write(&Value::Object(map.clone()), &mut text);
        let want = format!("? {long}\n: a:\n  - 1\n  - b: 2\n? |-\n  x\n  y\n: - 1\n  - 2\n");
        assert_eq!(text, want);
        assert_eq!(parse(&text).expect("YAML").value, Value::Object(map));
    }

    #[test]
    fn special_characters_are_escaped() {
        let text = "\u{1}\u{7f}\u{85}\u{a0}é\u{2028}\u{fffe}😀<\"\\";
        let mut out = String::new();
        write(&Value::from(text), &mut out);
        let want = r#""\x01\x7F\N"#.to_owned() + "\u{a0}é" + r#"\L\uFFFE\U0001F600<\"\\""#;
        assert_eq!(out.trim_end(), want);
        assert_eq!(parse(&out).expect("YAML").value, Value::from(text));
    }

    #[test]
    fn whole_floats_are_the_integers_that_json_writes() {
        check("2233720368547758e2", Ok(value!(223372036854775800_i64)));
        check("-1e18", Ok(Value::Int(-1_000_000_000_000_000_000)));
        check("1e19", Ok(value!(1e19)));
        check("1e21", Ok(value!(1e21)));
    }

    #[test]
    fn document_of_one_multiline_string_is_indented() {
        let text = Value::from("\n|\n\n|");
        let mut out = String::new();
        write(&text, &mut out);
        assert_eq!(parse(&out).map(|parsed| parsed.value), Ok(text), "{out}");
    }

    #[test]
    fn control_characters_are_rejected_and_huge_numbers_are_text() {
        assert_eq!(parse("a: \u{3}"), Err(YamlError::Control));
        let digits = "9".repeat(400);
        assert_eq!(parse(&digits).expect("YAML").value, Value::from(digits.as_str()));
    }

    #[test]
    fn values_round_trip() {
        let value = value!({"b": ["x", {"c": "y: z", "d": [1, [2, 3]]}], "a": "true", "t": "a\nb\n",
            "u": "\n x\ny\n\n", "n": null, "e": {}, "l": [], "w": "it's", "z": "1.5", "ts": "2001-01-01",
            "sp": " lead", "q": "a \"quoted\" \\ word", "star": "*x", "dash": "- x", "tab": "a\tb"});
        let mut text = String::new();
        write(&value, &mut text);
        assert_eq!(parse(&text).map(|p| p.value), Ok(value), "{text}");
    }

    #[test]
    fn lists_are_indented_like_their_key() {
        let mut text = String::new();
        write(&value!({"items": [{"b": 1, "a": "x"}, "y"], "on": "on"}), &mut text);
        assert_eq!(text, "items:\n- a: x\n  b: 1\n- \"y\"\n\"on\": \"on\"\n");
    }
}
