//! [`Informer`]: the objects of many kinds and their changes, for control loops.
//!
//! All kinds, or some, are followed with one [`Follower`]: nothing is done for a kind that does not change. Kinds
//! of custom resources are followed from when they are served. A kind is listed whenever its changes are not
//! all known: at first, when its definition has changed, and when the informer fell behind.

use crate::kind::Kind;
use crate::producer::custom_prefix;
use crate::registry::Registry;
use bytes::Bytes;
use keelson_cache::{Change, ChangeKind, Cursor, Entry, Follower, Snapshot};
use keelson_meta::Str;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

/// What has happened to the objects of a kind.
#[derive(Debug)]
pub enum InformerEvent {
    /// These are all objects of the kind; those that are not among them are gone.
    Listed(Arc<Kind>, Snapshot),
    /// An object was made or changed.
    Put {
        /// Its kind.
        kind: Arc<Kind>,
        /// What it is now.
        entry: Entry,
        /// What it was before; absent when it is new.
        previous: Option<Entry>,
    },
    /// An object was deleted.
    Deleted {
        /// Its kind.
        kind: Arc<Kind>,
        /// What it was last.
        entry: Entry,
    },
    /// The kind is not served any more; its objects may still be stored.
    Withdrawn(Arc<Kind>),
}

/// Which kinds an informer follows.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// All kinds, those of custom resources too.
    All,
    /// These groups and resources.
    Only(&'static [(&'static str, &'static str)]),
}

impl Wanted {
    fn has(self, kind: &Kind) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Only(resources) => {
                let (group, resource) = (kind.gvr.group.as_str(), kind.gvr.resource.as_str());
                resources.contains(&(group, resource))
            }
        }
    }
}

/// The objects of many kinds and their changes.
pub struct Informer {
    registry: Arc<Registry>,
    wanted: Wanted,
    follower: Follower,
    /// Wakes when other kinds are served.
    api: watch::Receiver<u64>,
    /// The number of the change of the API table up to which it was looked at; none: not yet.
    seen: Option<u64>,
    /// By the prefix of their keys.
    followed: HashMap<Bytes, Followed>,
}

struct Followed {
    kind: Arc<Kind>,
    /// None: to be listed.
    cursor: Option<Cursor>,
}

impl Registry {
    /// An object as the cache has it. Like an informer, for loops of the server itself: nobody is asked.
    pub fn cached(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Entry> {
        self.objects(kind).get(&kind.key(namespace, name))
    }

    /// All objects of a kind that can be read, as the cache has them; the same holds.
    pub fn cached_all(&self, kind: &Kind) -> Snapshot {
        self.cache.snapshot(&self.objects(kind))
    }

    /// Follows the objects of many kinds.
    pub fn informer(self: &Arc<Self>, wanted: Wanted) -> Informer {
        let mut api = self.api_number();
        api.mark_changed();
        let prefixes = match wanted {
            Wanted::All => None,
            Wanted::Only(resources) => {
                let kinds = resources.iter().filter_map(|(group, name)| self.kind(group, name));
                Some(kinds.map(|kind| kind.prefix.clone()).collect())
            }
        };
        let follower = self.cache.follow(prefixes);
        let (registry, followed) = (self.clone(), HashMap::new());
        Informer { registry, wanted, follower, api, seen: None, followed }
    }
}

impl Informer {
    /// Appends what has happened since the last call.
    pub fn take(&mut self, out: &mut Vec<InformerEvent>) {
        if self.api.has_changed().unwrap_or(false) {
            let number = *self.api.borrow_and_update();
            match self.seen.and_then(|seen| self.registry.api_changes_since(seen)) {
                Some(changed) => self.follow_changed(&changed, out),
                None => self.follow_served(out),
            }
            self.seen = Some(number);
        }
        for resource in self.follower.take() {
            if let Some(followed) = self.followed.get_mut(resource.prefix()) {
                followed.take(&self.registry, out);
            }
        }
    }

    /// The same, with everything that was applied before the call: changes of different kinds are told
    /// independently of each other, and one kind's may come some milliseconds late.
    pub fn take_all(&mut self, out: &mut Vec<InformerEvent>) {
        self.take(out);
        for followed in self.followed.values_mut() {
            followed.take(&self.registry, out);
        }
    }

    /// Waits until there may be something to take.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.follower.changed() => {}
            changed = self.api.changed() => {
                // It wakes only once; `take` is to see it.
                match changed {
                    Ok(()) => self.api.mark_changed(),
                    Err(_) => std::future::pending().await,
                }
            }
        }
    }

    /// Follows what is served now of some resources, by group and name.
    fn follow_changed(&mut self, changed: &BTreeSet<(Str, Str)>, out: &mut Vec<InformerEvent>) {
        for (group, resource) in changed {
            match self.registry.kind(group, resource) {
                Some(kind) if self.wanted.has(&kind) => self.follow(kind, out),
                Some(_) => {}
                None => {
                    let followed = self.followed.remove(&custom_prefix(group, resource));
                    out.extend(followed.map(|followed| InformerEvent::Withdrawn(followed.kind)));
                }
            }
        }
    }

    /// Lists a kind that is new, or was replaced.
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

    /// Follows the kinds that are served now.
    fn follow_served(&mut self, out: &mut Vec<InformerEvent>) {
        let mut served: HashMap<Bytes, Arc<Kind>> = HashMap::new();
        for kind in self.registry.kinds().into_iter().filter(|kind| self.wanted.has(kind)) {
            // Both kinds of events have the same objects.
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
        let (kind, entry) = (self.kind.clone(), change.entry.clone());
        match change.kind {
            ChangeKind::Put => {
                InformerEvent::Put { kind, entry, previous: change.previous.clone() }
            }
            ChangeKind::Delete => InformerEvent::Deleted { kind, entry },
        }
    }

    /// Takes all objects. While the cache is loaded anew there is nothing to take; it tells followers when it is.
    fn list(&mut self, registry: &Registry, out: &mut Vec<InformerEvent>) {
        let objects = registry.objects(&self.kind);
        let snapshot = registry.cache.snapshot(&objects);
        self.cursor = objects.cursor(snapshot.revision);
        if self.cursor.is_some() {
            out.push(InformerEvent::Listed(self.kind.clone(), snapshot));
        }
    }
}
