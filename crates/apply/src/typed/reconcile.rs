//! Updates field sets for schema changes: paths into a value that has become atomic are replaced by
//! the path of the value.

use super::MergeKind;
use crate::fields::{Element, FieldSet};
use keelson_schema::{Schema, Types};

/// Updates a set for the current schema. Returns whether it changed.
pub(crate) fn reconcile(schema: &Schema, set: &mut FieldSet) -> bool {
    nodes(&schema.types, MergeKind::Struct(schema.root()), set)
}

fn nodes(types: &Types, kind: MergeKind<'_>, set: &mut FieldSet) -> bool {
    let mut is_changed = false;
    for node in set.nodes_mut() {
        if node.children.is_empty() {
            continue;
        }
        let below = match (&node.element, kind) {
            (Element::Field(name), kind) => kind.member(types, name).0,
            (_, MergeKind::List(list)) => Some(MergeKind::of(types, &list.item)),
            _ => None,
        };
        match below {
            Some(MergeKind::Atomic(_) | MergeKind::Untyped) => {
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
