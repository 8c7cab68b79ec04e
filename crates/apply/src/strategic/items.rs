//! Items of the lists that are merged, and what is wrong with those that have no merge key.

use crate::{PatchError, go_fmt};
use keelson_meta::{Map, Value};

/// The merge key of an item: its member `key`, or the item itself.
pub(super) fn key_of<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, PatchError> {
    let Some(key) = key else { return Ok(item) };
    let map = object(item)?;
    map.get(key).ok_or_else(|| no_merge_key(map, key))
}

pub(super) fn object(item: &Value) -> Result<&Map, PatchError> {
    item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))
}

pub(super) fn bad_type(expected: &str, value: &Value) -> PatchError {
    let got = match value {
        Value::Null => "%!s(<nil>)",
        other => go_fmt::type_name(other),
    };
    PatchError::Bare(format!("expected a {expected}, but received a {got}"))
}

pub(super) fn no_merge_key(map: &Map, key: &str) -> PatchError {
    let shown = go_fmt::plain(&Value::Object(map.clone()));
    PatchError::Bare(format!("map: {shown} does not contain declared merge key: {key}"))
}
