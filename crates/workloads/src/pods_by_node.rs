//! [`PodsByNode`]: the names of pods by the node that they are bound to.

use crate::stored::{Name, name_of};
use keelson_meta::Str;
use keelson_records::Entry;
use keelson_registry::InformerEvent;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// An index that a control loop keeps in `observe`.
#[derive(Debug, Default)]
pub(crate) struct PodsByNode {
    names: Mutex<HashMap<Str, BTreeSet<Name>>>,
}

impl PodsByNode {
    /// Observes a change of pods.
    pub fn observe(&self, event: &InformerEvent) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            InformerEvent::Listed(_, all) => {
                names.clear();
                for entry in all.range("", "") {
                    if let Some(node) = node_of(entry) {
                        names.entry(node.into()).or_default().insert(name_of(entry));
                    }
                }
            }
            InformerEvent::Put { entry, previous, .. } => {
                let before = previous.as_ref().and_then(node_of);
                let now = node_of(entry);
                if before != now {
                    remove(&mut names, before, entry);
                }
                if let Some(node) = now {
                    names.entry(node.into()).or_default().insert(name_of(entry));
                }
            }
            InformerEvent::Deleted { entry, .. } => remove(&mut names, node_of(entry), entry),
            InformerEvent::Withdrawn(_) => {}
        }
    }

    /// Returns the pods of a node, ordered by name.
    pub fn on(&self, node: &str) -> Vec<Name> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(node).into_iter().flatten().cloned().collect()
    }
}

fn remove(names: &mut HashMap<Str, BTreeSet<Name>>, node: Option<&str>, entry: &Entry) {
    let Some(node) = node else { return };
    if let Some(pods) = names.get_mut(node) {
        pods.remove(&name_of(entry));
        if pods.is_empty() {
            names.remove(node);
        }
    }
}

/// Returns the node that a pod is bound to.
pub(crate) fn node_of(entry: &Entry) -> Option<&str> {
    entry.field("spec.nodeName").filter(|node| !node.is_empty())
}
