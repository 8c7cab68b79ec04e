//! Functions of templates on texts.

use super::arguments::{Arguments, Table};
use super::printf::shown;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::status::{quote, show_json};
use keelson_meta::{Value, go_regex};

/// Bytes of a text that a function makes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes that a compiled regular expression may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub const TABLE: Table = &[
    ("quote", |given| Ok(words(given, quote).into())),
    ("squote", |given| Ok(words(given, |text| format!("'{text}'")).into())),
    ("cat", |given| Ok(words(given, str::to_owned).into())),
    ("toString", |given| Ok(plain(given.at(0)?).into())),
    ("upper", |given| Ok(given.text(0)?.to_uppercase().into())),
    ("lower", |given| Ok(given.text(0)?.to_lowercase().into())),
    ("title", |given| Ok(title(given.text(0)?).into())),
    ("trim", |given| Ok(given.text(0)?.trim().into())),
    ("trimAll", |given| Ok(given.text(1)?.trim_matches(one_of(given.text(0)?)).into())),
    ("trimPrefix", |given| {
        let text = given.text(1)?;
        Ok(text.strip_prefix(given.text(0)?).unwrap_or(text).into())
    }),
    ("trimSuffix", |given| {
        let text = given.text(1)?;
        Ok(text.strip_suffix(given.text(0)?).unwrap_or(text).into())
    }),
    ("nospace", |given| Ok(given.text(0)?.split_whitespace().collect::<Vec<_>>().concat().into())),
    ("contains", |given| Ok(Value::Bool(given.text(1)?.contains(given.text(0)?)))),
    ("hasPrefix", |given| Ok(Value::Bool(given.text(1)?.starts_with(given.text(0)?)))),
    ("hasSuffix", |given| Ok(Value::Bool(given.text(1)?.ends_with(given.text(0)?)))),
    ("replace", |given| {
        let old = given.text(0)?;
        let new = given.text(1)?;
        let text = given.text(2)?;
        let grown = text.matches(old).count().saturating_mul(new.len());
        check_size(grown)?;
        Ok(text.replace(old, new).into())
    }),
    ("repeat", |given| {
        let text = given.text(1)?;
        let count = given.count(0, TEXT_BYTES_MAX)?;
        check_size(count.saturating_mul(text.len()))?;
        Ok(text.repeat(count).into())
    }),
    ("substr", |given| {
        let from = given.int(0)?;
        let to = given.int(1)?;
        let text = given.text(2)?;
        let end = |at: i64, other: usize| usize::try_from(at).unwrap_or(other).min(text.len());
        let range = end(from, 0)..end(to, text.len());
        text.get(range).map(Value::from).ok_or_else(|| "the range is not in the text".to_owned())
    }),
    ("trunc", |given| {
        let count = given.int(0)?;
        let text = given.text(1)?;
        let characters: Vec<char> = text.chars().collect();
        let size =
            usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(characters.len());
        let kept =
            if count < 0 { &characters[characters.len() - size..] } else { &characters[..size] };
        Ok(kept.iter().collect::<String>().into())
    }),
    ("indent", |given| Ok(indented(given)?.into())),
    ("nindent", |given| Ok(format!("\n{}", indented(given)?).into())),
    ("join", |given| {
        let separator = given.text(0)?;
        let items: Vec<String> = match given.at(1)? {
            Value::Array(items) => items.iter().map(plain).collect(),
            other => vec![plain(other)],
        };
        check_size(items.len().saturating_mul(separator.len()))?;
        Ok(items.join(separator).into())
    }),
    ("splitList", |given| Ok(Value::Array(split(given)?))),
    ("split", |given| {
        let named = (0..).zip(split(given)?).map(|(at, part)| (format!("_{at}").into(), part));
        Ok(Value::Object(named.collect()))
    }),
    ("b64enc", |given| Ok(STANDARD.encode(given.text(0)?).into())),
    ("b64dec", |given| {
        let bytes = STANDARD.decode(given.text(0)?).map_err(|why| why.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned().into())
    }),
    ("toJson", |given| Ok(show_json(&given.at(0)?.clone().sorted()).into())),
    ("fromJson", |given| {
        let parsed = keelson_schema::json::parse(given.text(0)?.as_bytes());
        Ok(parsed.map_err(|why| why.to_string())?.value)
    }),
    ("regexMatch", |given| Ok(Value::Bool(pattern(given)?.is_match(given.text(1)?)))),
    ("regexFind", |given| {
        let pattern = pattern(given)?;
        Ok(pattern.find(given.text(1)?).map_or("", |found| found.as_str()).into())
    }),
    ("regexReplaceAll", |given| {
        let text = given.text(1)?;
        let new = given.text(2)?;
        check_size(text.len().saturating_add(1).saturating_mul(new.len().saturating_add(1)))?;
        Ok(pattern(given)?.replace_all(text, new).into_owned().into())
    }),
];

fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > TEXT_BYTES_MAX { Err("it makes more than 1 MiB of text".to_owned()) } else { Ok(()) }
}

/// Returns a value as text; nil is empty.
fn plain(value: &Value) -> String {
    if value.is_null() { String::new() } else { shown(value) }
}

/// Returns the arguments that are not nil, with blanks between them.
fn words(given: &Arguments<'_>, write: fn(&str) -> String) -> String {
    let there = given.all.iter().filter(|value| !value.is_null());
    there.map(|value| write(&shown(value))).collect::<Vec<_>>().join(" ")
}

fn title(text: &str) -> String {
    let mut is_start = true;
    let letters = text.chars().flat_map(|c| {
        let upper = std::mem::replace(&mut is_start, !c.is_alphanumeric());
        if upper { c.to_uppercase().collect::<Vec<char>>() } else { vec![c] }
    });
    letters.collect()
}

fn one_of(letters: &str) -> impl Fn(char) -> bool + Copy {
    move |c| letters.contains(c)
}

fn indented(given: &Arguments<'_>) -> Result<String, String> {
    let pad = " ".repeat(given.count(0, 1_000)?);
    let text = given.text(1)?;
    check_size(text.lines().count().saturating_mul(pad.len()))?;
    Ok(format!("{pad}{}", text.replace('\n', &format!("\n{pad}"))))
}

fn split(given: &Arguments<'_>) -> Result<Vec<Value>, String> {
    let separator = given.text(0)?;
    let text = given.text(1)?;
    Ok(text.split(separator).map(Value::from).collect())
}

/// Compiles the pattern of the first argument, a regular expression of Go.
fn pattern(given: &Arguments<'_>) -> Result<regex::Regex, String> {
    let translated = go_regex::translate(given.text(0)?)?;
    let mut builder = regex::RegexBuilder::new(&translated.text);
    builder.size_limit(PATTERN_BYTES_MAX).build().map_err(|why| why.to_string())
}
