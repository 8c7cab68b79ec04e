//! The order of a merged list: the items of the patch in the order of the patch, and the items that
//! only the live list has interleaved at their old positions.

use super::items::key_of;
use crate::PatchError;
use keelson_meta::status::quote;
use keelson_meta::{Str, Value};
use std::collections::HashMap;

/// Up to this many keys are searched linearly.
const LINEAR_KEYS_MAX: usize = 16;
/// Go sorts up to this many items by insertion. Upstream's comparison is inconsistent, so the
/// algorithm shows.
const INSERTION_ITEMS_MAX: usize = 20;

/// The orders of the patch and of the live list.
pub(super) struct Order {
    pub(super) wanted: KeyIndex,
    pub(super) live: KeyIndex,
}

/// Finds the first position of a merge key in a list.
#[derive(Default)]
pub(super) struct KeyIndex {
    keys: Vec<Value>,
    /// Filled once there are more than [`LINEAR_KEYS_MAX`] keys.
    positions: HashMap<HashedKey, usize>,
}

/// A merge key in a form that can be hashed.
#[derive(PartialEq, Eq, Hash)]
enum HashedKey {
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(Str),
    /// Null, a list or a map, as text that is equal for equal values.
    Nested(String),
}

impl KeyIndex {
    /// Indexes the keys of a list. Fails when an item has none.
    pub(super) fn of(items: &[Value], key: Option<&str>) -> Result<Self, PatchError> {
        let mut index = KeyIndex::default();
        for item in items {
            index.push(key_of(item, key)?.clone());
        }
        Ok(index)
    }

    /// Indexes the keys of a list. Items without a key are never found.
    pub(super) fn of_optional(items: &[Value], key: &str) -> Self {
        let mut index = KeyIndex::default();
        for item in items {
            // An empty list stands for a missing key: it equals no merge key.
            index.push(item.get(key).cloned().unwrap_or(Value::Array(vec![])));
        }
        index
    }

    pub(super) fn push(&mut self, key: Value) {
        self.keys.push(key);
        if self.keys.len() <= LINEAR_KEYS_MAX {
            return;
        }
        let indexed = if self.positions.is_empty() { 0 } else { self.keys.len() - 1 };
        for at in indexed..self.keys.len() {
            self.positions.entry(hash(&self.keys[at])).or_insert(at);
        }
    }

    /// Returns the first position of `key`.
    pub(super) fn find(&self, key: &Value) -> Option<usize> {
        if self.keys.len() > LINEAR_KEYS_MAX {
            return self.positions.get(&hash(key)).copied();
        }
        self.keys.iter().position(|candidate| candidate == key)
    }
}

fn hash(key: &Value) -> HashedKey {
    match key {
        Value::Bool(flag) => HashedKey::Bool(*flag),
        Value::Int(number) => HashedKey::Int(*number),
        // Adding zero turns -0.0 into 0.0, which it equals.
        Value::Float(number) => HashedKey::Float((number + 0.0).to_bits()),
        Value::String(text) => HashedKey::Text(text.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) | Value::Raw(_) => {
            let mut text = String::new();
            write_nested(key, &mut text);
            HashedKey::Nested(text)
        }
    }
}

/// Writes a text that is equal for two values exactly when the values are equal.
fn write_nested(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_nested(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (key, item) in map.sorted() {
                out.push_str(&quote(key));
                write_nested(item, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Raw(text) => {
            out.push('r');
            out.push_str(text);
        }
        Value::Float(number) => out.push_str(&format!("f{:x}", (number + 0.0).to_bits())),
        scalar => out.push_str(&keelson_meta::status::show(scalar)),
    }
}

/// An item with its positions in the two orders.
struct PositionedItem {
    item: Value,
    wanted: Option<usize>,
    live: Option<usize>,
}

/// Sorts the items of a merged list.
pub(super) fn sort_items(
    items: Vec<Value>,
    order: &Order,
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let mut in_patch = Vec::with_capacity(items.len());
    let mut server_only = vec![];
    for item in items {
        let key_value = key_of(&item, key)?;
        let wanted = order.wanted.find(key_value);
        let live = order.live.find(key_value);
        let item = PositionedItem { item, wanted, live };
        if wanted.is_some() { in_patch.push(item) } else { server_only.push(item) }
    }
    in_patch.sort_by_key(|item| item.wanted);
    sort_by_live(&mut server_only);
    Ok(interleave(server_only, in_patch))
}

/// Sorts by position in the live list. Upstream treats every pair with an item that the live list
/// lacks as out of order, which moves such items to the front of short lists.
fn sort_by_live(items: &mut [PositionedItem]) {
    if items.iter().all(|item| item.live.is_some()) || items.len() > INSERTION_ITEMS_MAX {
        items.sort_by_key(|item| item.live);
        return;
    }
    for at in 1..items.len() {
        let mut to = at;
        while to > 0 && is_less(&items[to], &items[to - 1]) {
            items.swap(to, to - 1);
            to -= 1;
        }
    }
}

fn is_less(left: &PositionedItem, right: &PositionedItem) -> bool {
    match (left.live, right.live) {
        (Some(left), Some(right)) => left < right,
        _ => true,
    }
}

/// Puts a server-only item before the next patch item if it came first in the live list.
fn interleave(server_only: Vec<PositionedItem>, in_patch: Vec<PositionedItem>) -> Vec<Value> {
    let mut out = Vec::with_capacity(server_only.len() + in_patch.len());
    let mut left = server_only.into_iter().peekable();
    let mut right = in_patch.into_iter().peekable();
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => {
                matches!((left.live, right.live), (Some(left), Some(right)) if left < right)
            }
        };
        let next = if take_left { left.next() } else { right.next() };
        out.extend(next.map(|item| item.item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn keys_of_all_types_are_found_in_short_and_long_lists() {
        let keys = [
            Value::Null,
            value!([]),
            value!([[], null]),
            value!([[null]]),
            value!({"a": 1, "b": "1"}),
            value!({"a": "1", "b": 1}),
            value!("[]"),
            value!(0.5),
            value!(1),
            value!(true),
        ];
        for others in [0, 40] {
            let mut index = KeyIndex::default();
            (0..others).for_each(|at| index.push(Value::from(format!("k{at}"))));
            assert!(keys.iter().all(|key| index.find(key).is_none()));
            keys.iter().for_each(|key| index.push(key.clone()));
            for (at, key) in keys.iter().enumerate() {
                assert_eq!(index.find(key), Some(others as usize + at), "{key:?}");
            }
            assert_eq!(index.find(&value!({"b": "1", "a": 1})), Some(others as usize + 4));
        }
    }
}
