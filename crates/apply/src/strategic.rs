//! Strategic merge patch: a merge patch that knows from the schema which lists are merged by key,
//! and whose directives delete, replace, reorder and retain.
//!
//! | directive | effect |
//! |---|---|
//! | `$patch: replace` / `delete` in a map | the map is replaced / emptied |
//! | `$patch: delete` / `replace` in an item of a merged list | the item / the whole list goes |
//! | `$retainKeys: [..]` | members of the original that are not listed go |
//! | `$setElementOrder/x: [..]` | the order of the merged list `x` |
//! | `$deleteFromPrimitiveList/x: [..]` | items of the list of scalars `x` go |

mod items;
mod lists;
mod lookup;
mod order;

use crate::{PatchError, go_fmt};
use keelson_meta::{Map, Str, Value};
use keelson_schema::{Presence, Schema, Shape};
use lookup::{Context, Member};
use std::collections::HashSet;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Merges `patch` into `original`, an object of `schema`. A patch that is not a map is refused.
pub fn apply(schema: &Schema, original: Value, patch: Value) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => {
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                other.type_name()
            )));
        }
    };
    let Value::Object(original) = original else {
        return Err(PatchError::Bare("invalid JSON document".to_owned()));
    };
    merge_map(original, patch, Context::root(schema)).map(Value::Object)
}

fn merge_map(original: Map, mut patch: Map, of: Context<'_>) -> Result<Map, PatchError> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => {
                patch.insert(PATCH, directive.clone());
                Err(unknown_directive(&directive, &patch))
            }
        };
    }
    let mut merged = original;
    if let Some(listed) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut merged, &patch, &listed)?;
    }
    lists::set_orders(&mut merged, &mut patch, of)?;
    let mut deletions = vec![];
    let mut changes = vec![];
    for (key, change) in patch {
        let is_deletion = key.starts_with(DELETE_FROM_LIST);
        if is_deletion { deletions.push((key, change)) } else { changes.push((key, change)) }
    }
    let mut merged = merge_members(merged, changes.into_iter().collect(), of)?;
    for (key, gone) in deletions {
        delete_from_list(&mut merged, &key, gone, of)?;
    }
    Ok(merged)
}

/// Merges the members that are no directives. Collects them at once: one by one, a large map would
/// cost its size for each entry.
fn merge_members(original: Map, mut changes: Map, of: Context<'_>) -> Result<Map, PatchError> {
    let mut merged: Vec<(Str, Value)> = Vec::with_capacity(original.len());
    for (key, current) in original {
        let value = match changes.get_mut(&key) {
            None => Some(current),
            // What is merged here is null then, and no change any more.
            Some(change) => merge_member(&key, Some(current), std::mem::take(change), of)?,
        };
        merged.extend(value.map(|value| (key, value)));
    }
    for (key, change) in changes {
        if change.is_null() {
            continue;
        }
        // A struct that Go holds by value is never absent.
        let is_there = change.as_object().is_some() && of.always_holds(&key);
        let current = is_there.then(|| Value::Object(Map::new()));
        let value = merge_member(&key, current, change, of)?;
        merged.extend(value.map(|value| (key, value)));
    }
    // What both sides have was taken out of the changes.
    Ok(Map::from_distinct(merged))
}

/// The merged member; `None` when it goes.
fn merge_member(
    key: &str,
    current: Option<Value>,
    change: Value,
    of: Context<'_>,
) -> Result<Option<Value>, PatchError> {
    Ok(match (current, change) {
        (_, Value::Null) => None,
        (Some(Value::Object(current)), Value::Object(change)) => {
            let member = of.member(key)?;
            Some(Value::Object(match member.is_replaced {
                true => change,
                false => merge_map(current, change, member.context())?,
            }))
        }
        (Some(Value::Array(current)), Value::Array(change)) => {
            let list = of.list(key)?;
            Some(Value::Array(lists::merge(current, change, &list)?))
        }
        (_, change) => without_directives(without_nulls(change)),
    })
}

/// `$deleteFromPrimitiveList/x`. Where `x` is no list in the object, nothing happens.
fn delete_from_list(
    merged: &mut Map,
    key: &str,
    gone: Value,
    of: Context<'_>,
) -> Result<(), PatchError> {
    let name = directive_target(key, DELETE_FROM_LIST, "invalid patch format of primitive list")?;
    if gone.is_null() {
        merged.remove(name);
        return Ok(());
    }
    if let (Some(Value::Array(current)), Value::Array(gone)) = (merged.get_mut(name), gone) {
        let list = of.list(name)?;
        let kept = lists::delete(std::mem::take(current), gone, &list)?;
        merged.insert(name, kept);
    }
    Ok(())
}

/// The name behind `prefix/`.
fn directive_target<'k>(key: &'k str, prefix: &str, error: &str) -> Result<&'k str, PatchError> {
    match key.split_once('/') {
        Some((first, name)) if first == prefix => Ok(name),
        _ => Err(PatchError::Malformed(error.to_owned())),
    }
}

fn retain_keys(merged: &mut Map, patch: &Map, listed: &Value) -> Result<(), PatchError> {
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let Value::Array(listed) = listed else { return Err(malformed()) };
    let listed: HashSet<&str> = listed.iter().filter_map(Value::as_str).collect();
    let is_listed = |key: &str| listed.contains(key);
    for (key, change) in patch.iter() {
        let is_directive = key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
        if !change.is_null() && !is_directive && !is_listed(key) {
            return Err(malformed());
        }
    }
    merged.retain(|key, _| is_listed(key));
    Ok(())
}

fn unknown_directive(directive: &Value, map: &Map) -> PatchError {
    PatchError::Bare(format!(
        "unknown patch type: {} in map: {}",
        go_fmt::text(directive),
        go_fmt::plain(&Value::Object(map.clone()))
    ))
}

/// Drops members that are null, in lists too; null items of lists stay.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, item)| !item.is_null())
                .map(|(key, item)| (key, without_nulls(item)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}

/// Drops the maps that hold a `$patch`, wherever they stand; `None` when the value is one.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            if map.contains_key(PATCH) {
                return None;
            }
            let kept = map
                .into_iter()
                .filter_map(|(key, item)| without_directives(item).map(|item| (key, item)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().filter_map(without_directives).collect())
        }
        scalar => scalar,
    })
}

impl Context<'_> {
    /// Whether Go holds a struct by value at `key`, so that it is there even when nothing is set.
    fn always_holds(&self, key: &str) -> bool {
        matches!(self, Context::Struct(_, of) if of.field(key).is_some_and(|field| {
            matches!(field.presence, Presence::Always | Presence::OmitEmpty)
                && matches!(field.shape, Shape::Struct(_))
        }))
    }
}

impl<'t> Member<'t> {
    /// What the members of this member are looked up in.
    fn context(&self) -> Context<'t> {
        Context::of(self.types, self.shape)
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
