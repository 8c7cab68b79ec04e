//! [`Graph`]: which objects depend on which owners, kept from changes of all objects. Only objects that name
//! owners are in it, and owners that are being deleted with their dependents.

use crate::metadata::{Metadata, may_concern_owners};
use bytes::Bytes;
use keelson_registry::{Entry, InformerEvent, Kind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectRef {
    /// Which kind, among those of the graph.
    kind: u32,
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
}

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// An object: whether an owner is left that keeps it, or, where it is being deleted in the foreground,
    /// whether a dependent is left.
    Collect(ObjectRef),
    /// An object that is being deleted and whose dependents are to lose their reference to it.
    Orphan(ObjectRef),
}

/// An object's uid. Uids that the server gave are read as numbers, others are hashed.
type Uid = u128;

/// An object that names owners.
#[derive(Debug)]
struct Node {
    /// The uid of each owner, and whether the owner's deletion in the foreground waits for this object.
    owners: Box<[(Uid, bool)]>,
}

/// Which objects depend on which owners.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    kinds: Vec<Arc<Kind>>,
    /// Places in `kinds`, by the prefix of their keys.
    places: HashMap<Bytes, u32>,
    nodes: HashMap<ObjectRef, Node>,
    /// By the uid of the owner. Invariant: what `nodes` say of their owners.
    dependents: HashMap<Uid, HashSet<ObjectRef>>,
    /// Objects that wait for their dependents to be deleted.
    deleting: HashMap<Uid, ObjectRef>,
    /// Objects of which an owner's kind is not served.
    unmapped: HashSet<ObjectRef>,
    /// Objects whose owners were not compared yet with those that there are in other namespaces.
    unchecked: HashSet<ObjectRef>,
}

/// What a change leads to.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// What is to be looked at.
    pub work: Vec<Work>,
    /// An owner has begun to wait for its dependents: all that were made before must be known.
    pub has_waiting_owner: bool,
}

impl Graph {
    /// Takes in a change.
    pub fn apply(&mut self, event: InformerEvent, effects: &mut Effects) {
        match event {
            InformerEvent::Listed(kind, snapshot) => {
                let (place, is_known) = self.place(kind);
                self.nodes_of(place).into_iter().for_each(|gone| self.remove(&gone, effects));
                snapshot.range("", "").for_each(|entry| self.put(place, entry, None, effects));
                if is_known {
                    // Owners may have gone unseen.
                    effects.work.extend(self.nodes.keys().cloned().map(Work::Collect));
                }
                effects.work.extend(self.unmapped.drain().map(Work::Collect));
            }
            InformerEvent::Put { kind, entry, previous } => {
                let (place, _) = self.place(kind);
                self.put(place, &entry, previous.as_ref(), effects);
            }
            InformerEvent::Deleted { kind, entry } => {
                let (place, _) = self.place(kind);
                self.deleted(place, &entry, effects);
            }
            InformerEvent::Withdrawn(kind) => {
                let (place, _) = self.place(kind);
                self.nodes_of(place).into_iter().for_each(|gone| self.remove(&gone, effects));
            }
        }
    }

    /// The place of a kind, which is from now on what it is now; and whether it was known.
    fn place(&mut self, kind: Arc<Kind>) -> (u32, bool) {
        if let Some(place) = self.places.get(&kind.prefix) {
            self.kinds[*place as usize] = kind;
            return (*place, true);
        }
        let place = u32::try_from(self.kinds.len()).expect("there are not so many kinds");
        self.places.insert(kind.prefix.clone(), place);
        self.kinds.push(kind);
        (place, false)
    }

    fn nodes_of(&self, place: u32) -> Vec<ObjectRef> {
        self.nodes.keys().filter(|node| node.kind == place).cloned().collect()
    }

    fn put(&mut self, place: u32, entry: &Entry, previous: Option<&Entry>, effects: &mut Effects) {
        let may_concern = may_concern_owners(entry);
        if !may_concern && !previous.is_some_and(may_concern_owners) {
            return;
        }
        let now = Metadata::of(entry);
        let before = previous.map(Metadata::of).unwrap_or_default();
        let is_same = before.uid == now.uid;
        if previous.is_none() || !is_same || !now.has_owners_of(&before) {
            let object = ObjectRef { kind: place, key: entry.key().into() };
            self.remove(&object, effects);
            self.add(object, &now, effects);
        }
        if now.is_deleting_dependents() {
            let object = ObjectRef { kind: place, key: entry.key().into() };
            if self.deleting.insert(uid_of(now.uid), object.clone()).is_none() {
                effects.has_waiting_owner = true;
                effects.work.extend(self.dependents(now.uid).into_iter().map(Work::Collect));
            }
            effects.work.push(Work::Collect(object));
        } else if before.is_deleting_dependents() {
            self.deleting.remove(&uid_of(now.uid));
        }
        if now.is_orphaning_dependents() && !(is_same && before.is_orphaning_dependents()) {
            effects.has_waiting_owner = true;
            effects.work.push(Work::Orphan(ObjectRef { kind: place, key: entry.key().into() }));
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

    fn deleted(&mut self, place: u32, entry: &Entry, effects: &mut Effects) {
        let now = Metadata::of(entry);
        if now.has_owners() {
            self.remove(&ObjectRef { kind: place, key: entry.key().into() }, effects);
        }
        let uid = uid_of(now.uid);
        self.deleting.remove(&uid);
        let dependents = self.dependents.get(&uid).into_iter().flatten();
        effects.work.extend(dependents.cloned().map(Work::Collect));
    }

    /// Forgets what an object depends on. Owners that wait for it are to be looked at.
    fn remove(&mut self, object: &ObjectRef, effects: &mut Effects) {
        self.unmapped.remove(object);
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

    /// The kind of an object.
    pub fn kind(&self, object: &ObjectRef) -> Arc<Kind> {
        self.kinds[object.kind as usize].clone()
    }

    /// The objects that name an owner.
    pub fn dependents(&self, owner: &str) -> Vec<ObjectRef> {
        self.dependents.get(&uid_of(owner)).into_iter().flatten().cloned().collect()
    }

    /// Whether an object names this owner.
    pub fn has_dependents(&self, owner: &str) -> bool {
        self.dependents.contains_key(&uid_of(owner))
    }

    /// Whether the deletion of an owner in the foreground waits for a dependent.
    pub fn is_blocked(&self, owner: &str) -> bool {
        let owner = uid_of(owner);
        let blocks = |object: &ObjectRef| {
            let node = self.nodes.get(object);
            node.is_some_and(|node| node.owners.contains(&(owner, true)))
        };
        self.dependents.get(&owner).is_some_and(|dependents| dependents.iter().any(blocks))
    }

    /// Whether a dependent of an owner waits itself for its dependents: the two may wait for each other.
    pub fn has_waiting_dependent(&self, owner: &str) -> bool {
        let waiting: HashSet<&ObjectRef> = self.deleting.values().collect();
        let dependents = self.dependents.get(&uid_of(owner));
        dependents.is_some_and(|dependents| dependents.iter().any(|one| waiting.contains(one)))
    }

    /// Whether an object that waits for its dependents is, over its owners, one of those it waits for.
    pub fn waits_for_itself(&self, uid: &str, object: &ObjectRef) -> bool {
        let uid = uid_of(uid);
        let mut seen = HashSet::new();
        let mut next = vec![object];
        while let Some(object) = next.pop() {
            let Some(node) = self.nodes.get(object) else { continue };
            for (owner, _) in node.owners.iter().filter(|(_, blocks)| *blocks) {
                if *owner == uid {
                    return true;
                }
                if let Some(owner) = self.deleting.get(owner).filter(|owner| seen.insert(*owner)) {
                    next.push(owner);
                }
            }
        }
        false
    }

    /// Notes that an owner's kind is not served: the object is to be looked at when other kinds are.
    pub fn note_unmapped(&mut self, object: &ObjectRef) {
        if self.nodes.contains_key(object) {
            self.unmapped.insert(object.clone());
        }
    }

    /// Whether the owners of an object are to be compared with those in other namespaces; true only once.
    pub fn take_unchecked(&mut self, object: &ObjectRef) -> bool {
        self.unchecked.remove(object)
    }
}

/// The number that stands for a uid.
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
