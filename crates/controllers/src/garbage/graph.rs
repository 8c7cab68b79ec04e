//! [`Graph`]: which objects depend on which owners. It contains only objects with owner references
//! and objects in foreground deletion, and follows the changes of all kinds.

use bytes::Bytes;
use keelson_loops::metadata::{Metadata, may_have_owners_or_be_deleting};
use keelson_records::Entry;
use keelson_registry::InformerEvent;
use keelson_resources::Kind;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectRef {
    /// Index in `Graph::kinds`.
    kind: u32,
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
}

/// A unit of work of the garbage collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Check whether an owner keeps an object; for an object in foreground deletion, whether it
    /// still has dependents.
    Collect(ObjectRef),
    /// Remove the references to an owner that is being deleted from its dependents.
    Orphan(ObjectRef),
}

/// A uid. Uids that the server generated are parsed as numbers, others are hashed.
type Uid = u128;

/// An object with owner references.
#[derive(Debug)]
struct Node {
    /// The uid and `blockOwnerDeletion` of each owner.
    owners: Box<[(Uid, bool)]>,
}

/// The dependency graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    kinds: Vec<Arc<Kind>>,
    /// Indices in `kinds`, by key prefix.
    indices: HashMap<Bytes, u32>,
    nodes: HashMap<ObjectRef, Node>,
    /// The dependents of each owner, by its uid. Invariant: the inverse of `nodes`.
    dependents: HashMap<Uid, HashSet<ObjectRef>>,
    /// Objects in foreground deletion.
    deleting: HashMap<Uid, ObjectRef>,
    /// Objects with an owner whose kind is not served.
    owner_unserved: HashSet<ObjectRef>,
    /// Objects whose owner references were not yet checked for owners in other namespaces.
    unchecked: HashSet<ObjectRef>,
}

/// The consequences of a change.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// What must be synced.
    pub work: Vec<Work>,
    /// An object begins to wait for its dependents: all earlier changes must be observed first.
    pub has_waiting_owner: bool,
}

impl Graph {
    /// Applies a change.
    pub fn apply(&mut self, event: InformerEvent, effects: &mut Effects) {
        match event {
            InformerEvent::Listed(kind, snapshot) => {
                let (index, is_known) = self.index(kind);
                self.nodes_of(index).into_iter().for_each(|node| self.remove(&node, effects));
                snapshot.range("", "").for_each(|entry| self.put(index, entry, None, effects));
                if is_known {
                    // Deletions of owners may have been missed.
                    effects.work.extend(self.nodes.keys().cloned().map(Work::Collect));
                }
                effects.work.extend(self.owner_unserved.drain().map(Work::Collect));
            }
            InformerEvent::Put { kind, entry, previous } => {
                let (index, _) = self.index(kind);
                self.put(index, &entry, previous.as_ref(), effects);
            }
            InformerEvent::Deleted { kind, entry } => {
                let (index, _) = self.index(kind);
                self.deleted(index, &entry, effects);
            }
            InformerEvent::Withdrawn(kind) => {
                let (index, _) = self.index(kind);
                self.nodes_of(index).into_iter().for_each(|node| self.remove(&node, effects));
            }
        }
    }

    /// Returns the index of a kind, and whether it was known. The kind replaces its old version.
    fn index(&mut self, kind: Arc<Kind>) -> (u32, bool) {
        if let Some(index) = self.indices.get(&kind.prefix) {
            self.kinds[*index as usize] = kind;
            return (*index, true);
        }
        let index = u32::try_from(self.kinds.len()).expect("there are not so many kinds");
        self.indices.insert(kind.prefix.clone(), index);
        self.kinds.push(kind);
        (index, false)
    }

    fn nodes_of(&self, index: u32) -> Vec<ObjectRef> {
        self.nodes.keys().filter(|node| node.kind == index).cloned().collect()
    }

    fn put(&mut self, index: u32, entry: &Entry, previous: Option<&Entry>, effects: &mut Effects) {
        let may_concern = may_have_owners_or_be_deleting(entry);
        if !may_concern && !previous.is_some_and(may_have_owners_or_be_deleting) {
            return;
        }
        let now = Metadata::of(entry);
        let before = previous.map(Metadata::of).unwrap_or_default();
        let is_same = before.uid == now.uid;
        if previous.is_none() || !is_same || !now.has_same_owners(&before) {
            let object = ObjectRef { kind: index, key: entry.key().into() };
            self.remove(&object, effects);
            self.add(object, &now, effects);
        }
        if now.is_deleting_dependents() {
            let object = ObjectRef { kind: index, key: entry.key().into() };
            if self.deleting.insert(uid_of(&now.uid), object.clone()).is_none() {
                effects.has_waiting_owner = true;
                effects.work.extend(self.dependents(&now.uid).into_iter().map(Work::Collect));
            }
            effects.work.push(Work::Collect(object));
        } else if before.is_deleting_dependents() {
            self.deleting.remove(&uid_of(&now.uid));
        }
        if now.is_orphaning_dependents() && !(is_same && before.is_orphaning_dependents()) {
            effects.has_waiting_owner = true;
            effects.work.push(Work::Orphan(ObjectRef { kind: index, key: entry.key().into() }));
        }
    }

    fn add(&mut self, object: ObjectRef, now: &Metadata<'_>, effects: &mut Effects) {
        if !now.has_owners() {
            return;
        }
        let owners: Box<[_]> =
            now.owners().iter().map(|owner| (uid_of(&owner.uid), owner.blocks)).collect();
        for (owner, _) in &owners {
            self.dependents.entry(*owner).or_default().insert(object.clone());
        }
        self.nodes.insert(object.clone(), Node { owners });
        self.unchecked.insert(object.clone());
        effects.work.push(Work::Collect(object));
    }

    fn deleted(&mut self, index: u32, entry: &Entry, effects: &mut Effects) {
        let now = Metadata::of(entry);
        if now.has_owners() {
            self.remove(&ObjectRef { kind: index, key: entry.key().into() }, effects);
        }
        let uid = uid_of(&now.uid);
        self.deleting.remove(&uid);
        let dependents = self.dependents.get(&uid).into_iter().flatten();
        effects.work.extend(dependents.cloned().map(Work::Collect));
    }

    /// Removes an object from the graph. Owners that wait for it are synced.
    fn remove(&mut self, object: &ObjectRef, effects: &mut Effects) {
        self.owner_unserved.remove(object);
        self.unchecked.remove(object);
        let Some(node) = self.nodes.remove(object) else { return };
        for (owner, _) in &node.owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(object);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
            effects.work.extend(self.deleting.get(owner).cloned().map(Work::Collect));
        }
    }

    /// Returns the kind of an object.
    pub fn kind(&self, object: &ObjectRef) -> Arc<Kind> {
        self.kinds[object.kind as usize].clone()
    }

    /// Returns the dependents of an owner.
    pub fn dependents(&self, owner: &str) -> Vec<ObjectRef> {
        self.dependents.get(&uid_of(owner)).into_iter().flatten().cloned().collect()
    }

    /// Whether an owner has dependents.
    pub fn has_dependents(&self, owner: &str) -> bool {
        self.dependents.contains_key(&uid_of(owner))
    }

    /// Whether a dependent blocks the foreground deletion of an owner.
    pub fn is_blocked(&self, owner: &str) -> bool {
        let owner = uid_of(owner);
        let blocks = |object: &ObjectRef| {
            let node = self.nodes.get(object);
            node.is_some_and(|node| node.owners.contains(&(owner, true)))
        };
        self.dependents.get(&owner).is_some_and(|dependents| dependents.iter().any(blocks))
    }

    /// Whether a dependent of an owner is in foreground deletion itself, so that the two may wait
    /// for each other.
    pub fn has_waiting_dependent(&self, owner: &str) -> bool {
        let waiting: HashSet<&ObjectRef> = self.deleting.values().collect();
        let dependents = self.dependents.get(&uid_of(owner));
        dependents.is_some_and(|dependents| dependents.iter().any(|one| waiting.contains(one)))
    }

    /// Whether an object in foreground deletion waits for itself, through a cycle of owner
    /// references.
    pub fn is_in_cycle(&self, uid: &str, object: &ObjectRef) -> bool {
        let uid = uid_of(uid);
        let mut visited = HashSet::new();
        let mut next = vec![object];
        while let Some(object) = next.pop() {
            let Some(node) = self.nodes.get(object) else { continue };
            for (owner, _) in node.owners.iter().filter(|(_, blocks)| *blocks) {
                if *owner == uid {
                    return true;
                }
                if let Some(owner) = self.deleting.get(owner).filter(|owner| visited.insert(*owner))
                {
                    next.push(owner);
                }
            }
        }
        false
    }

    /// Records that the kind of an owner is not served. The object is synced again when other kinds
    /// are served.
    pub fn mark_owner_unserved(&mut self, object: &ObjectRef) {
        if self.nodes.contains_key(object) {
            self.owner_unserved.insert(object.clone());
        }
    }

    /// Whether the owners of an object must be checked for other namespaces. Returns true only
    /// once.
    pub fn take_unchecked(&mut self, object: &ObjectRef) -> bool {
        self.unchecked.remove(object)
    }
}

/// Returns the number of a uid.
fn uid_of(text: &str) -> Uid {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    let is_number = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    if is_number {
        return digits.fold(0, |number, digit| {
            let value = if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
            number << 4 | Uid::from(value)
        });
    }
    use std::hash::{DefaultHasher, Hash, Hasher};
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        Uid::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_numbers_and_other_texts_are_told_apart_from_them() {
        let uid = "00000000-0000-0000-0000-00000000002a";
        assert_eq!(uid_of(uid), 42);
        let others = ["", "42", "00000000-0000-0000-0000-00000000002A", "a"];
        let mut all: Vec<Uid> = others.iter().map(|text| uid_of(text)).collect();
        all.push(42);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
    }
}
