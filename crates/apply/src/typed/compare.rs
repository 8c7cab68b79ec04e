//! Compares two objects of the same schema, field by field.

use super::element::sorted_items;
use super::{Form, Members, MergeKind};
use crate::fields::{Element, FieldSet, Filter, Node, equal_values};
use keelson_meta::scratch::Scratch;
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Presence, Schema, Shape, Types};
use std::cell::Cell;

/// The fields that differ between two objects. No path is in more than one of the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Fields that only the new object has.
    pub added: FieldSet,
    /// Fields that both objects have, with different values.
    pub modified: FieldSet,
    /// Fields that only the old object has.
    pub removed: FieldSet,
    /// Whether the new object has an item without its keys in a keyed list, so that its fields
    /// cannot be tracked.
    pub is_unkeyed: bool,
}

impl Comparison {
    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Removes the fields that the filter leaves out.
    pub fn filter(&mut self, filter: &Filter) {
        filter.apply(&mut self.added);
        filter.apply(&mut self.modified);
        filter.apply(&mut self.removed);
    }
}

/// An object and its form.
pub type Side<'v> = (Form, &'v Map);

/// Compares two objects.
pub fn compare(schema: &Schema, old: Side<'_>, new: Side<'_>) -> Comparison {
    let walk = Walk { types: &schema.types, old: old.0, new: new.0, is_unkeyed: Cell::new(false) };
    let mut nodes = Nodes { sets: Scratch::take(&NODES) };
    walk.members(MergeKind::Struct(schema.root()), Some(old.1), Some(new.1), &mut nodes);
    let comparison = nodes.finish([0; 3]);
    Scratch::put_back(&NODES, nodes.sets);
    Comparison { is_unkeyed: walk.is_unkeyed.get(), ..comparison }
}

struct Walk<'t> {
    types: &'t Types,
    old: Form,
    new: Form,
    is_unkeyed: Cell<bool>,
}

/// Nodes for which a thread keeps capacity in each of the three sets.
const NODES_MAX: usize = 256;

thread_local! {
    /// Buffers for the nodes of a comparison.
    static NODES: Scratch<[Vec<Node>; 3]> = const { Scratch::new(NODES_MAX) };
}

/// The nodes of the open levels in each of the three sets, innermost level last.
struct Nodes {
    /// Indexed by [`Change`].
    sets: [Vec<Node>; 3],
}

/// Where the nodes of a level start in each set.
type Start = [usize; 3];

impl Nodes {
    fn start(&self) -> Start {
        self.sets.each_ref().map(Vec::len)
    }

    /// Removes the nodes pushed since `start` and returns them as sets.
    fn finish(&mut self, start: Start) -> Comparison {
        let mut set = |change: Change| {
            let nodes = &mut self.sets[change as usize];
            let start = start[change as usize];
            // Usually two of the three are empty.
            match nodes.len() == start {
                true => FieldSet::new(),
                false => FieldSet::from_nodes(nodes.split_off(start)),
            }
        };
        Comparison {
            added: set(Change::Added),
            modified: set(Change::Modified),
            removed: set(Change::Removed),
            is_unkeyed: false,
        }
    }

    fn push(&mut self, element: &dyn Fn() -> Element, change: Option<Change>, below: Comparison) {
        let rows = [
            (Change::Added, below.added),
            (Change::Modified, below.modified),
            (Change::Removed, below.removed),
        ];
        for (set, children) in rows {
            let is_member = change == Some(set);
            if is_member || !children.is_empty() {
                self.sets[set as usize].push(Node { element: element(), is_member, children });
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Added,
    Modified,
    Removed,
}

fn compare_leaf(old: Option<&Value>, new: Option<&Value>) -> Option<Change> {
    match (old, new) {
        (None, _) => Some(Change::Added),
        (_, None) => Some(Change::Removed),
        (Some(old), Some(new)) if !equal_values(old, new) => Some(Change::Modified),
        _ => None,
    }
}

fn compare_presence(old: Option<&Value>, new: Option<&Value>) -> Option<Change> {
    match (old, new) {
        (None, _) => Some(Change::Added),
        (_, None) => Some(Change::Removed),
        _ => None,
    }
}

/// Returns whether two atomic values are equal. An empty list or map equals an absent one, except
/// in the structs of a list (`in_list`), which upstream compares as Go values.
fn is_equal_atomic(types: &Types, shape: &Shape, in_list: bool, old: &Value, new: &Value) -> bool {
    match (shape, old, new) {
        (Shape::Struct(id), Value::Object(old), Value::Object(new)) => {
            let of = types.get(*id);
            let is_known = |map: &Map| map.iter().all(|(name, _)| of.field(name).is_some());
            if !is_known(old) || !is_known(new) {
                return old == new;
            }
            of.fields.iter().all(|field| {
                let equals_absent = |value: &Value| {
                    let is_written = match field.shape {
                        Shape::Struct(_) => field.presence != Presence::Always,
                        Shape::List(_) | Shape::Map(_) => {
                            in_list || field.presence != Presence::OmitEmpty
                        }
                        _ => true,
                    };
                    // A pointer that Go always writes is null.
                    value.is_null() || (!is_written && value.is_empty())
                };
                match (old.get(&field.name), new.get(&field.name)) {
                    (Some(old), Some(new)) => {
                        is_equal_atomic(types, &field.shape, in_list, old, new)
                    }
                    (Some(only), None) | (None, Some(only)) => equals_absent(only),
                    (None, None) => true,
                }
            })
        }
        (Shape::List(list), Value::Array(old), Value::Array(new)) => {
            let mut pairs = old.iter().zip(new);
            old.len() == new.len()
                && pairs.all(|(old, new)| is_equal_atomic(types, &list.item, true, old, new))
        }
        // Upstream compares raw extensions byte for byte.
        (Shape::RawExtension, old, new) => old == new,
        _ => equal_values(old, new),
    }
}

impl<'t> Walk<'t> {
    /// Compares atomic values. Two decoded values may differ in empty structs that Go always
    /// writes. A value that a client has applied is compared as written.
    fn atomic(&self, shape: &'t Shape, old: Option<&Value>, new: Option<&Value>) -> Option<Change> {
        match (old, new) {
            (Some(old), Some(new)) if self.old == Form::Decoded && self.new == Form::Decoded => {
                let is_equal = old == new || is_equal_atomic(self.types, shape, false, old, new);
                (!is_equal).then_some(Change::Modified)
            }
            _ => compare_leaf(old, new),
        }
    }

    /// Returns whether an empty struct holds zero values that Go writes.
    fn holds_zeros(&self, kind: MergeKind<'t>, old: Option<&Map>, new: Option<&Map>) -> bool {
        let holds = |map: Option<&Map>, form| map.is_some() && form != Form::Written;
        matches!(kind, MergeKind::Struct(of) if of.has_always_fields())
            && (holds(old, self.old) || holds(new, self.new))
    }

    /// Compares two values, of which at least one is present. Returns how the value itself changed,
    /// and the changes below it.
    fn value(
        &self,
        kind: MergeKind<'t>,
        old: Option<&Value>,
        new: Option<&Value>,
        nodes: &mut Nodes,
    ) -> (Option<Change>, Comparison) {
        match kind {
            MergeKind::Atomic(shape) => (self.atomic(shape, old, new), Comparison::default()),
            MergeKind::Scalar(_) | MergeKind::Untyped => {
                (compare_leaf(old, new), Comparison::default())
            }
            MergeKind::Struct(_) | MergeKind::Map(_) => {
                let old_map = as_map(old);
                let new_map = as_map(new);
                if old_map.is_none_or(Map::is_empty)
                    && new_map.is_none_or(Map::is_empty)
                    && !self.holds_zeros(kind, old_map, new_map)
                {
                    return (compare_leaf(old, new), Comparison::default());
                }
                let start = nodes.start();
                self.members(kind, old_map, new_map, nodes);
                (compare_presence(old, new), nodes.finish(start))
            }
            MergeKind::List(list) => {
                let old_items = as_items(old);
                let new_items = as_items(new);
                if old_items.is_empty() && new_items.is_empty() {
                    return (compare_leaf(old, new), Comparison::default());
                }
                if old == new {
                    return (None, Comparison::default());
                }
                let start = nodes.start();
                let old_sorted = sorted_items(self.types, list, old_items);
                let new_sorted = sorted_items(self.types, list, new_items);
                if new_sorted.len() < new_items.len() {
                    self.is_unkeyed.set(true);
                }
                self.items(list, &old_sorted, &new_sorted, nodes);
                (compare_presence(old, new), nodes.finish(start))
            }
            MergeKind::Deduced => self.deduced(old, new, nodes),
        }
    }

    /// Compares two values without a schema, whose types may differ.
    fn deduced(
        &self,
        old: Option<&Value>,
        new: Option<&Value>,
        nodes: &mut Nodes,
    ) -> (Option<Change>, Comparison) {
        let is_map_or_null =
            |value: Option<&Value>| value.is_none_or(|v| v.is_null() || v.as_object().is_some());
        let old_map = as_map(old);
        let new_map = as_map(new);
        let is_empty = old_map.is_none_or(Map::is_empty) && new_map.is_none_or(Map::is_empty);
        if is_empty {
            return (compare_leaf(old, new), Comparison::default());
        }
        let start = nodes.start();
        self.members(MergeKind::Deduced, old_map, new_map, nodes);
        let change = if is_map_or_null(old) && is_map_or_null(new) {
            compare_presence(old, new)
        } else {
            compare_leaf(old, new)
        };
        (change, nodes.finish(start))
    }

    fn members(
        &self,
        kind: MergeKind<'t>,
        old: Option<&Map>,
        new: Option<&Map>,
        nodes: &mut Nodes,
    ) {
        if let MergeKind::Struct(of) = kind {
            let olds = old.map(|map| Members::of(of, map));
            let news = new.map(|map| Members::of(of, map));
            for (at, field) in of.fields.iter().enumerate() {
                let old_value = olds.as_ref().and_then(|of| of.get(self.old, at, field));
                let new_value = news.as_ref().and_then(|of| of.get(self.new, at, field));
                match (old_value, new_value) {
                    (None, None) => continue,
                    // Zero values of absent members are the same static.
                    (Some(old_value), Some(new_value)) if std::ptr::eq(old_value, new_value) => {
                        continue;
                    }
                    _ => {}
                }
                let below = MergeKind::of_field(self.types, field);
                let (change, changes) = self.value(below, old_value, new_value, nodes);
                nodes.push(&|| Element::Field(field.name.clone()), change, changes);
            }
            if !super::allows_unknown(of) {
                return;
            }
        }
        let is_field =
            |name: &str| matches!(kind, MergeKind::Struct(of) if of.field(name).is_some());
        let mut visit = |name: &keelson_meta::Str, old: Option<&Value>, new: Option<&Value>| {
            if is_field(name) {
                return;
            }
            let Some(below) = kind.member(self.types, name).0 else { return };
            let (change, changes) = self.value(below, old, new, nodes);
            nodes.push(&|| Element::Field(name.clone()), change, changes);
        };
        for (name, value) in old.into_iter().flat_map(Map::iter) {
            visit(name, Some(value), new.and_then(|map| map.get(name)));
        }
        for (name, value) in new.into_iter().flat_map(Map::iter) {
            if old.is_none_or(|map| !map.contains_key(name)) {
                visit(name, None, Some(value));
            }
        }
    }

    /// Compares the items of two lists, sorted by path element.
    fn items(
        &self,
        list: &'t ListShape,
        mut old: &[(Element, &Value)],
        mut new: &[(Element, &Value)],
        nodes: &mut Nodes,
    ) {
        let kind = MergeKind::of(self.types, &list.item);
        while let Some(element) = least(old, new) {
            let olds = split_equal(&mut old, element);
            let news = split_equal(&mut new, element);
            let at = || element.clone();
            let old_value = olds.first().map(|o| o.1);
            let new_value = news.first().map(|n| n.1);
            match (olds.len(), news.len()) {
                (0 | 1, 0 | 1) => {
                    let (change, below) = self.value(kind, old_value, new_value, nodes);
                    nodes.push(&at, change, below);
                }
                // Duplicate items together are one leaf.
                (2.., 2..) => {
                    let equal = olds.len() == news.len()
                        && olds.iter().zip(news).all(|(o, n)| equal_values(o.1, n.1));
                    let change = (!equal).then_some(Change::Modified);
                    nodes.push(&at, change, Comparison::default());
                }
                (2.., _) => {
                    if new_value.is_some() {
                        let (change, below) = self.value(kind, None, new_value, nodes);
                        nodes.push(&at, change, below);
                    }
                    nodes.push(&at, Some(Change::Removed), Comparison::default());
                }
                (_, 2..) => {
                    if old_value.is_some() {
                        let (change, below) = self.value(kind, old_value, None, nodes);
                        nodes.push(&at, change, below);
                    }
                    nodes.push(&at, Some(Change::Added), Comparison::default());
                }
            }
        }
    }
}

fn as_map(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object)
}

fn as_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

/// Returns the smaller of the first elements.
fn least<'e>(old: &'e [(Element, &Value)], new: &'e [(Element, &Value)]) -> Option<&'e Element> {
    match (old.first(), new.first()) {
        (Some((old, _)), Some((new, _))) => Some(old.min(new)),
        (Some((one, _)), None) | (None, Some((one, _))) => Some(one),
        (None, None) => None,
    }
}

/// Splits the items of `element` off the front.
fn split_equal<'s, 'v>(
    items: &mut &'s [(Element, &'v Value)],
    element: &Element,
) -> &'s [(Element, &'v Value)] {
    let count = items.iter().take_while(|(candidate, _)| candidate == element).count();
    let (equal, rest) = items.split_at(count);
    *items = rest;
    equal
}
