//! [`Dependents`]: the objects of a kind by the uid of their controller, so that no sync scans all
//! objects. A control loop keeps it in `observe` and adds its own writes at once.

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
#[derive(Debug, Default)]
pub(crate) struct Dependents {
    index: Mutex<Index>,
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
    fn names(&mut self, namespace: &str, controller: Option<&str>) -> &mut Names {
        match controller {
            Some(uid) => self.owned.entry(uid.into()).or_default(),
            None => self.orphans.entry(namespace.into()).or_default(),
        }
    }

    fn put(&mut self, namespace: &str, name: &str, uid: &str, controller: Option<&str>) {
        let names = self.names(namespace, controller);
        names.insert((namespace.into(), name.into()), uid.into());
    }

    fn remove(&mut self, namespace: &str, name: &str, uid: &str, controller: Option<&str>) {
        let names = self.names(namespace, controller);
        let key = (Str::from(namespace), Str::from(name));
        if names.get(&key).is_some_and(|known| known == uid) {
            names.remove(&key);
        }
        let is_empty = names.is_empty();
        match controller {
            Some(owner) if is_empty => drop(self.owned.remove(owner)),
            None if is_empty => drop(self.orphans.remove(namespace)),
            _ => {}
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
    /// Replaces the index by the objects of a list.
    pub fn list<'e>(&self, entries: impl Iterator<Item = &'e Entry>) {
        let mut index = Index::default();
        for entry in entries {
            let metadata = Metadata::of(entry);
            let controller = metadata.controller();
            let uid = controller.as_ref().map(|one| one.uid.as_str());
            index.put(entry.namespace(), entry.name(), metadata.uid, uid);
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
                let uid = now.as_ref().map(|one| one.uid.as_str());
                let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
                index.remove(entry.namespace(), entry.name(), metadata.uid, uid);
                Affected { now, ..Affected::default() }
            }
            InformerEvent::Listed(..) | InformerEvent::Withdrawn(_) => Affected::default(),
        }
    }

    fn observe_put(&self, entry: &Entry, previous: Option<&Entry>) -> Affected {
        let metadata = Metadata::of(entry);
        let now = metadata.controller();
        let uid = now.as_ref().map(|one| one.uid.as_str());
        let namespace = entry.namespace();
        let name = entry.name();
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let mut affected = Affected::default();
        if let Some(old) = previous {
            let old_metadata = Metadata::of(old);
            if !old_metadata.has_same_owners(&metadata) || old_metadata.uid != metadata.uid {
                let before = old_metadata.controller();
                let old_uid = before.as_ref().map(|one| one.uid.as_str());
                if old_uid != uid {
                    index.remove(namespace, name, old_metadata.uid, old_uid);
                    affected.before = before;
                }
            }
        }
        index.put(namespace, name, metadata.uid, uid);
        affected.is_adoptable = now.is_none()
            && !metadata.is_deleting
            && previous
                .is_none_or(|old| affected.before.is_some() || !old.labels().eq(entry.labels()));
        affected.now = now;
        affected
    }

    /// Records an object that this process has written.
    pub fn put(&self, object: &Object) {
        let uid = object.controller().and_then(|controller| controller.str_at(&["uid"]));
        let namespace = object.namespace();
        let name = object.name();
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if uid.is_some() {
            index.remove(namespace, name, object.uid(), None);
        }
        index.put(namespace, name, object.uid(), uid);
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
