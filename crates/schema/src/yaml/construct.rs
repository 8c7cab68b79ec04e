//! Makes the value of a document: resolves scalars, expands aliases and merges maps, with limits on
//! the expansion.
//!
//! As in upstream, the value is what remains after a conversion to JSON: keys are strings, whole
//! floats are integers, and other floats are finite.

use super::document::{Document, NodeKind};
use super::go_value;
use super::resolve::{Scalar, resolve};
use super::{ParsedYaml, YamlError};
use crate::json::DEPTH_MAX;
use keelson_meta::status::quote;
use keelson_meta::{Map, Str, Value};
use std::cmp::Ordering;

/// Number of nodes that aliases may always add, and size of a document up to which all nodes may
/// come from aliases.
const ALIASED_NODES_FREE: usize = 100;
const NODES_FREE: usize = 1_000;
/// Up to this number of nodes, nearly all may come from aliases; from [`NODES_LARGE`] on, only a
/// tenth. In between the allowed share decreases linearly, as upstream's does.
const NODES_SMALL: usize = 400_000;
const NODES_LARGE: usize = 4_000_000;

/// Maximum length of text that aliases may add. kube-apiserver has no such limit and allocates that
/// much for each alias.
const ALIASED_BYTES_MAX: usize = 3 << 20;

/// Maximum number of duplicate keys that are reported, and of the bytes of their names; the key
/// that exceeds it is the last. kube-apiserver reports all.
const DUPLICATES_MAX: usize = 10_000;
const DUPLICATES_BYTES_MAX: usize = 1 << 20;

/// Makes the value of a document.
pub(super) fn construct(document: &Document<'_>) -> Result<ParsedYaml, YamlError> {
    if document.nodes.is_empty() {
        return Ok(ParsedYaml::default());
    }
    let mut constructor = Constructor {
        document,
        decoded: 1,
        aliased: 0,
        aliased_bytes: 0,
        aliases: 0,
        depth: 0,
        keys_set: 0,
        duplicates: vec![],
        duplicate_bytes: 0,
        has_invalid_key: false,
        has_invalid_number: false,
    };
    let value = constructor.value(0)?;
    if constructor.has_invalid_key
        && let Some(why) = go_value::invalid_key(document)?
    {
        return Err(YamlError::KeyType(why));
    }
    if constructor.has_invalid_number
        && let Some(number) = invalid_number(&value)
    {
        return Err(YamlError::Number(number));
    }
    let mut duplicates = constructor.duplicates;
    duplicates.sort_by_key(|duplicate| duplicate.set);
    let duplicates = duplicates.into_iter().map(|duplicate| (duplicate.line, duplicate.key));
    Ok(ParsedYaml { value, duplicates: duplicates.collect() })
}

struct Constructor<'a> {
    document: &'a Document<'a>,
    /// Number of nodes that were decoded, one for the document included.
    decoded: usize,
    /// Number of those that were decoded for an alias, and the length of their text.
    aliased: usize,
    aliased_bytes: usize,
    /// Number of aliases that are being expanded.
    aliases: usize,
    depth: usize,
    /// Number of keys of maps that were set.
    keys_set: usize,
    duplicates: Vec<Duplicate>,
    duplicate_bytes: usize,
    has_invalid_key: bool,
    has_invalid_number: bool,
}

/// A key that a map had already.
struct Duplicate {
    /// Number of the key among all that were set.
    set: usize,
    line: usize,
    key: String,
}

/// The entries of a map, in the order in which they are set, with duplicates.
#[derive(Default)]
struct Entries {
    entries: Vec<(Str, Value)>,
    facts: Vec<KeyFacts>,
}

#[derive(Clone, Copy)]
struct KeyFacts {
    kind: KeyKind,
    line: u32,
    set: usize,
}

/// The type of a key. Keys of different types are different even if they are the same text in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Null,
    Bool,
    Int,
    Float,
    /// No such key is equal to another.
    NotANumber,
    Text,
}

impl Constructor<'_> {
    /// Counts a node, and rejects it if aliases add too much.
    fn count(&mut self, bytes: usize) -> Result<(), YamlError> {
        self.decoded += 1;
        if self.aliases == 0 {
            return Ok(());
        }
        self.aliased += 1;
        self.aliased_bytes = self.aliased_bytes.saturating_add(bytes);
        let beyond = self.decoded.clamp(NODES_SMALL, NODES_LARGE) - NODES_SMALL;
        let share = 0.99 - 0.89 * (beyond as f64 / (NODES_LARGE - NODES_SMALL) as f64);
        let is_much = self.aliased > ALIASED_NODES_FREE
            && self.decoded > NODES_FREE
            && self.aliased as f64 / self.decoded as f64 > share;
        let is_long = self.aliased_bytes > ALIASED_BYTES_MAX;
        if is_much || is_long { Err(YamlError::Aliases) } else { Ok(()) }
    }

    /// Returns the value of a node.
    fn value(&mut self, at: usize) -> Result<Value, YamlError> {
        match self.document.nodes[at].kind {
            NodeKind::Scalar { text, tag, is_implicit } => {
                self.count(text.length as usize)?;
                let scalar = resolve(self.document.text(text), tag, is_implicit)?;
                Ok(self.scalar_value(scalar))
            }
            NodeKind::Alias { .. } => self.expand(at, Self::value),
            NodeKind::Sequence { end } => {
                self.count(0)?;
                self.nested(|constructor| constructor.items(at + 1, end as usize))
            }
            NodeKind::Mapping { .. } => {
                self.count(0)?;
                self.nested(|constructor| {
                    let mut entries = Entries::default();
                    constructor.set_entries(at, &mut entries)?;
                    Ok(Value::Object(constructor.finish(entries)))
                })
            }
        }
    }

    fn nested<T>(
        &mut self,
        make: impl FnOnce(&mut Self) -> Result<T, YamlError>,
    ) -> Result<T, YamlError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(YamlError::Depth);
        }
        let made = make(self)?;
        self.depth -= 1;
        Ok(made)
    }

    /// Decodes the node that an alias stands for.
    fn expand<T>(
        &mut self,
        at: usize,
        decode: impl FnOnce(&mut Self, usize) -> Result<T, YamlError>,
    ) -> Result<T, YamlError> {
        let NodeKind::Alias { target, name } = self.document.nodes[at].kind else {
            return decode(self, at);
        };
        self.count(0)?;
        let target = target as usize;
        if at < self.document.after(target) {
            return Err(YamlError::SelfReference(self.document.text(name).to_owned()));
        }
        self.aliases += 1;
        let decoded = decode(self, target)?;
        self.aliases -= 1;
        Ok(decoded)
    }

    fn scalar_value(&mut self, scalar: Scalar<'_>) -> Value {
        match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(flag) => Value::Bool(flag),
            Scalar::Int(number) => Value::Int(number),
            Scalar::Uint(number) => Value::Float(number as f64),
            Scalar::Float(number) => {
                self.has_invalid_number |= !number.is_finite();
                json_number(number)
            }
            Scalar::Text(text) => Value::from(text.as_ref()),
        }
    }

    fn items(&mut self, start: usize, end: usize) -> Result<Value, YamlError> {
        let mut items = vec![];
        let mut at = start;
        while at < end {
            items.push(self.value(at)?);
            at = self.document.after(at);
        }
        Ok(Value::Array(items))
    }

    /// Sets the entries of a map, in their order. A merge sets those of the merged maps in its
    /// place, so that later entries win over them, and they over earlier ones.
    fn set_entries(&mut self, mapping: usize, entries: &mut Entries) -> Result<(), YamlError> {
        let document = self.document;
        let end = document.after(mapping);
        let mut key = mapping + 1;
        while key < end {
            let value = document.after(key);
            if document.is_merge(key) {
                self.nested(|constructor| constructor.merge(value, entries))?;
            } else {
                let (name, kind) = self.key(key)?;
                let made = self.value(value)?;
                self.keys_set += 1;
                let line = document.nodes[value].spot.line;
                entries.entries.push((name, made));
                entries.facts.push(KeyFacts { kind, line, set: self.keys_set });
            }
            key = document.after(value);
        }
        Ok(())
    }

    /// Merges a map, or each map of a list, the first of which wins.
    fn merge(&mut self, at: usize, entries: &mut Entries) -> Result<(), YamlError> {
        let NodeKind::Sequence { end } = self.document.nodes[at].kind else {
            return self.merge_map(at, entries);
        };
        let mut items = vec![];
        let mut item = at + 1;
        while item < end as usize {
            items.push(item);
            item = self.document.after(item);
        }
        items.into_iter().rev().try_for_each(|item| self.merge_map(item, entries))
    }

    fn merge_map(&mut self, at: usize, entries: &mut Entries) -> Result<(), YamlError> {
        let map = match self.document.nodes[at].kind {
            NodeKind::Alias { target, .. } => target as usize,
            _ => at,
        };
        if !matches!(self.document.nodes[map].kind, NodeKind::Mapping { .. }) {
            return Err(YamlError::Merge);
        }
        self.expand(at, |constructor, map| {
            constructor.count(0)?;
            constructor.set_entries(map, entries)
        })
    }

    /// Returns a key as text, as JSON requires, and its type.
    fn key(&mut self, at: usize) -> Result<(Str, KeyKind), YamlError> {
        let scalar = match self.document.nodes[at].kind {
            NodeKind::Alias { target, .. } => target as usize,
            _ => at,
        };
        let NodeKind::Scalar { text, tag, is_implicit } = self.document.nodes[scalar].kind else {
            // Errors within the key come first.
            self.value(at)?;
            return Err(YamlError::Key(go_value::syntax(self.document, at)?));
        };
        self.expand(at, |constructor, _| constructor.count(text.length as usize))?;
        Ok(match resolve(self.document.text(text), tag, is_implicit)? {
            Scalar::Text(text) => (Str::new(text.as_ref()), KeyKind::Text),
            Scalar::Bool(true) => (Str::new_static("true"), KeyKind::Bool),
            Scalar::Bool(false) => (Str::new_static("false"), KeyKind::Bool),
            Scalar::Int(number) => (Str::from(number.to_string()), KeyKind::Int),
            Scalar::Float(number) if number.is_nan() => (Str::new(".nan"), KeyKind::NotANumber),
            Scalar::Float(number) => (go_value::float_key(number), KeyKind::Float),
            Scalar::Uint(number) => {
                self.has_invalid_key = true;
                (Str::from(number.to_string()), KeyKind::Int)
            }
            Scalar::Null => {
                self.has_invalid_key = true;
                (Str::new_static("<nil>"), KeyKind::Null)
            }
        })
    }

    /// Makes a map of its entries, of which the last with a key wins, and reports duplicates.
    fn finish(&mut self, entries: Entries) -> Map {
        let Entries { entries, facts } = entries;
        if !has_equal_keys(&entries) {
            return Map::from_distinct(entries);
        }
        self.report_duplicates(&entries, &facts);
        Map::from_entries(entries, |_| ())
    }

    fn report_duplicates(&mut self, entries: &[(Str, Value)], facts: &[KeyFacts]) {
        let by_key = |one: &usize, other: &usize| {
            let kind = |at: usize| facts[at].kind as u8;
            let order = entries[*one].0.cmp(&entries[*other].0);
            order.then_with(|| kind(*one).cmp(&kind(*other)))
        };
        let mut sorted: Vec<usize> = (0..entries.len()).collect();
        sorted.sort_by(by_key);
        let mut later: Vec<usize> = sorted
            .windows(2)
            .filter(|pair| by_key(&pair[0], &pair[1]) == Ordering::Equal)
            .map(|pair| pair[1])
            .filter(|at| facts[*at].kind != KeyKind::NotANumber)
            .collect();
        later.sort_unstable();
        for at in later {
            let room = DUPLICATES_BYTES_MAX.saturating_sub(self.duplicate_bytes);
            if self.duplicates.len() == DUPLICATES_MAX || room == 0 {
                return;
            }
            let name = &entries[at].0;
            let facts = facts[at];
            let key = if facts.kind == KeyKind::Text { quote(name) } else { name.to_string() };
            self.duplicate_bytes += key.len();
            let line = facts.line as usize + 1;
            self.duplicates.push(Duplicate { set: facts.set, line, key });
        }
    }
}

/// Number of entries up to which each key is compared with each other one.
const COMPARED_ENTRIES_MAX: usize = 16;

fn has_equal_keys(entries: &[(Str, Value)]) -> bool {
    if entries.len() <= COMPARED_ENTRIES_MAX {
        let has_equal_before = |(at, (key, _)): (usize, &(Str, Value))| {
            entries[..at].iter().any(|(earlier, _)| earlier == key)
        };
        return entries.iter().enumerate().any(has_equal_before);
    }
    let mut keys: Vec<&Str> = entries.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// Returns a float as a reader of JSON gets it: 1.0 is written as 1, which is an integer. From 1e21
/// on, floats have an exponent.
fn json_number(number: f64) -> Value {
    if number.fract() == 0.0
        && number.abs() < 1e21
        && let Ok(whole) = number.to_string().parse()
    {
        return Value::Int(whole);
    }
    Value::Float(number)
}

/// Returns the first number that JSON cannot hold. Go's encoder sorts keys.
fn invalid_number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => (!number.is_finite()).then_some(*number),
        Value::Array(items) => items.iter().find_map(invalid_number),
        Value::Object(map) => map.sorted().into_iter().find_map(|(_, item)| invalid_number(item)),
        _ => None,
    }
}
