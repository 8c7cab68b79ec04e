//! The objects of one resource, their recent changes, and cursors into them.

use crate::begins_with;
use crate::entry::by_key;
use crate::history::{Change, ChangeKind, History};
use crate::selection::{INDEXES_MAX, Index, OBJECTS_MIN, Scans, Term};
use crate::tree::Tree;
use crate::wake::publish;
use crate::{Entry, RecordError};
use keelson_store::{Event, KeyValue, Revision};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use bytes::Bytes;

/// Entries of writes whose events are awaited; of further ones, a second entry is made.
const WRITTEN_ENTRIES_MAX: usize = 64;
/// Different heads of objects that are told apart: one for each version that any release stored.
const HEADS_MAX: usize = 8;

/// The objects of a resource as they were at one revision. Cheap to clone, never changes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Tree<Entry>,
    indexes: Arc<Vec<Index>>,
    /// Everything up to this revision is in it, nothing after.
    pub revision: Revision,
}

impl Snapshot {
    /// The object at `key` (`namespace/name` or `name`).
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.objects.get(by_key(key))
    }

    /// The objects whose keys begin with `prefix`, in the order of their keys, from `start` on
    /// (inclusive). An empty prefix is all of them.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let from = if start > prefix { start } else { prefix };
        self.objects
            .from(by_key(from))
            .take_while(move |entry| begins_with(entry.key_bytes(), prefix.as_bytes()))
    }

    /// The objects of [`Snapshot::range`] that have a value for a term, when an index knows them.
    pub fn select<'a>(
        &'a self,
        term: &Term,
        value: &'a str,
        prefix: &'a str,
        start: &str,
    ) -> Option<impl Iterator<Item = &'a Entry> + use<'a>> {
        let index = self.indexes.iter().find(|index| index.term == *term)?;
        Some(index.range(value, prefix, start))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True when there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

#[derive(Default)]
struct State {
    objects: Tree<Entry>,
    /// Of all `objects`. Invariant: no two of one term.
    indexes: Arc<Vec<Index>>,
    /// Objects whose stored form cannot be read, by key. `objects` may have what they were before.
    unreadable: BTreeMap<String, Arc<RecordError>>,
    history: History,
    heads: Vec<(Box<[u8]>, Revision)>,
}

impl State {
    /// Notes what an object's text begins with.
    fn note_head(&mut self, entry: &Entry) {
        let (head, at) = (entry.head_slice(), entry.modified());
        let known = self.heads.iter().position(|(known, _)| **known == *head);
        if known.is_none() && self.heads.len() < HEADS_MAX {
            return self.heads.push((head.into(), at));
        }
        let place = known.unwrap_or(HEADS_MAX - 1);
        if let Some((_, through)) = self.heads.get_mut(place) {
            *through = at.max(*through);
        }
    }
}

/// All objects of a resource as the store has them.
#[derive(Default)]
pub(crate) struct Loaded {
    pub objects: Vec<Entry>,
    pub unreadable: Vec<RecordError>,
}

/// One resource's objects and history.
pub struct Resource {
    prefix: Bytes,
    state: RwLock<State>,
    scans: Mutex<Scans>,
    /// Made by writers, for events that have not come yet.
    written: Mutex<Vec<Entry>>,
    /// The number of the next change; wakes cursors.
    next: watch::Sender<u64>,
    /// How often all cursors were ended.
    ends: AtomicU64,
    /// How often anything of this was changed.
    changes: AtomicU64,
}

impl Resource {
    pub(crate) fn new(prefix: Bytes, floor: Revision) -> Self {
        let state = RwLock::new(State { history: History::new(floor), ..State::default() });
        let next = watch::Sender::new(0);
        let (scans, written) = (Mutex::default(), Mutex::default());
        let (ends, changes) = (AtomicU64::new(0), AtomicU64::new(0));
        Resource { prefix, state, scans, written, next, ends, changes }
    }

    /// The prefix of the resource's keys in the store.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // A panic while the lock was held broke a promise of this crate: it must not be papered over.
        self.state.read().expect("the cache state is not poisoned")
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        let state = self.state.write().expect("the cache state is not poisoned");
        self.changes.fetch_add(1, Ordering::Release);
        state
    }

    /// Takes an object in without a change, when the store is loaded.
    pub(crate) fn load(&self, kv: &KeyValue) -> Result<(), Arc<RecordError>> {
        let entry = Entry::from_store(self.prefix.len(), kv);
        let mut state = self.write();
        match entry {
            Ok(entry) => {
                state.note_head(&entry);
                state.objects.insert(entry);
                Ok(())
            }
            Err(error) => Err(state.note_unreadable(self.key_of(&kv.key), error)),
        }
    }

    /// What stands behind the prefix of a key of the store.
    fn key_of<'k>(&self, key: &'k [u8]) -> &'k str {
        let key = key.get(self.prefix.len()..).unwrap_or_default();
        std::str::from_utf8(key).unwrap_or_default()
    }

    /// Applies one event of the store; [`Resource::tell`] is to follow. An object that cannot be read is told of to readers and not to
    /// watchers, who cannot be given what it is.
    pub(crate) fn apply(&self, event: &Event) -> Result<(), Arc<RecordError>> {
        let mut state = self.write();
        let key = self.key_of(&event.key);
        state.unreadable.remove(key);
        let made = self.take_written(key, event.revision);
        let previous = state.objects.get(by_key(key)).cloned();
        if let Some(previous) = &previous {
            assert!(previous.modified() < event.revision, "{previous:?} went back to {event:?}");
        }
        let (kind, entry) = match (&event.value, &previous) {
            (Some(value), _) => {
                let entry = match made {
                    Some(entry) => entry,
                    None => {
                        let kv = KeyValue {
                            key: event.key.clone(),
                            value: value.clone(),
                            created: event.created,
                            modified: event.revision,
                        };
                        let entry = Entry::from_store(self.prefix.len(), &kv);
                        entry.map_err(|error| state.note_unreadable(key, error))?
                    }
                };
                state.note_head(&entry);
                state.objects.insert(entry.clone());
                (ChangeKind::Put, entry)
            }
            (None, Some(previous)) => {
                state.objects.remove(by_key(key));
                (ChangeKind::Delete, previous.at_revision(event.revision))
            }
            // The store deletes only what is there.
            (None, None) => return Ok(()),
        };
        if !state.indexes.is_empty() {
            let now = (kind == ChangeKind::Put).then_some(&entry);
            for index in Arc::make_mut(&mut state.indexes) {
                index.change(previous.as_ref(), now);
            }
        }
        state.history.push(Change::new(kind, event.revision, entry, previous));
        Ok(())
    }

    /// Grows with every change, before that can be read: while it stays the same, a cursor that has taken all has
    /// nothing more to take.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Wakes cursors for what has been applied.
    pub(crate) fn tell(&self) {
        let next = self.read().history.next();
        publish(&self.next, next);
    }

    /// How many cursors may wait for changes.
    pub(crate) fn cursors(&self) -> usize {
        self.next.receiver_count()
    }

    /// Ends all cursors that there are.
    pub(crate) fn end_cursors(&self) {
        self.ends.fetch_add(1, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        self.next.send_modify(|_| ());
    }

    /// What the texts of objects begin with, up to where they begin as items of a list (`kind` and
    /// `apiVersion`), each with the newest revision of such an object that was ever there.
    pub fn heads(&self) -> Vec<(Box<[u8]>, Revision)> {
        self.read().heads.clone()
    }

    /// Whether there is no object, readable or not.
    pub(crate) fn has_nothing(&self) -> bool {
        let state = self.read();
        state.objects.is_empty() && state.unreadable.is_empty()
    }

    /// Packs what has become old. Without a lock, but for a moment.
    pub(crate) fn pack(&self) {
        let (number, due) = self.read().history.due();
        if due.is_empty() {
            return;
        }
        let differences = due.iter().map(|change| change.difference()).collect();
        self.write().history.pack(number, differences);
    }

    /// The entry of what was just written, the same that readers will be given: one copy of the object
    /// serves the answer and the cache.
    pub fn written(&self, kv: &KeyValue) -> Result<Entry, RecordError> {
        let known = self.get(self.key_of(&kv.key));
        if let Some(known) = known.filter(|known| known.modified() == kv.modified) {
            return Ok(known);
        }
        let entry = Entry::from_store(self.prefix.len(), kv)?;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() < WRITTEN_ENTRIES_MAX {
            written.push(entry.clone());
        }
        Ok(entry)
    }

    /// The entry that a writer made for an event. Those of earlier events are no longer awaited.
    fn take_written(&self, key: &str, revision: Revision) -> Option<Entry> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let at =
            written.iter().position(|entry| entry.modified() == revision && entry.key() == key);
        let entry = at.map(|at| written.swap_remove(at));
        written.retain(|entry| entry.modified() >= revision);
        entry
    }

    /// Puts other objects, as they are at `revision`, in the place of all, when the changes in between
    /// are not to be had. Every cursor ends.
    pub(crate) fn replace(&self, loaded: Loaded, revision: Revision) {
        let Loaded { objects, unreadable } = loaded;
        let mut state = self.write();
        state.unreadable.clear();
        for error in unreadable {
            state.note_unreadable(self.key_of(error.key.as_bytes()), error.clone());
        }
        for entry in &objects {
            state.note_head(entry);
        }
        state.objects = objects.into_iter().collect();
        state.indexes = Arc::default();
        state.history.restart(revision);
        let next = state.history.next();
        drop(state);
        self.next.send_replace(next);
    }

    /// The objects now. `revision` is what the caller knows to have been applied before the call.
    pub(crate) fn snapshot(&self, revision: Revision) -> Snapshot {
        let state = self.read();
        let newest = state.history.newest().unwrap_or(Revision(0));
        let (objects, indexes) = (state.objects.clone(), state.indexes.clone());
        Snapshot { objects, indexes, revision: revision.max(newest) }
    }

    /// The objects as they were at `revision`; `None` when the history does not reach back so far, or too much has
    /// changed since.
    pub fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        let state = self.read();
        let undone = state.history.undone(revision)?;
        let mut objects = state.objects.clone();
        for (key, previous) in undone {
            match previous {
                Some(previous) => objects.insert(previous),
                None => objects.remove(by_key(key)),
            };
        }
        Some(Snapshot { objects, indexes: Arc::default(), revision })
    }

    /// Counts a list that looked at every object for want of an index. True: [`Resource::make_index`] is
    /// due, on a thread that may be busy for a while.
    pub fn scanned(&self, term: &Term) -> bool {
        let state = self.read();
        // A list of the past has no index, whatever there is now.
        let is_known = state.indexes.iter().any(|index| index.term == *term);
        let is_large = state.objects.len() >= OBJECTS_MIN;
        drop(state);
        is_large && !is_known && self.scans().count(term)
    }

    fn scans(&self) -> MutexGuard<'_, Scans> {
        self.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the index of a term, unless the history is too short for what happens meanwhile.
    pub fn make_index(&self, term: Term) {
        self.add_index(term.clone());
        self.scans().made(&term);
    }

    fn add_index(&self, term: Term) {
        let state = self.read();
        let (objects, at) = (state.objects.clone(), state.history.next());
        drop(state);
        let mut index = Index::new(term, &objects);
        let mut state = self.write();
        let Some(since) = state.history.since(at) else { return };
        for change in since {
            let now = (change.kind == ChangeKind::Put).then_some(&change.entry);
            index.change(change.previous.as_ref(), now);
        }
        let indexes = Arc::make_mut(&mut state.indexes);
        indexes.retain(|known| known.term != index.term);
        if indexes.len() == INDEXES_MAX {
            indexes.remove(0);
        }
        indexes.push(index);
    }

    /// The object at `key` now.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.read().objects.get(by_key(key)).cloned()
    }

    /// Why the object at `key` cannot be read.
    pub fn unreadable(&self, key: &str) -> Option<Arc<RecordError>> {
        self.read().unreadable.get(key).cloned()
    }

    /// Why the first object that cannot be read, of those whose keys begin with `prefix`, cannot be.
    pub fn unreadable_under(&self, prefix: &str) -> Option<Arc<RecordError>> {
        let state = self.read();
        let mut from =
            state.unreadable.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.next().filter(|(key, _)| key.starts_with(prefix)).map(|(_, error)| error.clone())
    }

    /// The keys of the objects that cannot be read.
    pub fn unreadable_keys(&self) -> Vec<String> {
        self.read().unreadable.keys().cloned().collect()
    }

    /// Number of objects now.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// True when there is no object now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A cursor that gives the changes after `revision`; `None` when they are no longer all known.
    pub fn cursor(self: &Arc<Self>, revision: Revision) -> Option<Cursor> {
        let wake = self.next.subscribe();
        let ends = self.ends.load(Ordering::Acquire);
        let at = self.read().history.after(revision)?;
        Some(Cursor { resource: self.clone(), at, wake, ends })
    }

    /// The oldest revision from which a cursor can start.
    pub fn floor(&self) -> Revision {
        self.read().history.floor()
    }

    /// Forgets changes at and before `revision`, because the store forgot them.
    pub(crate) fn compact(&self, revision: Revision) {
        self.write().history.compact(revision);
    }
}

impl State {
    fn note_unreadable(&mut self, key: &str, error: RecordError) -> Arc<RecordError> {
        let error = Arc::new(error);
        self.unreadable.insert(key.to_owned(), error.clone());
        error
    }
}

/// A place in a resource's history.
pub struct Cursor {
    resource: Arc<Resource>,
    at: u64,
    wake: watch::Receiver<u64>,
    /// How often the resource had ended all cursors when this one was made.
    ends: u64,
}

/// Why a cursor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The changes it stood at were forgotten before it read them.
    #[error("the watch fell behind the history")]
    Lagged,
    /// The cache was closed, or the resource is served no longer, or in another way.
    #[error("the resource is watched no longer")]
    Closed,
}

impl Cursor {
    /// Appends the next changes to `out` without waiting; leaves it as it is when there are none.
    pub fn take(&mut self, out: &mut Vec<Arc<Change>>) -> Result<(), CursorError> {
        if self.is_ended() {
            return Err(CursorError::Closed);
        }
        let read = self.resource.read().history.read(self.at, out);
        self.at += read.ok_or(CursorError::Lagged)? as u64;
        Ok(())
    }

    /// Waits until there may be a further change.
    pub async fn changed(&mut self) -> Result<(), CursorError> {
        let (at, ends, resource) = (self.at, self.ends, &self.resource);
        let is_ended = || resource.ends.load(Ordering::Acquire) != ends;
        let woken = self.wake.wait_for(|next| *next > at || is_ended()).await;
        woken.map(drop).map_err(|_| CursorError::Closed)
    }

    fn is_ended(&self) -> bool {
        self.resource.ends.load(Ordering::Acquire) != self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::{PREFIX, stored};

    /// Lets the cache take a write in; what it has then.
    fn applied(resource: &Resource, kv: &KeyValue) -> Entry {
        let KeyValue { key, value, created, modified } = kv.clone();
        let event = Event { key, value: Some(value), revision: modified, created };
        resource.apply(&event).expect("a record");
        resource.get("ns/a").expect("was just put there")
    }

    #[test]
    fn a_writer_and_the_cache_have_one_entry_whoever_comes_first() {
        let resource = Resource::new(Bytes::from_static(PREFIX.as_bytes()), Revision(0));
        let [first, second, third] = [7, 8, 9].map(|revision| stored("ns/a", &[], revision));
        let made = resource.written(&first).expect("a record");
        assert!(made.is(&applied(&resource, &first)));
        let known = applied(&resource, &second);
        assert!(known.is(&resource.written(&second).expect("a record")));
        // A write whose event the cache has passed has an entry of its own, which nobody awaits for long.
        let late = resource.written(&first).expect("a record");
        assert_eq!((late.modified(), resource.written.lock().unwrap().len()), (Revision(7), 1));
        assert_eq!(applied(&resource, &third).modified(), Revision(9));
        assert_eq!(resource.written.lock().unwrap().len(), 0);
    }
}
