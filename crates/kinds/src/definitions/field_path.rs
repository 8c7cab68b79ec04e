//! Resolves the paths of `fieldPath`, such as `.spec.a['b.c']` (apiextensions
//! `pkg/apiserver/schema/cel`, `ValidFieldPath`).

use keelson_meta::{Map, Value};

const NO_FIELD: &str = "does not refer to a valid field";

/// Returns the schema at a path and the field names along it, or why the path is invalid.
pub(super) fn find<'m>(
    path: &str,
    schema: &'m Map,
    allows_brackets: bool,
) -> Result<(Vec<String>, &'m Map), String> {
    let mut rest = path;
    let mut at = schema;
    let mut names = vec![];
    while !rest.is_empty() {
        let name = match rest.as_bytes()[0] {
            b'.' => {
                let (name, after) = dotted(&rest[1..])?;
                rest = after;
                name.to_owned()
            }
            b'[' if !allows_brackets => return Err("array notation is not allowed".to_owned()),
            b'[' => {
                let (name, after) = bracketed(rest)?;
                rest = after;
                name
            }
            _ => {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                return Err(format!("expected [ or . but got: {}", &rest[..end]));
            }
        };
        at = member(at, &name).ok_or(NO_FIELD)?;
        names.push(name);
    }
    Ok((names, at))
}

/// Returns the schema of a member: from `additionalProperties` only if there are no `properties`.
fn member<'m>(schema: &'m Map, name: &str) -> Option<&'m Map> {
    match schema.get("properties").and_then(Value::as_object).filter(|known| !known.is_empty()) {
        Some(known) => known.get(name)?.as_object(),
        None => match schema.get("additionalProperties")? {
            Value::Object(values) => Some(values),
            // The values have no schema.
            Value::Bool(_) => Some(const { &Map::new() }),
            _ => None,
        },
    }
}

/// Splits off the name after a dot. Returns it and the rest.
fn dotted(text: &str) -> Result<(&str, &str), String> {
    match text.as_bytes().first() {
        None => Err("unexpected end of JSON path".to_owned()),
        // Upstream's scanner takes the character as a name.
        Some(b'.' | b'[') => Err(NO_FIELD.to_owned()),
        Some(_) => Ok(text.split_at(text.find(['.', '[']).unwrap_or(text.len()))),
    }
}

/// Splits off the name in `['...']`. Returns it and the rest.
fn bracketed(text: &str) -> Result<(String, &str), String> {
    let inner = text.strip_prefix("['").ok_or(NO_FIELD)?;
    let mut name = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => {
                let after = inner[at + 1..].strip_prefix(']').ok_or(NO_FIELD)?;
                return Ok((name, after));
            }
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | '\''))) => name.push(escaped),
                _ => return Err(NO_FIELD.to_owned()),
            },
            c => name.push(c),
        }
    }
    Err("unexpected end of JSON path".to_owned())
}
