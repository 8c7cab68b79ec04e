//! The order of a merged list: first what the patch wants, then what the live list had, items that
//! only the live list has interleaved where they stood.

use super::items::key_of;
use crate::PatchError;
use keelson_meta::status::quote;
use keelson_meta::{Str, Value};
use std::collections::HashMap;

/// Up to this many keys are searched in a row.
const LINEAR_KEYS_MAX: usize = 16;
/// Up to this many items Go sorts by insertion, which upstream's comparison makes visible.
const INSERTION_ITEMS_MAX: usize = 20;

/// The two orders that a merged list obeys.
pub(super) struct Order {
    pub(super) wanted: Places,
    pub(super) live: Places,
}

/// Keys and the places where they stand first.
#[derive(Default)]
pub(super) struct Places {
    keys: Vec<Value>,
    /// Filled once there are more than [`LINEAR_KEYS_MAX`] keys.
    index: HashMap<Hashed, usize>,
}

/// A scalar that can be hashed.
#[derive(PartialEq, Eq, Hash)]
enum Hashed {
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(Str),
    /// Null, a list or a map, as text that is the same for equal ones.
    Nested(String),
}

impl Places {
    /// The keys of a list; every item must have one.
    pub(super) fn of(items: &[Value], key: Option<&str>) -> Result<Self, PatchError> {
        let mut places = Places::default();
        for item in items {
            places.push(key_of(item, key)?.clone());
        }
        Ok(places)
    }

    /// The keys of a list in which items without one keep their place but are never found.
    pub(super) fn growing(items: &[Value], key: &str) -> Self {
        let mut places = Places::default();
        for item in items {
            // A list equals no merge key that anything has.
            places.push(item.get(key).cloned().unwrap_or(Value::Array(vec![])));
        }
        places
    }

    pub(super) fn push(&mut self, key: Value) {
        self.keys.push(key);
        if self.keys.len() <= LINEAR_KEYS_MAX {
            return;
        }
        let indexed = if self.index.is_empty() { 0 } else { self.keys.len() - 1 };
        for at in indexed..self.keys.len() {
            self.index.entry(hash(&self.keys[at])).or_insert(at);
        }
    }

    /// The first place of `key`.
    pub(super) fn find(&self, key: &Value) -> Option<usize> {
        if self.keys.len() > LINEAR_KEYS_MAX {
            return self.index.get(&hash(key)).copied();
        }
        self.keys.iter().position(|candidate| candidate == key)
    }
}

fn hash(key: &Value) -> Hashed {
    match key {
        Value::Bool(flag) => Hashed::Bool(*flag),
        Value::Int(number) => Hashed::Int(*number),
        // Zero equals minus zero.
        Value::Float(number) => Hashed::Float((number + 0.0).to_bits()),
        Value::String(text) => Hashed::Text(text.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) | Value::Raw(_) => {
            let mut text = String::new();
            write_nested(key, &mut text);
            Hashed::Nested(text)
        }
    }
}

/// Text that equal values share, and unequal ones do not.
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

/// An item on its way to its place.
struct Placed {
    item: Value,
    wanted: Option<usize>,
    live: Option<usize>,
}

/// Puts the items of a merged list in order.
pub(super) fn arrange(
    items: Vec<Value>,
    order: &Order,
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let mut in_patch = Vec::with_capacity(items.len());
    let mut server_only = vec![];
    for item in items {
        let key_value = key_of(&item, key)?;
        let (wanted, live) = (order.wanted.find(key_value), order.live.find(key_value));
        let placed = Placed { item, wanted, live };
        if wanted.is_some() { in_patch.push(placed) } else { server_only.push(placed) }
    }
    in_patch.sort_by_key(|placed| placed.wanted);
    sort_by_live(&mut server_only);
    Ok(interleave(server_only, in_patch))
}

/// Upstream takes every pair of which one is unknown to the live list as out of order; for short
/// lists that moves the unknown items to the front in a way clients can see.
fn sort_by_live(items: &mut [Placed]) {
    if items.iter().all(|placed| placed.live.is_some()) || items.len() > INSERTION_ITEMS_MAX {
        items.sort_by_key(|placed| placed.live);
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

fn is_less(left: &Placed, right: &Placed) -> bool {
    match (left.live, right.live) {
        (Some(left), Some(right)) => left < right,
        _ => true,
    }
}

/// Puts a server-only item before the next patch item when it stood before it in the live list.
fn interleave(server_only: Vec<Placed>, in_patch: Vec<Placed>) -> Vec<Value> {
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
        out.extend(next.map(|placed| placed.item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn keys_of_all_types_are_found_however_many_there_are() {
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
            let mut places = Places::default();
            (0..others).for_each(|at| places.push(Value::from(format!("k{at}"))));
            assert!(keys.iter().all(|key| places.find(key).is_none()));
            keys.iter().for_each(|key| places.push(key.clone()));
            for (at, key) in keys.iter().enumerate() {
                assert_eq!(places.find(key), Some(others as usize + at), "{key:?}");
            }
            assert_eq!(places.find(&value!({"b": "1", "a": 1})), Some(others as usize + 4));
        }
    }
}
