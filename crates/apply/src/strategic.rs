//! Strategic merge patch: a merge patch that merges lists by the merge keys of the schema and
//! supports directives.
//!
//! | directive | effect |
//! |---|---|
//! | `$patch: replace` / `delete` in a map | replaces / empties the map |
//! | `$patch: delete` / `replace` in an item of a merged list | removes the item / replaces the whole list |
//! | `$retainKeys: [..]` | removes the members of the original that are not listed |
//! | `$setElementOrder/x: [..]` | orders the merged list `x` |
//! | `$deleteFromPrimitiveList/x: [..]` | removes items of the list of scalars `x` |

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

/// Merges `patch` into `original`, an object of `schema`. Fails when either is not a map.
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
        return Err(PatchError::Internal("invalid JSON document".to_owned()));
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
    for (key, removed) in deletions {
        delete_from_list(&mut merged, &key, removed, of)?;
    }
    Ok(merged)
}

/// Merges the members that are not directives. Collects all entries first: inserting them one by
/// one costs O(entries) each.
fn merge_members(original: Map, mut changes: Map, of: Context<'_>) -> Result<Map, PatchError> {
    let mut merged: Vec<(Str, Value)> = Vec::with_capacity(original.len());
    for (key, current) in original {
        let value = match changes.get_mut(&key) {
            None => Some(current),
            // Leaves null in the changes: the second loop skips merged members.
            Some(change) => merge_member(&key, Some(current), std::mem::take(change), of)?,
        };
        merged.extend(value.map(|value| (key, value)));
    }
    for (key, change) in changes {
        if change.is_null() {
            continue;
        }
        // A Go struct held by value is never absent.
        let is_present = change.as_object().is_some() && of.holds_by_value(&key);
        let current = is_present.then(|| Value::Object(Map::new()));
        let value = merge_member(&key, current, change, of)?;
        merged.extend(value.map(|value| (key, value)));
    }
    // Keys are distinct: shared members were merged in the first loop.
    Ok(Map::from_distinct(merged))
}

/// Merges one member; `None` removes it.
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

/// Applies `$deleteFromPrimitiveList/x`. Does nothing when `x` is not a list in the object.
fn delete_from_list(
    merged: &mut Map,
    key: &str,
    removed: Value,
    of: Context<'_>,
) -> Result<(), PatchError> {
    let name = directive_target(key, DELETE_FROM_LIST, "invalid patch format of primitive list")?;
    if removed.is_null() {
        merged.remove(name);
        return Ok(());
    }
    if let (Some(Value::Array(current)), Value::Array(removed)) = (merged.get_mut(name), removed) {
        let list = of.list(name)?;
        let items = lists::delete(std::mem::take(current), removed, &list)?;
        merged.insert(name, items);
    }
    Ok(())
}

/// Returns the member name of a directive `prefix/name`.
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
    PatchError::Internal(format!(
        "unknown patch type: {} in map: {}",
        go_fmt::text(directive),
        go_fmt::plain(&Value::Object(map.clone()))
    ))
}

/// Returns a patch as upstream's messages show it: merging has removed the nulls of values that
/// replace others of another type, or that are new.
pub fn without_replaced_nulls(original: &Value, patch: Value) -> Value {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Value::Null;
    };
    let left = patch.into_iter().map(|(key, change)| {
        let change = match (original.get(&key), change) {
            (Some(old @ Value::Object(_)), change @ Value::Object(_)) => {
                without_replaced_nulls(old, change)
            }
            (Some(old), change) if old.type_name() == change.type_name() => change,
            (_, change) => without_nulls(change),
        };
        (key, change)
    });
    Value::Object(left.collect())
}

/// Removes null members, also of maps in lists. Null items of lists stay.
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

/// Removes all maps with a `$patch` member at any depth; `None` when the value is such a map.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            if map.contains_key(PATCH) {
                return None;
            }
            let members = map
                .into_iter()
                .filter_map(|(key, item)| without_directives(item).map(|item| (key, item)));
            Value::Object(members.collect())
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().filter_map(without_directives).collect())
        }
        scalar => scalar,
    })
}

impl Context<'_> {
    /// Returns whether `key` is a struct that Go holds by value, so that it is present even when
    /// not set.
    fn holds_by_value(&self, key: &str) -> bool {
        matches!(self, Context::Struct(_, of) if of.field(key).is_some_and(|field| {
            matches!(field.presence, Presence::Always | Presence::OmitEmpty)
                && matches!(field.shape, Shape::Struct(_))
        }))
    }
}

impl<'t> Member<'t> {
    /// Returns the context for the members of this member.
    fn context(&self) -> Context<'t> {
        Context::of(self.types, self.shape)
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
