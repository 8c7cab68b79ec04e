//! Collects the fields that an object sets into a [`FieldSet`].

use super::element::element;
use super::{Form, Members, MergeKind};
use crate::fields::{Element, FieldSet, Node};
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Schema, Types};

/// Returns the paths of the leaves of an object, and of the list items and map entries along them.
pub fn field_set(schema: &Schema, form: Form, object: &Map) -> FieldSet {
    field_set_without(schema, form, object, &FieldSet::new())
}

/// Returns the [`field_set`] that the object would have without the paths of `removed` and all
/// below them.
pub fn field_set_without(
    schema: &Schema,
    form: Form,
    object: &Map,
    removed: &FieldSet,
) -> FieldSet {
    let walk = Walk { types: &schema.types, form };
    FieldSet::from_nodes(walk.members(MergeKind::Struct(schema.root()), object, removed).0)
}

struct Walk<'t> {
    types: &'t Types,
    form: Form,
}

/// The fields of one value.
struct ValueFields {
    is_leaf: bool,
    children: FieldSet,
    /// Whether the value is null, or nothing is left of it.
    is_null: bool,
    is_empty_map: bool,
}

impl<'t> Walk<'t> {
    fn value(&self, kind: MergeKind<'t>, value: &Value, removed: &FieldSet) -> ValueFields {
        let mut fields = ValueFields {
            is_leaf: kind.is_leaf(value),
            children: FieldSet::new(),
            is_null: value.is_null(),
            is_empty_map: value.as_object().is_some_and(Map::is_empty),
        };
        match (kind, value) {
            // Removing a part of an atomic list or map removes all of it.
            (MergeKind::Atomic(_) | MergeKind::Untyped, Value::Object(_) | Value::Array(_))
            | (MergeKind::Deduced, Value::Array(_)) => fields.is_null |= !removed.is_empty(),
            (MergeKind::Struct(_) | MergeKind::Map(_) | MergeKind::Deduced, Value::Object(map)) => {
                let (nodes, is_left) = self.members(kind, map, removed);
                fields.children = FieldSet::from_nodes(nodes);
                fields.is_null |= !is_left && !removed.is_empty();
            }
            (MergeKind::List(list), Value::Array(items)) => {
                let (nodes, is_left) = self.items(list, items, removed);
                fields.children = FieldSet::from_nodes(nodes);
                fields.is_null |= !is_left && !removed.is_empty();
            }
            _ => {}
        }
        fields
    }

    /// Returns the nodes of a map's members, and whether any member is left.
    fn members(&self, kind: MergeKind<'t>, map: &Map, removed: &FieldSet) -> (Vec<Node>, bool) {
        let mut nodes = Vec::with_capacity(map.len());
        let mut is_left = false;
        let mut visit = |name: &str, element: Element, value: &Value| {
            let removed_below = removed.field(name);
            if removed_below.is_some_and(|node| node.is_member) {
                return;
            }
            is_left = true;
            let (member, is_field) = kind.member(self.types, name);
            let Some(member) = member else { return };
            let none = FieldSet::new();
            let removed_below = removed_below.map_or(&none, |node| &node.children);
            let fields = self.value(member, value, removed_below);
            nodes.push(Node {
                element,
                is_member: fields.is_leaf || fields.is_null || fields.is_empty_map || !is_field,
                children: fields.children,
            });
        };
        if let (MergeKind::Struct(of), Form::Decoded | Form::Merged) = (kind, self.form) {
            let members = Members::of(of, map);
            for (at, field) in of.fields.iter().enumerate() {
                if let Some(value) = members.get(self.form, at, field) {
                    visit(&field.name, Element::Field(field.name.clone()), value);
                }
            }
            for (name, value) in map.iter().filter(|(name, _)| of.field(name).is_none()) {
                visit(name, Element::Field(name.clone()), value);
            }
        } else {
            for (name, value) in map.iter() {
                visit(name, Element::Field(name.clone()), value);
            }
        }
        (nodes, is_left)
    }

    fn items(&self, list: &'t ListShape, items: &[Value], removed: &FieldSet) -> (Vec<Node>, bool) {
        let mut nodes: Vec<Node> = Vec::with_capacity(items.len());
        let mut is_left = false;
        for item in items {
            let Ok(element) = element(self.types, list, item) else {
                is_left = true;
                continue;
            };
            let removed_below = removed.node(&element);
            if removed_below.is_some_and(|node| node.is_member) {
                continue;
            }
            is_left = true;
            let none = FieldSet::new();
            let removed_below = removed_below.map_or(&none, |node| &node.children);
            let fields = self.value(MergeKind::of(self.types, &list.item), item, removed_below);
            nodes.push(Node { element, is_member: true, children: fields.children });
        }
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        // Duplicate items are owned as a whole, without the fields below them.
        let mut unique: Vec<Node> = Vec::with_capacity(nodes.len());
        for node in nodes {
            match unique.last_mut() {
                Some(last) if last.element == node.element => last.children = FieldSet::new(),
                _ => unique.push(node),
            }
        }
        (unique, is_left)
    }
}

/// Adds every struct field along the paths of a set as a member.
pub(crate) fn with_named_fields(schema: &Schema, mut set: FieldSet) -> FieldSet {
    add_named_fields(&schema.types, Some(MergeKind::Struct(schema.root())), &mut set);
    set
}

fn add_named_fields<'t>(types: &'t Types, kind: Option<MergeKind<'t>>, set: &mut FieldSet) {
    for node in set.nodes_mut() {
        if node.children.is_empty() {
            continue;
        }
        let below = match (&node.element, kind) {
            (Element::Field(name), Some(MergeKind::Atomic(shape))) => {
                let (below, is_field) = atomic_member(types, shape, name);
                node.is_member |= is_field;
                below
            }
            (Element::Field(name), Some(kind)) => {
                let (below, is_field) = kind.member(types, name);
                node.is_member |= is_field;
                below
            }
            (Element::Key(_), Some(MergeKind::List(list))) => {
                Some(MergeKind::of(types, &list.item))
            }
            _ => None,
        };
        add_named_fields(types, below, &mut node.children);
    }
}

/// Looks up a member of an atomic value: a set from an older schema may have paths into it.
fn atomic_member<'t>(
    types: &'t Types,
    shape: &'t keelson_schema::Shape,
    name: &str,
) -> (Option<MergeKind<'t>>, bool) {
    match shape {
        keelson_schema::Shape::Struct(id) => MergeKind::Struct(types.get(*id)).member(types, name),
        keelson_schema::Shape::Map(map) => (Some(MergeKind::of(types, &map.value)), false),
        _ => (None, false),
    }
}
