//! [`Informer`]: the objects of many kinds and their changes, for control loops.
//!
//! One [`Follower`] follows all kinds, or a list of them, so a kind without changes costs nothing.
//! Custom resources are followed as soon as they are served. A kind is listed again when some of
//! its changes are lost: at first, when its definition has changed, and when the informer fell
//! behind.

use crate::registry::Registry;
use bytes::Bytes;
use keelson_cache::{Change, ChangeKind, Cursor, Follower, Snapshot};
use keelson_meta::Str;
use keelson_records::Entry;
use keelson_resources::Kind;
use keelson_resources::producer::custom_prefix;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

/// A change of the objects of a kind.
#[derive(Debug)]
pub enum InformerEvent {
    /// All objects of the kind. Objects that are not in the list are deleted.
    Listed(Arc<Kind>, Snapshot),
    /// An object was created or updated.
    Put {
        /// The kind.
        kind: Arc<Kind>,
        /// The new state.
        entry: Entry,
        /// The old state; `None` for a new object.
        previous: Option<Entry>,
    },
    /// An object was deleted.
    Deleted {
        /// The kind.
        kind: Arc<Kind>,
        /// The last state.
        entry: Entry,
    },
    /// The kind is no longer served. Its objects may still be stored.
    Withdrawn(Arc<Kind>),
}

/// Which kinds an informer follows.
#[derive(Clone, Copy, Debug)]
pub enum InformerScope {
    /// All kinds, including custom resources.
    All,
    /// These groups and resources.
    Only(&'static [(&'static str, &'static str)]),
}

impl InformerScope {
    fn has(self, kind: &Kind) -> bool {
        match self {
            InformerScope::All => true,
            InformerScope::Only(resources) => {
                let group = kind.gvr.group.as_str();
                let resource = kind.gvr.resource.as_str();
                resources.contains(&(group, resource))
            }
        }
    }
}

/// Follows the objects of many kinds. See the module documentation.
pub struct Informer {
    registry: Arc<Registry>,
    scope: InformerScope,
    follower: Follower,
    /// Signals changes of the API table.
    api: watch::Receiver<u64>,
    /// The last change of the API table that was processed; `None`: none yet.
    processed: Option<u64>,
    followed: HashMap<Bytes, Followed>,
}

struct Followed {
    kind: Arc<Kind>,
    /// `None`: the kind must be listed.
    cursor: Option<Cursor>,
}

impl Registry {
    /// Returns an object of the cache. For control loops of the server itself: there is no
    /// authorization.
    pub fn cached(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Entry> {
        self.objects(kind).get(&kind.key(namespace, name))
    }

    /// Returns all readable objects of a kind in the cache, without authorization.
    pub fn cached_all(&self, kind: &Kind) -> Snapshot {
        self.cache.snapshot(&self.objects(kind))
    }

    /// Starts an informer for the objects of many kinds.
    pub fn informer(self: &Arc<Self>, scope: InformerScope) -> Informer {
        let mut api = self.api_number();
        api.mark_changed();
        let prefixes = match scope {
            InformerScope::All => None,
            InformerScope::Only(resources) => {
                let kinds = resources.iter().filter_map(|(group, name)| self.kind(group, name));
                Some(kinds.map(|kind| kind.prefix.clone()).collect())
            }
        };
        let follower = self.cache.follow(prefixes);
        let registry = self.clone();
        let followed = HashMap::new();
        Informer { registry, scope, follower, api, processed: None, followed }
    }
}

impl Informer {
    /// Appends the changes since the last call.
    pub fn take(&mut self, out: &mut Vec<InformerEvent>) {
        if self.api.has_changed().unwrap_or(false) {
            let number = *self.api.borrow_and_update();
            match self.processed.and_then(|processed| self.registry.api_changes_since(processed)) {
                Some(changed) => self.follow_changed(&changed, out),
                None => self.follow_served(out),
            }
            self.processed = Some(number);
        }
        for resource in self.follower.take() {
            if let Some(followed) = self.followed.get_mut(resource.prefix()) {
                followed.take(&self.registry, out);
            }
        }
    }

    /// Like [`Informer::take`], but includes every change that the cache applied before the call.
    /// Without it, the changes of one kind may be some milliseconds older than those of another.
    pub fn take_all(&mut self, out: &mut Vec<InformerEvent>) {
        self.take(out);
        for followed in self.followed.values_mut() {
            followed.take(&self.registry, out);
        }
    }

    /// Waits until there may be changes to take.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.follower.changed() => {}
            changed = self.api.changed() => {
                // The receiver wakes only once; mark it again for `take`.
                match changed {
                    Ok(()) => self.api.mark_changed(),
                    Err(_) => std::future::pending().await,
                }
            }
        }
    }

    fn follow_changed(&mut self, changed: &BTreeSet<(Str, Str)>, out: &mut Vec<InformerEvent>) {
        for (group, resource) in changed {
            match self.registry.kind(group, resource) {
                Some(kind) if self.scope.has(&kind) => self.follow(kind, out),
                Some(_) => {}
                None => {
                    let followed = self.followed.remove(&custom_prefix(group, resource));
                    out.extend(followed.map(|followed| InformerEvent::Withdrawn(followed.kind)));
                }
            }
        }
    }

    fn follow(&mut self, kind: Arc<Kind>, out: &mut Vec<InformerEvent>) {
        let known = self.followed.get(&kind.prefix);
        if known.is_some_and(|known| Arc::ptr_eq(&known.kind, &kind)) {
            return;
        }
        let prefix = kind.prefix.clone();
        let mut followed = Followed { kind, cursor: None };
        followed.take(&self.registry, out);
        self.followed.insert(prefix, followed);
    }

    fn follow_served(&mut self, out: &mut Vec<InformerEvent>) {
        let mut served: HashMap<Bytes, Arc<Kind>> = HashMap::new();
        for kind in self.registry.kinds().into_iter().filter(|kind| self.scope.has(kind)) {
            // Event is a kind of two groups with the same objects.
            served.entry(kind.prefix.clone()).or_insert(kind);
        }
        self.followed.retain(|prefix, followed| {
            let is_served = served.contains_key(prefix);
            if !is_served {
                out.push(InformerEvent::Withdrawn(followed.kind.clone()));
            }
            is_served
        });
        for kind in served.into_values() {
            self.follow(kind, out);
        }
    }
}

impl Followed {
    fn take(&mut self, registry: &Registry, out: &mut Vec<InformerEvent>) {
        let mut changes: Vec<Arc<Change>> = vec![];
        loop {
            let Some(cursor) = &mut self.cursor else {
                self.list(registry, out);
                return;
            };
            if cursor.take(&mut changes).is_err() {
                self.cursor = None;
                continue;
            }
            if changes.is_empty() {
                return;
            }
            out.extend(changes.drain(..).map(|change| self.event(&change)));
        }
    }

    fn event(&self, change: &Change) -> InformerEvent {
        let kind = self.kind.clone();
        let entry = change.entry.clone();
        match change.kind {
            ChangeKind::Put => {
                InformerEvent::Put { kind, entry, previous: change.previous.clone() }
            }
            ChangeKind::Delete => InformerEvent::Deleted { kind, entry },
        }
    }

    /// Lists all objects. While the cache reloads there is no list; followers are woken when it is
    /// loaded.
    fn list(&mut self, registry: &Registry, out: &mut Vec<InformerEvent>) {
        let objects = registry.objects(&self.kind);
        let snapshot = registry.cache.snapshot(&objects);
        self.cursor = objects.cursor(snapshot.revision);
        if self.cursor.is_some() {
            out.push(InformerEvent::Listed(self.kind.clone(), snapshot));
        }
    }
}
