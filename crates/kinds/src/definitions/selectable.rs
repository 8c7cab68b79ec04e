//! Validates `selectableFields`.

use super::field_path;
use super::members::{at, flag, named, text};
use keelson_meta::{ErrorList, FieldError, Map, Path, Value};
use std::collections::HashSet;

/// Selectable fields of one version.
const FIELDS_MAX: usize = 8;

/// Validates the selectable fields of a version with this schema.
pub(super) fn fields(fields: &[Value], schema: &Map, field: &str, errors: &mut ErrorList) {
    let mut seen = HashSet::new();
    // A schema that allows any field also allows `metadata`.
    let has_metadata = named(schema, "properties").any(|(name, _)| name == "metadata");
    for (i, given) in fields.iter().enumerate() {
        let path_field = format!("{field}[{i}].jsonPath");
        let path = given.str_at(&["jsonPath"]).unwrap_or_default();
        let invalid = |why: &str| at(&path_field, FieldError::invalid(&Path::ROOT, path, why));
        if path.is_empty() {
            errors.push(at(&path_field, FieldError::required(&Path::ROOT, "")));
            continue;
        }
        let (names, found) = match field_path::find(path, schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.push(invalid(&format!("is an invalid path: {why}")));
                continue;
            }
        };
        if has_metadata && names.first().is_some_and(|name| name == "metadata") {
            errors.push(invalid("must not point to fields in metadata"));
        }
        let is_simple = matches!(text(found, "type"), "string" | "boolean" | "integer");
        if !is_simple || flag(found, "x-kubernetes-int-or-string") {
            errors.push(invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings \
                 with formats are allowed.",
            ));
        }
        if !seen.insert(names) {
            errors.push(at(&path_field, FieldError::duplicate(&Path::ROOT, path)));
        }
    }
    if seen.len() > FIELDS_MAX {
        errors.push(at(field, FieldError::too_many(&Path::ROOT, seen.len(), FIELDS_MAX)));
    }
}
