//! Sets that were written under an older schema: what was granular then and is atomic now has one
//! owner.

use super::Kind;
use crate::fields::{Element, FieldSet};
use keelson_schema::{Schema, Types};

/// Brings a set in line with the schema. Says whether it changed.
pub(crate) fn reconcile(schema: &Schema, set: &mut FieldSet) -> bool {
    nodes(&schema.types, Kind::Struct(schema.root()), set)
}

fn nodes(types: &Types, kind: Kind<'_>, set: &mut FieldSet) -> bool {
    let mut is_changed = false;
    for node in set.nodes_mut() {
        if node.children.is_empty() {
            continue;
        }
        let below = match (&node.element, kind) {
            (Element::Field(name), kind) => kind.member(types, name).0,
            (_, Kind::List(list)) => Some(Kind::of(types, &list.item)),
            _ => None,
        };
        match below {
            Some(Kind::Atomic(_) | Kind::Untyped) => {
                node.is_member = true;
                node.children = FieldSet::new();
                is_changed = true;
            }
            Some(below) => is_changed |= nodes(types, below, &mut node.children),
            None => {}
        }
    }
    is_changed
}
