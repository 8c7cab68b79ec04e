//! The fields that an object sets.

use super::element::element;
use super::{Form, Kind, Members};
use crate::fields::{Element, FieldSet, Node};
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Schema, Types};

/// The leaves of an object, with the items of lists and the entries of maps on the way to them.
pub fn owned(schema: &Schema, form: Form, object: &Map) -> FieldSet {
    owned_without(schema, form, object, &FieldSet::new())
}

/// What [`owned`] gives after the paths of `gone`, and all below them, are taken out of the object.
pub fn owned_without(schema: &Schema, form: Form, object: &Map, gone: &FieldSet) -> FieldSet {
    let walk = Walk { types: &schema.types, form };
    FieldSet::from_nodes(walk.members(Kind::Struct(schema.root()), object, gone).0)
}

struct Walk<'t> {
    types: &'t Types,
    form: Form,
}

/// What a walk found at a value.
struct Found {
    /// The value is a leaf of its own.
    is_leaf: bool,
    children: FieldSet,
    /// Nothing is left of the value: it is null.
    is_null: bool,
    /// The value is a map without entries.
    is_empty_map: bool,
}

impl<'t> Walk<'t> {
    fn value(&self, kind: Kind<'t>, value: &Value, gone: &FieldSet) -> Found {
        let mut found = Found {
            is_leaf: kind.is_leaf(value),
            children: FieldSet::new(),
            is_null: value.is_null(),
            is_empty_map: value.as_object().is_some_and(Map::is_empty),
        };
        match (kind, value) {
            // Taking something out of an atomic list or map takes all of it.
            (Kind::Atomic(_) | Kind::Untyped, Value::Object(_) | Value::Array(_))
            | (Kind::Deduced, Value::Array(_)) => found.is_null |= !gone.is_empty(),
            (Kind::Struct(_) | Kind::Map(_) | Kind::Deduced, Value::Object(map)) => {
                let (nodes, is_left) = self.members(kind, map, gone);
                found.children = FieldSet::from_nodes(nodes);
                found.is_null |= !is_left && !gone.is_empty();
            }
            (Kind::List(list), Value::Array(items)) => {
                let (nodes, is_left) = self.items(list, items, gone);
                found.children = FieldSet::from_nodes(nodes);
                found.is_null |= !is_left && !gone.is_empty();
            }
            _ => {}
        }
        found
    }

    /// The nodes of a map's members, and whether any member is left.
    fn members(&self, kind: Kind<'t>, map: &Map, gone: &FieldSet) -> (Vec<Node>, bool) {
        let mut nodes = Vec::with_capacity(map.len());
        let mut is_left = false;
        let mut visit = |name: &str, element: Element, value: &Value| {
            let gone_below = gone.field(name);
            if gone_below.is_some_and(|node| node.is_member) {
                return;
            }
            is_left = true;
            let (member, is_field) = kind.member(self.types, name);
            let Some(member) = member else { return };
            let none = FieldSet::new();
            let found = self.value(member, value, gone_below.map_or(&none, |node| &node.children));
            nodes.push(Node {
                element,
                is_member: found.is_leaf || found.is_null || found.is_empty_map || !is_field,
                children: found.children,
            });
        };
        if let (Kind::Struct(of), Form::Decoded | Form::Merged) = (kind, self.form) {
            let members = Members::of(of, map);
            for (at, field) in of.fields.iter().enumerate() {
                if let Some(value) = members.look(self.form, at, field) {
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

    fn items(&self, list: &'t ListShape, items: &[Value], gone: &FieldSet) -> (Vec<Node>, bool) {
        let mut nodes: Vec<Node> = Vec::with_capacity(items.len());
        let mut is_left = false;
        for item in items {
            let Ok(element) = element(self.types, list, item) else {
                is_left = true;
                continue;
            };
            let gone_below = gone.node(&element);
            if gone_below.is_some_and(|node| node.is_member) {
                continue;
            }
            is_left = true;
            let none = FieldSet::new();
            let gone_below = gone_below.map_or(&none, |node| &node.children);
            let found = self.value(Kind::of(self.types, &list.item), item, gone_below);
            nodes.push(Node { element, is_member: true, children: found.children });
        }
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        // Of items that stand twice only the item as such is owned.
        let mut kept: Vec<Node> = Vec::with_capacity(nodes.len());
        for node in nodes {
            match kept.last_mut() {
                Some(last) if last.element == node.element => last.children = FieldSet::new(),
                _ => kept.push(node),
            }
        }
        (kept, is_left)
    }
}

/// The set with every struct field on the way to a path added.
pub(crate) fn with_named_fields(schema: &Schema, mut set: FieldSet) -> FieldSet {
    name_fields(&schema.types, Some(Kind::Struct(schema.root())), &mut set);
    set
}

fn name_fields<'t>(types: &'t Types, kind: Option<Kind<'t>>, set: &mut FieldSet) {
    for node in set.nodes_mut() {
        if node.children.is_empty() {
            continue;
        }
        let below = match (&node.element, kind) {
            (Element::Field(name), Some(Kind::Atomic(shape))) => {
                let (below, is_field) = atomic_member(types, shape, name);
                node.is_member |= is_field;
                below
            }
            (Element::Field(name), Some(kind)) => {
                let (below, is_field) = kind.member(types, name);
                node.is_member |= is_field;
                below
            }
            (Element::Key(_), Some(Kind::List(list))) => Some(Kind::of(types, &list.item)),
            _ => None,
        };
        name_fields(types, below, &mut node.children);
    }
}

/// Sets written under an older schema may lead into what is atomic now.
fn atomic_member<'t>(
    types: &'t Types,
    shape: &'t keelson_schema::Shape,
    name: &str,
) -> (Option<Kind<'t>>, bool) {
    match shape {
        keelson_schema::Shape::Struct(id) => Kind::Struct(types.get(*id)).member(types, name),
        keelson_schema::Shape::Map(map) => (Some(Kind::of(types, &map.value)), false),
        _ => (None, false),
    }
}
