//! Fields that field selectors may ask for (`selectableFields`).

use super::validate::at;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value};
use std::collections::HashSet;

/// Fields of one version.
const FIELDS_MAX: usize = 8;

/// The faults of the selectable fields of a version with this schema.
pub(super) fn fields(fields: &[Value], schema: Option<&Map>, field: &str, errors: &mut ErrorList) {
    let mut seen = HashSet::new();
    if fields.len() > FIELDS_MAX {
        errors.push(at(field, FieldError::too_many(&Path::ROOT, fields.len(), FIELDS_MAX)));
    }
    for (i, given) in fields.iter().enumerate() {
        let place = format!("{field}[{i}].jsonPath");
        let path = given.str_at(&["jsonPath"]).unwrap_or_default();
        if path.is_empty() {
            errors.push(at(&place, FieldError::required(&Path::ROOT, "")));
            continue;
        }
        if let Some(why) = fault(path, schema) {
            errors.push(at(&place, FieldError::invalid(&Path::ROOT, path, &why)));
            continue;
        }
        if !seen.insert(path) {
            errors.push(at(&place, FieldError::duplicate(&Path::ROOT, path)));
        }
    }
}

fn fault(path: &str, schema: Option<&Map>) -> Option<String> {
    let Some(rest) = path.strip_prefix('.') else {
        let word = path.split(['.', '[']).next().unwrap_or_default();
        return Some(format!("is an invalid path: expected [ or . but got: {word}"));
    };
    let mut at = schema;
    for (depth, name) in rest.split('.').enumerate() {
        let (name, index) = name.split_once('[').unwrap_or((name, ""));
        let is_meta = depth == 0 && matches!(name, "metadata" | "kind" | "apiVersion");
        let member = at.and_then(|schema| schema.get("properties")?.get(name)?.as_object());
        at = member.filter(|_| !is_meta);
        if at.is_none() {
            return Some("is an invalid path: does not refer to a valid field".to_owned());
        }
        if !index.is_empty() {
            return Some("is an invalid path: array notation is not allowed".to_owned());
        }
    }
    let kind = at.and_then(|schema| schema.get("type")).and_then(Value::as_str);
    let fits = matches!(kind, Some("string" | "boolean" | "integer"));
    (!fits).then(|| {
        "must point to a field of type string, boolean or integer. Enum string fields and strings \
         with formats are allowed."
            .to_owned()
    })
}
