//! Merges lists in a strategic merge patch, by key or by value, and runs the directives among their
//! items.

use super::items::{bad_type, key_of, no_merge_key, object};
use super::lookup::{Context, ListRules};
use super::order::{KeyIndex, Order, sort_items};
use super::{PATCH, SET_ORDER, directive_target, merge_map, unknown_directive, without_directives};
use crate::{PatchError, go_fmt};
use keelson_meta::{Map, Value};
use std::mem::{Discriminant, discriminant};

/// Merges every list of `patch` that has a `$setElementOrder/..` directive, puts it in that order,
/// and removes the list and the directive from the patch.
pub(super) fn set_orders(
    merged: &mut Map,
    patch: &mut Map,
    of: Context<'_>,
) -> Result<(), PatchError> {
    let directives: Vec<_> = patch
        .iter()
        .filter(|(key, _)| key.starts_with(SET_ORDER))
        .map(|(k, _)| k.clone())
        .collect();
    for directive in directives {
        let wanted = array(patch.remove(&directive).unwrap_or_default())?;
        let format = "invalid patch format of setElementOrder list";
        let name = directive_target(&directive, SET_ORDER, format)?;
        let original = merged.remove(name).map(array).transpose()?;
        let change = patch.remove(name).map(array).transpose()?;
        let rules = of.list(name)?;
        check_order(change.as_deref().unwrap_or_default(), &wanted, rules.key)?;
        if let Some(list) = merge_ordered(original, change, wanted, &rules)? {
            merged.insert(name, list);
        }
    }
    Ok(())
}

/// Returns the merged list in the order `wanted`; `None` when neither side has it.
fn merge_ordered(
    original: Option<Vec<Value>>,
    change: Option<Vec<Value>>,
    wanted: Vec<Value>,
    rules: &ListRules<'_>,
) -> Result<Option<Vec<Value>>, PatchError> {
    let empty = |list: &Option<Vec<Value>>| list.as_ref().is_none_or(Vec::is_empty);
    if original.is_none() && change.is_none() {
        return Ok(None);
    }
    if empty(&original) && empty(&change) {
        return Err(no_elements());
    }
    let items = [&original, &change];
    item_type(&items.map(|list| list.as_deref().unwrap_or_default()))?;
    let live = KeyIndex::of(original.as_deref().unwrap_or_default(), rules.key)?;
    let list = match (original, change) {
        (Some(original), Some(change)) => merge(original, change, rules)?,
        (Some(original), None) => original,
        (None, change) => change.into_iter().flatten().filter_map(without_directives).collect(),
    };
    let wanted = KeyIndex::of(&wanted, rules.key)?;
    sort_items(list, &Order { wanted, live }, rules.key).map(Some)
}

/// Checks that the items of the patch have the order of the directive.
fn check_order(change: &[Value], wanted: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if change.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut at = wanted.iter();
    for item in change {
        if key.is_some() {
            let map = object(item)?;
            if map.contains_key(PATCH) {
                continue;
            }
        }
        loop {
            let Some(next) = at.next() else {
                return Err(PatchError::Internal(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    go_fmt::plain_items(change),
                    go_fmt::plain_items(wanted)
                )));
            };
            if key_of(item, key)? == key_of(next, key)? {
                break;
            }
        }
    }
    Ok(())
}

/// Merges a list of the patch into the list of the object, or replaces it, as the schema says. A
/// merged list has the order of the patch.
pub(super) fn merge(
    original: Vec<Value>,
    change: Vec<Value>,
    rules: &ListRules<'_>,
) -> Result<Vec<Value>, PatchError> {
    if !rules.is_merged {
        return Ok(change);
    }
    if original.is_empty() && change.is_empty() {
        return Ok(original);
    }
    if item_type(&[&original, &change])? != discriminant(&Value::Object(Map::new())) {
        let order =
            Order { wanted: KeyIndex::of(&change, None)?, live: KeyIndex::of(&original, None)? };
        let mut all = original;
        all.extend(change);
        return sort_items(dedupe(all), &order, None);
    }
    let Some(key) = rules.key else {
        let kind = rules.item.kind();
        return Err(PatchError::Internal(format!(
            "cannot merge lists without merge key for {kind}"
        )));
    };
    let (original, change) = run_directives(original, change, key)?;
    let order = Order {
        wanted: KeyIndex::of(&change, Some(key))?,
        live: KeyIndex::of(&original, Some(key))?,
    };
    let merged = merge_items(original, change, key, rules.item)?;
    sort_items(merged, &order, Some(key))
}

/// Removes the items of `removed` from a list of scalars.
pub(super) fn delete(
    mut original: Vec<Value>,
    removed: Vec<Value>,
    rules: &ListRules<'_>,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && removed.is_empty() {
        return Ok(original);
    }
    if item_type(&[&original, &removed])? == discriminant(&Value::Object(Map::new())) {
        // Upstream merges lists of maps here, whatever the patch strategy of the field.
        let merged = ListRules { item: rules.item, is_merged: true, key: rules.key };
        return merge(original, removed, &merged);
    }
    let removed = KeyIndex::of(&removed, None)?;
    original.retain(|item| removed.find(item).is_none());
    Ok(original)
}

/// Runs the items of the patch that are directives. Returns both lists without them.
fn run_directives(
    mut original: Vec<Value>,
    change: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(change.len());
    let mut is_replaced = false;
    let mut removed = KeyIndex::default();
    for item in change {
        let map = object(&item)?;
        let Some(directive) = map.get(PATCH) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let key_value = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
                removed.push(key_value.clone());
            }
            Some("replace") => is_replaced = true,
            Some("merge") => {
                let text = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Internal(text.to_owned()));
            }
            _ => return Err(unknown_directive(directive, map)),
        }
    }
    original.retain(|item| item.get(key).is_none_or(|value| removed.find(value).is_none()));
    Ok(if is_replaced { (plain, vec![]) } else { (original, plain) })
}

fn merge_items(
    mut merged: Vec<Value>,
    change: Vec<Value>,
    key: &str,
    item_type: Context<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut index = KeyIndex::of_optional(&merged, key);
    for item in change {
        let Value::Object(map) = item else { continue };
        let key_value = map.get(key).ok_or_else(|| no_merge_key(&map, key))?;
        match index.find(key_value) {
            Some(at) => {
                let current = merged[at].as_object_mut().map(std::mem::take).unwrap_or_default();
                merged[at] = Value::Object(merge_map(current, map, item_type)?);
            }
            None => {
                index.push(key_value.clone());
                merged.push(Value::Object(map));
            }
        }
    }
    Ok(merged)
}

/// Removes duplicates. Like upstream, the last item takes the place of a removed one.
fn dedupe(mut items: Vec<Value>) -> Vec<Value> {
    let mut seen = KeyIndex::default();
    let mut at = 0;
    while at < items.len() {
        if seen.find(&items[at]).is_some() {
            items.swap_remove(at);
        } else {
            seen.push(items[at].clone());
            at += 1;
        }
    }
    items
}

/// Returns the common type of all items, or an error when they differ.
fn item_type(lists: &[&[Value]]) -> Result<Discriminant<Value>, PatchError> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let first = items.next().ok_or_else(no_elements)?;
    if first.as_array().is_some() {
        return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
    }
    if first.is_null() || items.any(|item| discriminant(item) != discriminant(first)) {
        return Err(PatchError::Internal(format!(
            "list element types are not identical: {}",
            go_fmt::plain_lists(lists)
        )));
    }
    Ok(discriminant(first))
}

fn array(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

fn no_elements() -> PatchError {
    PatchError::Internal("no elements in any of the given slices".to_owned())
}
