//! [`Value`]: a decoded JSON-like tree, the form in which objects are processed.
//!
//! Strings of up to 23 bytes are stored inline, longer ones are shared, so a clone never copies
//! text. Field names from a schema are static or shared and cost no allocation per object.

use std::fmt;

/// The string type of values and map keys.
pub type Str = smol_str::SmolStr;

/// A JSON-like value. Integers and floats are kept apart, as the API does.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// JSON null.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// Any other number; never NaN or infinite.
    Float(f64),
    /// Text.
    String(Str),
    /// A list.
    Array(Vec<Value>),
    /// A map or a struct.
    Object(Map),
    /// A value as JSON text. Two kinds of values are stored unparsed: the fields of a managedFields
    /// entry, in objects that were stored or are about to be, because most writes do not read them;
    /// and values of type `runtime.RawExtension`, which must be preserved byte by byte.
    Raw(Str),
}

impl Value {
    /// Returns the text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer, if this is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Returns the items, if this is a list.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the items mutably, if this is a list.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the map, if this is one.
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the map mutably, if this is one.
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the member `name` of a map.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object().and_then(|map| map.get(name))
    }

    /// Returns the value at a path of member names: `value.at(&["spec", "replicas"])`.
    pub fn at(&self, names: &[&str]) -> Option<&Value> {
        names.iter().try_fold(self, |value, name| value.get(name))
    }

    /// Returns the string at a path of member names.
    pub fn str_at(&self, names: &[&str]) -> Option<&str> {
        self.at(names).and_then(Value::as_str)
    }

    /// Returns the integer at a path of member names.
    pub fn int_at(&self, names: &[&str]) -> Option<i64> {
        self.at(names).and_then(Value::as_int)
    }

    /// Returns the items at a path of member names; empty if there is no list.
    pub fn array_at(&self, names: &[&str]) -> &[Value] {
        self.at(names).and_then(Value::as_array).unwrap_or_default()
    }

    /// Returns whether this is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns whether this is a map, including one that is stored as text.
    pub fn is_map(&self) -> bool {
        match self {
            Value::Object(_) => true,
            Value::Raw(text) => text.trim_start().starts_with('{'),
            _ => false,
        }
    }

    /// Returns whether Go's `omitempty` omits the value: null, false, 0, "", [] and {}.
    pub fn is_empty(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Int(number) => *number == 0,
            Value::Float(number) => *number == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Raw(text) => text == "{}",
        }
    }

    /// Returns the value with the members of all objects sorted by name, as Go prints maps.
    #[must_use]
    pub fn sorted(self) -> Value {
        match self {
            Value::Object(map) => {
                let members = map.into_iter().map(|(name, value)| (name, value.sorted()));
                let mut map: Map = members.collect();
                map.sort();
                Value::Object(map)
            }
            Value::Array(items) => Value::Array(items.into_iter().map(Value::sorted).collect()),
            other => other,
        }
    }

    /// Returns the type name in messages: `string`, `number`, `bool`, `array`, `object`, `null`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) | Value::Raw(_) => "object",
        }
    }

    /// Returns the nesting depth: 1 for a scalar, one more for each list or map around it.
    pub fn depth(&self) -> usize {
        match self {
            Value::Array(items) => 1 + items.iter().map(Value::depth).max().unwrap_or(0),
            Value::Object(map) => 1 + map.iter().map(|(_, v)| v.depth()).max().unwrap_or(0),
            _ => 1,
        }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(Str::new(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(Str::from(text))
    }
}

impl From<Str> for Value {
    fn from(text: Str) -> Self {
        Value::String(text)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Value::Object(map)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Value::Array(items)
    }
}

/// Up to this number of entries, a map keeps its order and is searched linearly; a larger one is
/// sorted.
const LINEAR_ENTRIES_MAX: usize = 32;

/// String keys with values. A small map keeps the order of insertion; a large one is sorted by key,
/// so that no sequence of operations costs more than linear time per entry.
#[derive(Clone, Default)]
pub struct Map {
    /// Invariant: no key twice; sorted by key when there are more than [`LINEAR_ENTRIES_MAX`].
    entries: Vec<(Str, Value)>,
    /// Invariant: has the [`key_bit`] of every key, and possibly of removed keys. Most fields that
    /// validation reads are absent and need no search.
    key_bits: u64,
}

impl Map {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Map { entries: Vec::new(), key_bits: 0 }
    }

    /// Creates an empty map with capacity for `size` entries.
    pub fn with_capacity(size: usize) -> Self {
        Map { entries: Vec::with_capacity(size), key_bits: 0 }
    }

    /// Builds a map from entries with possible duplicates: the last value wins, in the position of
    /// the first. Each duplicate key is passed to `duplicate`. Costs O(n log n).
    pub fn from_entries(entries: Vec<(Str, Value)>, mut duplicate: impl FnMut(&Str)) -> Self {
        Map::merged(entries, &mut duplicate)
    }

    /// [`Map::from_entries`], compiled once and not for each caller.
    fn merged(entries: Vec<(Str, Value)>, duplicate: &mut dyn FnMut(&Str)) -> Self {
        if entries.len() <= LINEAR_ENTRIES_MAX {
            if !has_duplicates(&entries) {
                return Map::of(entries);
            }
            let mut map = Map::with_capacity(entries.len());
            for (key, value) in entries {
                if let Some(slot) = map.get_mut(&key) {
                    duplicate(&key);
                    *slot = value;
                } else {
                    map.key_bits |= key_bit(&key);
                    map.entries.push((key, value));
                }
            }
            return map;
        }
        let mut sorted = entries;
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        sorted.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                duplicate(&kept.0);
                std::mem::swap(&mut kept.1, &mut later.1);
            }
            is_same
        });
        if sorted.len() < sorted.capacity() / 2 {
            sorted.shrink_to_fit();
        }
        Map::of(sorted)
    }

    /// Builds a map from entries without duplicates. Free for a small map.
    #[inline]
    pub fn from_distinct(entries: Vec<(Str, Value)>) -> Self {
        if entries.len() > LINEAR_ENTRIES_MAX {
            return Map::from_entries(entries, |key| panic!("{key:?} stands twice"));
        }
        debug_assert!(!has_duplicates(&entries), "a key stands twice: {entries:?}");
        Map::of(entries)
    }

    fn of(entries: Vec<(Str, Value)>) -> Self {
        let key_bits = entries.iter().fold(0, |bits, (key, _)| bits | key_bit(key));
        Map { entries, key_bits }
    }

    /// Returns the index of `key`.
    #[inline]
    fn find(&self, key: &str) -> Option<usize> {
        // The bit of a literal is a compile-time constant.
        if self.key_bits & key_bit(key) == 0 { None } else { self.position(key).ok() }
    }

    /// Returns the index of `key`, or where it would be inserted.
    fn position(&self, key: &str) -> Result<usize, usize> {
        if self.entries.len() <= LINEAR_ENTRIES_MAX {
            return self.entries.iter().position(|(k, _)| k == key).ok_or(self.entries.len());
        }
        self.entries.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// Returns the value at `key`.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).map(|at| &self.entries[at].1)
    }

    /// Returns the value at `key` mutably.
    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.find(key).map(|at| &mut self.entries[at].1)
    }

    /// Returns whether `key` is present, even with null.
    #[inline]
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Sets `key` to `value` and returns the previous value.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Value>) -> Option<Value> {
        let key = key.into();
        let value = value.into();
        let bit = key_bit(&key);
        let is_new = self.key_bits & bit == 0 && self.entries.len() < LINEAR_ENTRIES_MAX;
        self.key_bits |= bit;
        match if is_new { Err(self.entries.len()) } else { self.position(&key) } {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                let length = self.entries.len();
                if length == self.entries.capacity() && length < LINEAR_ENTRIES_MAX {
                    // Most maps that grow get a few defaults: doubling would waste memory.
                    self.entries.reserve_exact((length / 2).max(2));
                }
                self.entries.insert(at, (key, value));
                if self.entries.len() == LINEAR_ENTRIES_MAX + 1 {
                    self.entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                None
            }
        }
    }

    /// Appends the entries whose key is absent or null here. Costs O(n log n), where one
    /// [`Map::insert`] for each would cost O(n) each.
    pub fn fill(&mut self, entries: impl IntoIterator<Item = (Str, Value)>) {
        let mut added: Vec<(Str, Value)> = vec![];
        for (key, value) in entries {
            match self.get_mut(&key) {
                Some(slot) if slot.is_null() => *slot = value,
                Some(_) => {}
                None => added.push((key, value)),
            }
        }
        if !added.is_empty() {
            let mut all = std::mem::take(&mut self.entries);
            all.append(&mut added);
            *self = Map::from_entries(all, |_| ());
        }
    }

    /// Returns the value of `key`; inserts the result of `make` when absent.
    pub fn entry_or(&mut self, key: &str, make: impl FnOnce() -> Value) -> &mut Value {
        if !self.contains_key(key) {
            self.insert(key, make());
        }
        self.get_mut(key).expect("the key was just inserted")
    }

    /// Returns the map at `key`; replaces anything else with an empty map.
    pub fn object_at(&mut self, key: &str) -> &mut Map {
        let slot = self.entry_or(key, || Value::Object(Map::new()));
        if !matches!(slot, Value::Object(_)) {
            *slot = Value::Object(Map::new());
        }
        slot.as_object_mut().expect("the slot was just made a map")
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).map(|at| self.entries.remove(at).1)
    }

    /// Keeps the entries for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Str, &mut Value) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// Returns the entries in the order of the map.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Str, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Returns the value at an index in the map's order.
    pub fn value_at(&self, place: usize) -> Option<&Value> {
        self.entries.get(place).map(|(_, value)| value)
    }

    /// Returns the entries in the order of the map, with mutable values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Str, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// Returns the entries sorted by key.
    pub fn sorted(&self) -> Vec<(&Str, &Value)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by(|a, b| a.0.cmp(b.0));
        all
    }

    /// Sorts the entries by key.
    pub fn sort(&mut self) {
        self.entries.sort_by(|a, b| a.0.cmp(&b.0));
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Returns one of 64 bits, by the length and three bytes of a key.
#[inline]
const fn key_bit(key: &str) -> u64 {
    let key = key.as_bytes();
    let length = key.len();
    if length == 0 {
        return 1;
    }
    let bytes = [key[0], key[length / 2], key[length - 1], length as u8];
    // The upper bits of a product depend on all lower bits.
    1 << (u32::from_le_bytes(bytes).wrapping_mul(0x9e37_79b1) >> 26)
}

/// Returns whether a key is a duplicate, for small maps.
fn has_duplicates(entries: &[(Str, Value)]) -> bool {
    entries.iter().enumerate().any(|(at, (key, _))| entries[..at].iter().any(|(k, _)| k == key))
}

impl PartialEq for Map {
    /// Compares entries in any order.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(k, v)| other.get(k) == Some(v))
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl FromIterator<(Str, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Str, Value)>>(entries: I) -> Self {
        Map::from_entries(entries.into_iter().collect(), |_| ())
    }
}

/// Builds a [`Value`] in JSON notation: `value!({"a": [1, true, null], "b": (expression)})`.
#[macro_export]
macro_rules! value {
    (null) => { $crate::Value::Null };
    ([ $($item:tt),* $(,)? ]) => { $crate::Value::Array(vec![ $( $crate::value!($item) ),* ]) };
    ({ $($key:literal : $item:tt),* $(,)? }) => {{
        #[allow(unused_mut)]
        let mut map = $crate::Map::with_capacity(<[&str]>::len(&[$($key),*]));
        $( map.insert($key, $crate::value!($item)); )*
        $crate::Value::Object(map)
    }};
    (($item:expr)) => { $crate::Value::from($item) };
    ($item:expr) => { $crate::Value::from($item) };
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Value::Int(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Float(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_as_large_as_its_string() {
        assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
    }

    /// Every way to create or change a map must record its keys, or [`Map::get`] does not find
    /// them.
    #[test]
    fn keys_are_found_after_every_kind_of_insertion() {
        let keys = |count: usize| (0..count).map(|i| (Str::new(format!("{i}é")), Value::from(1)));
        let is_whole = |map: &Map, count| keys(count).all(|(key, _)| map.contains_key(&key));
        for count in [0, 1, 5, LINEAR_ENTRIES_MAX, LINEAR_ENTRIES_MAX + 1, 200] {
            let all: Vec<_> = keys(count).collect();
            let twice = all.iter().chain(&all).cloned().collect();
            let mut inserted = Map::new();
            for (key, value) in all.clone() {
                assert_eq!(inserted.insert(key, value), None);
            }
            let mut filled = Map::new();
            filled.fill(all.clone());
            let mut put_back = inserted.clone();
            for (key, value) in &all {
                assert_eq!(put_back.remove(key).as_ref(), Some(value));
                assert!(!put_back.contains_key(key));
                put_back.entry_or(key, || value.clone());
            }
            let made = [Map::from_entries(twice, |_| ()), Map::from_distinct(all)];
            for map in made.iter().chain([&inserted, &filled, &put_back]) {
                assert!(map.len() == count && is_whole(map, count), "{count}: {map:?}");
            }
        }
        assert_eq!(Map::from_iter([(Str::new(""), Value::Null)]).get(""), Some(&Value::Null));
    }

    #[test]
    fn a_large_map_is_sorted_and_found_again() {
        let mut map = Map::new();
        for i in (0..100).rev() {
            map.insert(format!("k{i:03}"), i);
        }
        let keys: Vec<&str> = map.iter().map(|(k, _)| k.as_str()).collect();
        assert!(keys.is_sorted());
        assert_eq!(map.get("k042"), Some(&Value::Int(42)));
        assert_eq!(map.remove("k042"), Some(Value::Int(42)));
        assert_eq!(map.get("k042"), None);
    }

    #[test]
    fn filling_adds_absent_and_null_members() {
        let pairs = |keys: std::ops::Range<i32>, value: i32| {
            keys.map(move |key| (Str::from(format!("k{key:03}")), Value::from(value)))
        };
        for count in [3, 60] {
            let mut map: Map = pairs(0..count, 1).collect();
            map.insert("k000", Value::Null);
            map.fill(pairs(0..2 * count, 2));
            assert_eq!(map.len(), 2 * count as usize);
            assert_eq!(map.get("k000"), Some(&Value::Int(2)));
            assert_eq!(map.get("k001"), Some(&Value::Int(1)));
            assert_eq!(map.get(&format!("k{count:03}")), Some(&Value::Int(2)));
        }
    }

    #[test]
    fn the_last_of_equal_keys_replaces_the_value_of_the_first() {
        for extra in [0, 40] {
            let mut entries: Vec<(Str, Value)> =
                vec![("a".into(), 1.into()), ("b".into(), 2.into()), ("a".into(), 3.into())];
            entries.extend((0..extra).map(|i| (format!("x{i}").into(), Value::Null)));
            let mut seen = vec![];
            let map = Map::from_entries(entries, |key| seen.push(key.clone()));
            assert_eq!(map.get("a"), Some(&Value::Int(3)));
            assert_eq!(map.iter().next().map(|(k, _)| k.as_str()), Some("a"));
            assert_eq!(seen, ["a"]);
        }
    }

    #[test]
    fn maps_are_equal_whatever_their_order() {
        assert_eq!(value!({"a": 1, "b": [null, true]}), value!({"b": [null, true], "a": 1}));
        assert_ne!(value!({"a": 1}), value!({"a": 1, "b": null}));
    }
}
