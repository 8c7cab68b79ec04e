//! Helpers to read the fields of schemas and to report errors at a path that is already formatted.

use keelson_meta::{FieldError, Map, Path, Value};

pub(super) fn text<'m>(schema: &'m Map, name: &str) -> &'m str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(schema: &Map, name: &str) -> bool {
    schema.get(name) == Some(&true.into())
}

/// Iterates over the schemas in a map of schemas, such as `properties`.
pub(super) fn named<'m>(schema: &'m Map, name: &str) -> impl Iterator<Item = (&'m str, &'m Map)> {
    let members = schema.get(name).and_then(Value::as_object).into_iter().flat_map(Map::iter);
    members.filter_map(|(name, member)| Some((name.as_str(), member.as_object()?)))
}

/// Iterates over the schemas in a list of schemas, such as `anyOf`.
pub(super) fn listed<'m>(schema: &'m Map, name: &str) -> impl Iterator<Item = &'m Map> {
    let members = schema.get(name).and_then(Value::as_array).unwrap_or_default();
    members.iter().filter_map(Value::as_object)
}

pub(super) fn required(field: String, why: &str) -> FieldError {
    at(&field, FieldError::required(&Path::ROOT, why))
}

pub(super) fn invalid(field: String, value: impl Into<Value>, why: &str) -> FieldError {
    at(&field, FieldError::invalid(&Path::ROOT, value, why))
}

pub(super) fn forbidden(field: String, why: &str) -> FieldError {
    at(&field, FieldError::forbidden(&Path::ROOT, why))
}

pub(super) fn not_supported(field: String, value: &str, known: &[&str]) -> FieldError {
    at(&field, FieldError::not_supported(&Path::ROOT, value, known))
}

/// Returns the error of a `type` that contradicts other fields of a schema.
pub(super) fn wrong_type(schema: &Map, field: &str, why: &str) -> FieldError {
    match text(schema, "type") {
        "" => required(format!("{field}.type"), why),
        kind => invalid(format!("{field}.type"), kind, why),
    }
}

/// Sets the path of an error.
pub(super) fn at(field: &str, error: FieldError) -> FieldError {
    FieldError { field: field.to_owned(), ..error }
}
