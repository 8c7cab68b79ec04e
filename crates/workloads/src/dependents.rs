//! [`Dependents`]: the objects of a kind by the uid of their controller, so that no sync scans all
//! objects. A control loop keeps it in `observe` and adds its own writes at once. It has only the
//! objects that concern the loop: those of 50,000 pods would take 10 MB for each loop.

use crate::pod_control::is_controlled_by;
use crate::stored::{Name, name_of};
use keelson_loops::metadata::{Metadata, OwnerReference};
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Str};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, Registry};
use keelson_resources::Kind;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The objects of one kind by controller, and those without one by namespace.
#[derive(Debug)]
pub(crate) struct Dependents {
    /// The kind of the controllers (`ReplicaSet`). Objects of others are left out.
    controllers: &'static str,
    index: Mutex<Index>,
}

/// Where an object is in the index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    /// Controlled by the object with this uid.
    Owned(&'a str),
    /// Without a controller.
    Orphan,
    /// Controlled by an object of another kind.
    Elsewhere,
}

/// Names (namespace and name) with uids. An object that was deleted and created again has another
/// uid.
type Names = BTreeMap<(Str, Str), Str>;

#[derive(Debug, Default)]
struct Index {
    owned: HashMap<Str, Names>,
    /// By namespace.
    orphans: HashMap<Str, Names>,
}

impl Index {
    fn put(&mut self, namespace: &str, name: &str, uid: &str, place: Place<'_>) {
        let names = match place {
            Place::Owned(owner) => self.owned.entry(owner.into()).or_default(),
            Place::Orphan => self.orphans.entry(namespace.into()).or_default(),
            Place::Elsewhere => return,
        };
        names.insert((namespace.into(), name.into()), uid.into());
    }

    fn remove(&mut self, namespace: &str, name: &str, uid: &str, place: Place<'_>) {
        let (all, by) = match place {
            Place::Owned(owner) => (&mut self.owned, owner),
            Place::Orphan => (&mut self.orphans, namespace),
            Place::Elsewhere => return,
        };
        let Some(names) = all.get_mut(by) else { return };
        let key = (Str::from(namespace), Str::from(name));
        if names.get(&key).is_some_and(|known| known == uid) {
            names.remove(&key);
        }
        if names.is_empty() {
            all.remove(by);
        }
    }
}

/// What a change of an object means for owners.
#[derive(Debug, Default)]
pub(crate) struct Affected {
    /// The present controller.
    pub now: Option<OwnerReference>,
    /// Another controller that the object had before the change.
    pub before: Option<OwnerReference>,
    /// Whether any controller that selects the object may adopt it: it has none, and it is new,
    /// relabelled or released.
    pub is_adoptable: bool,
}

/// Queues all objects of a kind.
pub(crate) fn queue_all(registry: &Registry, kind: Option<Arc<Kind>>, queue: &mut Queue<Name>) {
    if let Some(kind) = kind {
        queue.extend(registry.cached_all(&kind).range("", "").map(name_of));
    }
}

impl Affected {
    /// Queues the controllers of the object that have a kind (`ReplicaSet`).
    pub fn queue_owners(&self, kind: &str, namespace: &str, queue: &mut Queue<Name>) {
        let owners =
            [&self.now, &self.before].into_iter().flatten().filter(|owner| owner.kind == kind);
        queue.extend(owners.map(|owner| (namespace.into(), owner.name.clone())));
    }

    /// Queues the objects of a kind that may adopt the changed object, because their selector
    /// matches it.
    pub fn queue_adopters(
        &self,
        registry: &Registry,
        kind: Option<Arc<Kind>>,
        changed: &Entry,
        queue: &mut Queue<Name>,
        selector: impl Fn(&Object) -> Option<Selector>,
    ) {
        let Some(kind) = kind.filter(|_| self.is_adoptable) else { return };
        let all = registry.cached_all(&kind);
        for entry in all.range(&format!("{}/", changed.namespace()), "") {
            let selector = kind.decode(entry).ok().and_then(|object| selector(&object));
            let is_match = |selector: &Selector| {
                !selector.is_everything() && selector.matches(|key| changed.label(key))
            };
            if selector.as_ref().is_some_and(is_match) {
                queue.add(name_of(entry));
            }
        }
    }
}

/// Returns the selector of an object, `spec.selector`.
pub(crate) fn selector_of(object: &Object) -> Option<Selector> {
    Selector::from_object(object.at(&["spec", "selector"])).ok()
}

impl Dependents {
    /// Returns an empty index of objects with controllers of a kind (`ReplicaSet`).
    pub fn of(controllers: &'static str) -> Dependents {
        Dependents { controllers, index: Mutex::default() }
    }

    fn place<'o>(&self, controller: Option<&'o OwnerReference>) -> Place<'o> {
        match controller {
            None => Place::Orphan,
            Some(owner) if owner.kind == self.controllers => Place::Owned(&owner.uid),
            Some(_) => Place::Elsewhere,
        }
    }

    /// Replaces the index by the objects of a list.
    pub fn list<'e>(&self, entries: impl Iterator<Item = &'e Entry>) {
        let mut index = Index::default();
        for entry in entries {
            let metadata = Metadata::of(entry);
            let controller = metadata.controller();
            let place = self.place(controller.as_ref());
            index.put(entry.namespace(), entry.name(), &metadata.uid, place);
        }
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = index;
    }

    /// Observes a change and returns whom it concerns. A list is not a change: see
    /// [`Dependents::list`].
    pub fn observe(&self, event: &InformerEvent) -> Affected {
        match event {
            InformerEvent::Put { entry, previous, .. } => {
                self.observe_put(entry, previous.as_ref())
            }
            InformerEvent::Deleted { entry, .. } => {
                let metadata = Metadata::of(entry);
                let now = metadata.controller();
                let place = self.place(now.as_ref());
                let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
                index.remove(entry.namespace(), entry.name(), &metadata.uid, place);
                Affected { now, ..Affected::default() }
            }
            InformerEvent::Listed(..) | InformerEvent::Withdrawn(_) => Affected::default(),
        }
    }

    fn observe_put(&self, entry: &Entry, previous: Option<&Entry>) -> Affected {
        let metadata = Metadata::of(entry);
        let now = metadata.controller();
        let place = self.place(now.as_ref());
        let namespace = entry.namespace();
        let name = entry.name();
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let mut affected = Affected::default();
        if let Some(old) = previous {
            let old_metadata = Metadata::of(old);
            if !old_metadata.has_same_owners(&metadata) || old_metadata.uid != metadata.uid {
                let before = old_metadata.controller();
                let uid_of =
                    |owner: &Option<OwnerReference>| owner.as_ref().map(|one| one.uid.clone());
                if uid_of(&before) != uid_of(&now) {
                    index.remove(namespace, name, &old_metadata.uid, self.place(before.as_ref()));
                    affected.before = before;
                }
            }
        }
        index.put(namespace, name, &metadata.uid, place);
        affected.is_adoptable = now.is_none()
            && !metadata.is_deleting
            && previous
                .is_none_or(|old| affected.before.is_some() || !old.labels().eq(entry.labels()));
        affected.now = now;
        affected
    }

    /// Records an object that this process has written.
    pub fn put(&self, object: &Object) {
        let controller = object.controller().map(OwnerReference::read);
        let place = self.place(controller.as_ref());
        let namespace = object.namespace();
        let name = object.name();
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if place != Place::Orphan {
            index.remove(namespace, name, object.uid(), Place::Orphan);
        }
        index.put(namespace, name, object.uid(), place);
    }

    /// Returns the stored objects that the index knows to have this controller, ordered by name.
    pub fn owned_entries(
        &self,
        registry: &Registry,
        kind: &Arc<Kind>,
        owner: &Object,
    ) -> Vec<Entry> {
        let names: Vec<(Str, Str)> = {
            let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            let names = index.owned.get(owner.uid()).into_iter().flat_map(BTreeMap::keys);
            names.filter(|(space, _)| space == owner.namespace()).cloned().collect()
        };
        names.iter().filter_map(|(space, name)| registry.cached(kind, space, name)).collect()
    }

    /// Returns the stored objects of a namespace without a controller that a selector matches.
    pub fn orphans(
        &self,
        registry: &Registry,
        kind: &Arc<Kind>,
        namespace: &str,
        selector: &Selector,
    ) -> Vec<Entry> {
        let names: Vec<(Str, Str)> = {
            let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            index.orphans.get(namespace).into_iter().flat_map(BTreeMap::keys).cloned().collect()
        };
        let entries = names.iter().filter_map(|(space, name)| registry.cached(kind, space, name));
        entries.filter(|entry| selector.matches(|key| entry.label(key))).collect()
    }

    /// Returns the objects with this controller, ordered by name.
    pub fn owned(
        &self,
        registry: &Registry,
        kind: &Arc<Kind>,
        owner: &Object,
    ) -> Result<Vec<Object>, Failure> {
        let entries = self.owned_entries(registry, kind, owner);
        let mut objects: Vec<Object> =
            entries.iter().map(|entry| kind.decode(entry)).collect::<Result<_, _>>()?;
        // The index may be older than the objects.
        objects.retain(|object| is_controlled_by(object, owner));
        Ok(objects)
    }

    /// Returns the objects that an owner controls, and those without a controller that its selector
    /// matches; each once.
    pub fn candidates(
        &self,
        registry: &Registry,
        kind: &Arc<Kind>,
        owner: &Object,
        selector: &Selector,
    ) -> Result<Vec<Object>, Failure> {
        let mut all = self.owned(registry, kind, owner)?;
        let owned: HashSet<Str> = all.iter().map(|one| one.name().into()).collect();
        for entry in self.orphans(registry, kind, owner.namespace(), selector) {
            if !owned.contains(entry.name()) {
                all.push(kind.decode(&entry)?);
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn pod(name: &str, owner: Option<(&str, &str)>) -> Object {
        let owners: Vec<_> = owner
            .map(|(kind, uid)| value!({"kind": kind, "uid": uid, "controller": true}))
            .into_iter()
            .collect();
        let metadata = value!({"name": name, "namespace": "ns", "uid": name,
            "ownerReferences": owners});
        Object { root: value!({"metadata": metadata}).as_object().cloned().unwrap_or_default() }
    }

    #[test]
    fn only_objects_that_concern_the_loop_are_kept() {
        let dependents = Dependents::of("Job");
        dependents.put(&pod("a", None));
        dependents.put(&pod("b", Some(("Job", "j"))));
        dependents.put(&pod("c", Some(("ReplicaSet", "r"))));
        let names = |names: Option<&Names>| {
            let keys = names.into_iter().flat_map(BTreeMap::keys);
            keys.map(|(_, name)| name.to_string()).collect::<Vec<_>>()
        };
        let shown = || {
            let index = dependents.index.lock().unwrap();
            let owned = names(index.owned.get("j"));
            (index.owned.len(), owned, names(index.orphans.get("ns")))
        };
        assert_eq!(shown(), (1, vec!["b".into()], vec!["a".into()]));
        // An orphan that another kind adopts concerns the loop no longer.
        dependents.put(&pod("a", Some(("ReplicaSet", "r"))));
        assert_eq!(shown(), (1, vec!["b".into()], vec![]));
        assert!(dependents.index.lock().unwrap().orphans.is_empty());
    }
}
