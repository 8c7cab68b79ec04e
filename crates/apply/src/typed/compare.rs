//! What changed between two objects of one schema.

use super::element::sorted_items;
use super::{Form, Kind, Members};
use crate::fields::{Element, FieldSet, Filter, Node, equal_values};
use keelson_meta::room::Kept;
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Presence, Schema, Shape, Types};
use std::cell::Cell;

/// The fields that differ. No path is in more than one of the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Only in the new object.
    pub added: FieldSet,
    /// In both, with other values.
    pub modified: FieldSet,
    /// Only in the old object.
    pub removed: FieldSet,
    /// The new object has items in a list that cannot be told apart from others: its owners are not known.
    pub is_unkeyed: bool,
}

impl Comparison {
    /// True when nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Forgets the fields that do not count.
    pub fn filter(&mut self, filter: &Filter) {
        filter.run(&mut self.added);
        filter.run(&mut self.modified);
        filter.run(&mut self.removed);
    }
}

/// An object and the form it has.
pub type Side<'v> = (Form, &'v Map);

/// Compares two objects.
pub fn compare(schema: &Schema, old: Side<'_>, new: Side<'_>) -> Comparison {
    let walk = Walk { types: &schema.types, old: old.0, new: new.0, is_unkeyed: Cell::new(false) };
    let mut nodes = Nodes { sets: Kept::take(&ROOM) };
    walk.members(Kind::Struct(schema.root()), Some(old.1), Some(new.1), &mut nodes);
    let comparison = nodes.finish([0; 3]);
    Kept::give_back(&ROOM, nodes.sets);
    Comparison { is_unkeyed: walk.is_unkeyed.get(), ..comparison }
}

struct Walk<'t> {
    types: &'t Types,
    old: Form,
    new: Form,
    is_unkeyed: Cell<bool>,
}

/// Nodes for which a thread keeps room in each of the three sets.
const ROOM_MAX: usize = 256;

thread_local! {
    /// Room for the nodes at hand.
    static ROOM: Kept<[Vec<Node>; 3]> = const { Kept::new(ROOM_MAX) };
}

/// The nodes of the levels at hand, those of the innermost last, of each of the three sets.
struct Nodes {
    /// In the order of [`Mark`].
    sets: [Vec<Node>; 3],
}

/// Where the nodes of a level begin.
type Start = [usize; 3];

impl Nodes {
    fn start(&self) -> Start {
        self.sets.each_ref().map(Vec::len)
    }

    /// Takes out what was pushed since `start`.
    fn finish(&mut self, start: Start) -> Comparison {
        let mut set = |mark: Mark| {
            let (nodes, start) = (&mut self.sets[mark as usize], start[mark as usize]);
            // Two of the three are empty nearly always.
            match nodes.len() == start {
                true => FieldSet::new(),
                false => FieldSet::from_nodes(nodes.split_off(start)),
            }
        };
        Comparison {
            added: set(Mark::Added),
            modified: set(Mark::Modified),
            removed: set(Mark::Removed),
            is_unkeyed: false,
        }
    }

    fn push(&mut self, element: &dyn Fn() -> Element, mark: Option<Mark>, below: Comparison) {
        let rows = [
            (Mark::Added, below.added),
            (Mark::Modified, below.modified),
            (Mark::Removed, below.removed),
        ];
        for (set, children) in rows {
            let is_member = mark == Some(set);
            if is_member || !children.is_empty() {
                self.sets[set as usize].push(Node { element: element(), is_member, children });
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Added,
    Modified,
    Removed,
}

fn mark_leaf(old: Option<&Value>, new: Option<&Value>) -> Option<Mark> {
    match (old, new) {
        (None, _) => Some(Mark::Added),
        (_, None) => Some(Mark::Removed),
        (Some(old), Some(new)) if !equal_values(old, new) => Some(Mark::Modified),
        _ => None,
    }
}

fn mark_presence(old: Option<&Value>, new: Option<&Value>) -> Option<Mark> {
    match (old, new) {
        (None, _) => Some(Mark::Added),
        (_, None) => Some(Mark::Removed),
        _ => None,
    }
}

/// Whether atomic values are equal. An empty list or map is as good as an absent one, but not in the
/// structs of a list (`in_list`): upstream compares these as Go values.
fn is_same(types: &Types, shape: &Shape, in_list: bool, old: &Value, new: &Value) -> bool {
    match (shape, old, new) {
        (Shape::Struct(id), Value::Object(old), Value::Object(new)) => {
            let of = types.get(*id);
            let is_known = |map: &Map| map.iter().all(|(name, _)| of.field(name).is_some());
            if !is_known(old) || !is_known(new) {
                return old == new;
            }
            of.fields.iter().all(|field| {
                let is_hollow = |value: &Value| {
                    let is_written = match field.shape {
                        Shape::Struct(_) => field.presence != Presence::Always,
                        Shape::List(_) | Shape::Map(_) => {
                            in_list || field.presence != Presence::OmitEmpty
                        }
                        _ => true,
                    };
                    !is_written && value.is_empty()
                };
                match (old.get(&field.name), new.get(&field.name)) {
                    (Some(old), Some(new)) => is_same(types, &field.shape, in_list, old, new),
                    (Some(only), None) | (None, Some(only)) => is_hollow(only),
                    (None, None) => true,
                }
            })
        }
        (Shape::List(list), Value::Array(old), Value::Array(new)) => {
            let mut pairs = old.iter().zip(new);
            old.len() == new.len()
                && pairs.all(|(old, new)| is_same(types, &list.item, true, old, new))
        }
        // Its letters count.
        (Shape::RawExtension, old, new) => old == new,
        _ => equal_values(old, new),
    }
}

impl<'t> Walk<'t> {
    /// How an atomic value changed. Two that were decoded are the same if they differ only in structs that are
    /// always written out, and hold nothing. What a client has applied is compared as it was written.
    fn atomic(&self, shape: &'t Shape, old: Option<&Value>, new: Option<&Value>) -> Option<Mark> {
        match (old, new) {
            (Some(old), Some(new)) if self.old == Form::Decoded && self.new == Form::Decoded => {
                let is_same = old == new || is_same(self.types, shape, false, old, new);
                (!is_same).then_some(Mark::Modified)
            }
            _ => mark_leaf(old, new),
        }
    }

    /// Whether an empty struct holds zero values that Go writes out.
    fn holds_zeros(&self, kind: Kind<'t>, old: Option<&Map>, new: Option<&Map>) -> bool {
        let holds = |map: Option<&Map>, form| map.is_some() && form != Form::Written;
        matches!(kind, Kind::Struct(of) if of.has_always_fields())
            && (holds(old, self.old) || holds(new, self.new))
    }

    /// How the value itself changed, and what changed below it. Not both are absent.
    fn value(
        &self,
        kind: Kind<'t>,
        old: Option<&Value>,
        new: Option<&Value>,
        nodes: &mut Nodes,
    ) -> (Option<Mark>, Comparison) {
        match kind {
            Kind::Atomic(shape) => (self.atomic(shape, old, new), Comparison::default()),
            Kind::Scalar(_) | Kind::Untyped => (mark_leaf(old, new), Comparison::default()),
            Kind::Struct(_) | Kind::Map(_) => {
                let (old_map, new_map) = (as_map(old), as_map(new));
                if old_map.is_none_or(Map::is_empty)
                    && new_map.is_none_or(Map::is_empty)
                    && !self.holds_zeros(kind, old_map, new_map)
                {
                    return (mark_leaf(old, new), Comparison::default());
                }
                let start = nodes.start();
                self.members(kind, old_map, new_map, nodes);
                (mark_presence(old, new), nodes.finish(start))
            }
            Kind::List(list) => {
                let (old_items, new_items) = (as_items(old), as_items(new));
                if old_items.is_empty() && new_items.is_empty() {
                    return (mark_leaf(old, new), Comparison::default());
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
                (mark_presence(old, new), nodes.finish(start))
            }
            Kind::Deduced => self.deduced(old, new, nodes),
        }
    }

    /// A value whose type may have changed: both sides are looked at as what they are.
    fn deduced(
        &self,
        old: Option<&Value>,
        new: Option<&Value>,
        nodes: &mut Nodes,
    ) -> (Option<Mark>, Comparison) {
        let is_map_or_null =
            |value: Option<&Value>| value.is_none_or(|v| v.is_null() || v.as_object().is_some());
        let (old_map, new_map) = (as_map(old), as_map(new));
        let is_empty = old_map.is_none_or(Map::is_empty) && new_map.is_none_or(Map::is_empty);
        if is_empty {
            return (mark_leaf(old, new), Comparison::default());
        }
        let start = nodes.start();
        self.members(Kind::Deduced, old_map, new_map, nodes);
        let mark = if is_map_or_null(old) && is_map_or_null(new) {
            mark_presence(old, new)
        } else {
            mark_leaf(old, new)
        };
        (mark, nodes.finish(start))
    }

    fn members(&self, kind: Kind<'t>, old: Option<&Map>, new: Option<&Map>, nodes: &mut Nodes) {
        if let Kind::Struct(of) = kind {
            let (olds, news) =
                (old.map(|map| Members::of(of, map)), new.map(|map| Members::of(of, map)));
            for (at, field) in of.fields.iter().enumerate() {
                let old_value = olds.as_ref().and_then(|of| of.look(self.old, at, field));
                let new_value = news.as_ref().and_then(|of| of.look(self.new, at, field));
                match (old_value, new_value) {
                    (None, None) => continue,
                    // Zero values that nobody wrote are the same static.
                    (Some(old_value), Some(new_value)) if std::ptr::eq(old_value, new_value) => {
                        continue;
                    }
                    _ => {}
                }
                let below = Kind::of_field(self.types, field);
                let (mark, changes) = self.value(below, old_value, new_value, nodes);
                nodes.push(&|| Element::Field(field.name.clone()), mark, changes);
            }
            if !super::allows_unknown(of) {
                return;
            }
        }
        let is_field = |name: &str| matches!(kind, Kind::Struct(of) if of.field(name).is_some());
        let mut visit = |name: &keelson_meta::Str, old: Option<&Value>, new: Option<&Value>| {
            if is_field(name) {
                return;
            }
            let Some(below) = kind.member(self.types, name).0 else { return };
            let (mark, changes) = self.value(below, old, new, nodes);
            nodes.push(&|| Element::Field(name.clone()), mark, changes);
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

    /// Compares items that are sorted by what tells them apart.
    fn items(
        &self,
        list: &'t ListShape,
        mut old: &[(Element, &Value)],
        mut new: &[(Element, &Value)],
        nodes: &mut Nodes,
    ) {
        let kind = Kind::of(self.types, &list.item);
        while let Some(element) = least(old, new) {
            let olds = split_equal(&mut old, element);
            let news = split_equal(&mut new, element);
            let at = || element.clone();
            let (old_value, new_value) = (olds.first().map(|o| o.1), news.first().map(|n| n.1));
            match (olds.len(), news.len()) {
                (0 | 1, 0 | 1) => {
                    let (mark, below) = self.value(kind, old_value, new_value, nodes);
                    nodes.push(&at, mark, below);
                }
                // Items that stand more than once are one leaf together.
                (2.., 2..) => {
                    let equal = olds.len() == news.len()
                        && olds.iter().zip(news).all(|(o, n)| equal_values(o.1, n.1));
                    let mark = (!equal).then_some(Mark::Modified);
                    nodes.push(&at, mark, Comparison::default());
                }
                (2.., _) => {
                    if new_value.is_some() {
                        let (mark, below) = self.value(kind, None, new_value, nodes);
                        nodes.push(&at, mark, below);
                    }
                    nodes.push(&at, Some(Mark::Removed), Comparison::default());
                }
                (_, 2..) => {
                    if old_value.is_some() {
                        let (mark, below) = self.value(kind, old_value, None, nodes);
                        nodes.push(&at, mark, below);
                    }
                    nodes.push(&at, Some(Mark::Added), Comparison::default());
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

/// The smaller of the first elements.
fn least<'e>(old: &'e [(Element, &Value)], new: &'e [(Element, &Value)]) -> Option<&'e Element> {
    match (old.first(), new.first()) {
        (Some((old, _)), Some((new, _))) => Some(old.min(new)),
        (Some((one, _)), None) | (None, Some((one, _))) => Some(one),
        (None, None) => None,
    }
}

/// Takes the items that begin with `element` off the front.
fn split_equal<'s, 'v>(
    items: &mut &'s [(Element, &'v Value)],
    element: &Element,
) -> &'s [(Element, &'v Value)] {
    let count = items.iter().take_while(|(candidate, _)| candidate == element).count();
    let (equal, rest) = items.split_at(count);
    *items = rest;
    equal
}
