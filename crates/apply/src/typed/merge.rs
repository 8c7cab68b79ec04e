//! Merges an apply configuration into the live object.

use super::element::element;
use super::{MergeKind, ValidationError, ValidationErrors};
use crate::fields::{Element, path_text};
use keelson_meta::{Map, Str, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Schema, Types};

/// Returns the live object with all values of the configuration set. Removes nothing. List items
/// that the configuration has come in its order.
pub fn merge(schema: &Schema, live: &Map, config: &Map) -> Result<Map, ValidationErrors> {
    let mut walk = Walk { types: &schema.types, path: vec![], errors: vec![] };
    let merged = walk.members(MergeKind::Struct(schema.root()), Some(live), Some(config));
    if walk.errors.is_empty() { Ok(merged) } else { Err(ValidationErrors(walk.errors)) }
}

struct Walk<'t> {
    types: &'t Types,
    path: Vec<Element>,
    errors: Vec<ValidationError>,
}

impl<'t> Walk<'t> {
    /// Merges two values, of which at least one is present. `None` when the merged map or list is
    /// empty.
    fn value(
        &mut self,
        kind: MergeKind<'t>,
        live: Option<&Value>,
        config: Option<&Value>,
    ) -> Option<Value> {
        let leaf = || config.or(live).cloned();
        match kind {
            MergeKind::Scalar(_) | MergeKind::Atomic(_) | MergeKind::Untyped => leaf(),
            MergeKind::Struct(_) | MergeKind::Map(_) => {
                let live_map = as_map(live);
                let config_map = as_map(config);
                if is_empty(live_map) && is_empty(config_map) {
                    return leaf();
                }
                let merged = self.members(kind, live_map, config_map);
                (!merged.is_empty()).then_some(Value::Object(merged))
            }
            MergeKind::Deduced => {
                // The configuration decides the type; null matches any.
                let is_map = |value: Option<&Value>| {
                    value.is_none_or(|v| v.is_null() || v.as_object().is_some())
                };
                let live_map = as_map(live);
                let config_map = as_map(config);
                let decided = if config.is_some() { config } else { live };
                if !is_map(decided) || is_empty(live_map) && is_empty(config_map) {
                    return leaf();
                }
                let merged = self.members(kind, live_map, config_map);
                (!merged.is_empty()).then_some(Value::Object(merged))
            }
            MergeKind::List(list) => match (as_items(live), as_items(config)) {
                ([], []) => leaf(),
                (live_items, []) => Some(Value::Array(live_items.to_vec())),
                (live_items, config_items) => {
                    let merged = self.items(list, live_items, config_items)?;
                    (!merged.is_empty()).then_some(Value::Array(merged))
                }
            },
        }
    }

    fn members(&mut self, kind: MergeKind<'t>, live: Option<&Map>, config: Option<&Map>) -> Map {
        let Some(config) = config.filter(|map| !map.is_empty()) else {
            return live.cloned().unwrap_or_default();
        };
        let mut merged: Vec<(Str, Value)> = Vec::with_capacity(config.len());
        for (name, value) in live.into_iter().flat_map(Map::iter) {
            let value = match config.get(name) {
                None => Some(value.clone()),
                Some(change) => self.member(kind, name, Some(value), change),
            };
            merged.extend(value.map(|value| (name.clone(), value)));
        }
        for (name, change) in config.iter() {
            if live.is_none_or(|map| !map.contains_key(name)) {
                let value = self.member(kind, name, None, change);
                merged.extend(value.map(|value| (name.clone(), value)));
            }
        }
        // Inserting the entries one by one would cost O(entries) each.
        merged.into_iter().collect()
    }

    fn member(
        &mut self,
        kind: MergeKind<'t>,
        name: &Str,
        live: Option<&Value>,
        change: &Value,
    ) -> Option<Value> {
        let member = kind.member(self.types, name).0.unwrap_or(MergeKind::Deduced);
        self.path.push(Element::Field(name.clone()));
        let value = self.value(member, live, Some(change));
        self.path.pop();
        value
    }

    /// Merges the items of two lists in upstream's order: shared items in the order of the
    /// configuration, items of one side around them.
    fn items(
        &mut self,
        list: &'t ListShape,
        live: &[Value],
        config: &[Value],
    ) -> Option<Vec<Value>> {
        let rights = self.elements(list, config)?;
        let lefts = self.elements(list, live)?;
        if lefts == rights {
            let items = live.iter().zip(config).zip(rights);
            return Some(
                items.filter_map(|((l, r), at)| self.item(list, Some(l), r, at)).collect(),
            );
        }
        let config_index = Index::new(rights);
        let live_index = Index::new(lefts);
        let lefts = &live_index.elements;
        let rights = &config_index.elements;
        // A duplicate live item is replaced, not merged: it is ambiguous.
        let current = |at: &Element| live_index.find_unique(at).map(|place| &live[place]);
        let mut shared = rights.iter().filter(|element| live_index.find(element).is_some());
        let mut next_shared = shared.next();
        let mut is_merged = vec![false; rights.len()];
        let mut merged = Vec::with_capacity(lefts.len().max(rights.len()));
        let mut l = 0;
        let mut r = 0;
        while l < lefts.len() || r < rights.len() {
            if l < lefts.len() && r < rights.len() {
                if lefts[l] == rights[r] {
                    is_merged[r] = true;
                    let at = &rights[r];
                    merged.extend(self.item(list, current(at), &config[r], at.clone()));
                    (l, r) = (l + 1, r + 1);
                    next_shared = shared.next();
                    continue;
                }
                let is_shared = config_index.find(&lefts[l]).is_some();
                if is_shared && next_shared.is_some_and(|next| *next != lefts[l]) {
                    l += 1;
                    continue;
                }
            }
            if l < lefts.len() {
                match config_index.find(&lefts[l]) {
                    None => {
                        merged.push(live[l].clone());
                        l += 1;
                        continue;
                    }
                    Some(at) if is_merged[at] => l += 1,
                    Some(_) => {}
                }
            }
            if r < rights.len() {
                is_merged[r] = true;
                let at = &rights[r];
                merged.extend(self.item(list, current(at), &config[r], at.clone()));
                if next_shared.is_some_and(|next| *next == rights[r]) {
                    next_shared = shared.next();
                }
                r += 1;
            }
        }
        Some(merged)
    }

    fn item(
        &mut self,
        list: &'t ListShape,
        live: Option<&Value>,
        config: &Value,
        at: Element,
    ) -> Option<Value> {
        self.path.push(at);
        let merged = self.value(MergeKind::of(self.types, &list.item), live, Some(config));
        self.path.pop();
        merged
    }

    fn elements(&mut self, list: &ListShape, items: &[Value]) -> Option<Vec<Element>> {
        let mut elements = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match element(self.types, list, item) {
                Ok(element) => elements.push(element),
                Err(message) => {
                    let path: Vec<&Element> = self.path.iter().collect();
                    let message = format!("element {i}: {message}");
                    self.errors.push(ValidationError { path: path_text(&path), message });
                    return None;
                }
            }
        }
        Some(elements)
    }
}

/// The path elements of a list, with an index for binary search.
struct Index {
    elements: Vec<Element>,
    sorted: Vec<usize>,
}

impl Index {
    fn new(elements: Vec<Element>) -> Self {
        let mut sorted: Vec<usize> = (0..elements.len()).collect();
        sorted.sort_by(|a, b| elements[*a].cmp(&elements[*b]));
        Index { elements, sorted }
    }

    fn first(&self, element: &Element) -> Option<usize> {
        let at = self.sorted.partition_point(|place| self.elements[*place] < *element);
        self.sorted.get(at).filter(|place| self.elements[**place] == *element).map(|_| at)
    }

    fn find(&self, element: &Element) -> Option<usize> {
        self.first(element).map(|at| self.sorted[at])
    }

    /// Returns the position of `element` unless it is a duplicate.
    fn find_unique(&self, element: &Element) -> Option<usize> {
        let at = self.first(element)?;
        let is_duplicate =
            self.sorted.get(at + 1).is_some_and(|next| self.elements[*next] == *element);
        (!is_duplicate).then_some(self.sorted[at])
    }
}

fn as_map(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object)
}

fn as_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

fn is_empty(map: Option<&Map>) -> bool {
    map.is_none_or(Map::is_empty)
}
