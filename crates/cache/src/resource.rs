//! [`Resource`]: the objects of one resource and their recent changes, with [`Snapshot`] and
//! [`Cursor`].

use crate::fold::Bases;
use crate::history::{Change, ChangeKind, History};
use crate::index::{INDEXES_MAX, Index, OBJECTS_MIN, Scans, Term};
use crate::publish::publish;
use keelson_records::{Entry, HasSortKey, RecordError, Tree, by_key, starts_with};
use keelson_store::{Event, KeyValue, Revision};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use bytes::Bytes;

/// Maximum entries that writers made for events that have not arrived. Beyond it, the event makes a
/// second entry.
const WRITTEN_ENTRIES_MAX: usize = 64;
/// Loaded objects that are folded without a pause. They take less than a millisecond.
pub(crate) const FOLDED_AT_ONCE: usize = 128;
/// Maximum distinct item heads of a resource: one for each version that any release stored.
const HEADS_MAX: usize = 8;

/// The objects of a resource at one revision. Cheap to clone, never changes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Tree<Entry>,
    indexes: Arc<Vec<Index>>,
    /// Everything up to this revision is included, nothing after it.
    pub revision: Revision,
}

impl Snapshot {
    /// Returns the object with this key (`namespace/name` or `name`).
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.objects.get(by_key(key))
    }

    /// Iterates over the objects whose keys start with `prefix`, in key order, from `start` on
    /// (inclusive). An empty prefix selects all.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let from = if start > prefix { start } else { prefix };
        self.objects
            .from(by_key(from))
            .take_while(move |entry| starts_with(entry.key_bytes(), prefix.as_bytes()))
    }

    /// Iterates over the objects of [`Snapshot::range`] that have a value for a term; `None`
    /// without an index.
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

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

#[derive(Default)]
struct State {
    objects: Tree<Entry>,
    /// Indexes of `objects`. Invariant: no two of one term.
    indexes: Arc<Vec<Index>>,
    /// Objects whose stored value cannot be read, by key. `objects` may hold their last readable
    /// version.
    unreadable: BTreeMap<String, Arc<RecordError>>,
    history: History,
    heads: Vec<(Box<[u8]>, Revision)>,
    /// Bytes of `objects`, as if none were folded.
    bytes: usize,
    /// Events of the store that were applied.
    events: u64,
    /// How often all objects were loaded.
    loads: u64,
}

/// What a resource has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounts {
    /// Objects.
    pub objects: usize,
    /// Bytes of the objects, as if none were folded.
    pub bytes: usize,
    /// Events of the store that were applied and, with them, passed to watches.
    pub events: u64,
    /// How often all objects were loaded from the store.
    pub loads: u64,
    /// Objects that watches began with.
    pub initial_events: u64,
}

impl State {
    /// Records the start of an object's JSON.
    fn record_head(&mut self, entry: &Entry) {
        let head = entry.head_slice();
        let at = entry.modified();
        let known = self.heads.iter().position(|(known, _)| **known == *head);
        if known.is_none() && self.heads.len() < HEADS_MAX {
            return self.heads.push((head.into(), at));
        }
        let index = known.unwrap_or(HEADS_MAX - 1);
        if let Some((_, through)) = self.heads.get_mut(index) {
            *through = at.max(*through);
        }
    }
}

/// All objects of a resource as read from the store.
#[derive(Default)]
pub(crate) struct Loaded {
    pub objects: Vec<Entry>,
    pub unreadable: Vec<RecordError>,
}

/// The objects and the history of one resource.
pub struct Resource {
    prefix: Bytes,
    /// The number of the source that has it.
    source: usize,
    state: RwLock<State>,
    scans: Mutex<Scans>,
    /// Entries that writers made for events that have not arrived.
    written: Mutex<Vec<Entry>>,
    bases: Mutex<Bases>,
    /// The number of the next change when the resource was last settled.
    settled: AtomicU64,
    /// The number of the next change; wakes cursors.
    next: watch::Sender<u64>,
    /// How often all cursors were ended.
    ends: AtomicU64,
    /// How often anything in the resource changed.
    changes: AtomicU64,
    /// Objects that watches began with.
    initial_events: AtomicU64,
}

impl Resource {
    pub(crate) fn new(prefix: Bytes, source: usize, floor: Revision) -> Self {
        let state = State { history: History::new(floor), loads: 1, ..State::default() };
        let state = RwLock::new(state);
        let next = watch::Sender::new(0);
        let scans = Mutex::default();
        let written = Mutex::default();
        let bases = Mutex::default();
        let settled = AtomicU64::new(0);
        let ends = AtomicU64::new(0);
        let changes = AtomicU64::new(0);
        let initial_events = AtomicU64::new(0);
        Resource {
            prefix,
            source,
            state,
            scans,
            written,
            bases,
            settled,
            next,
            ends,
            changes,
            initial_events,
        }
    }

    /// Returns what was counted so far.
    pub fn counts(&self) -> ResourceCounts {
        let state = self.read();
        ResourceCounts {
            objects: state.objects.len(),
            bytes: state.bytes,
            events: state.events,
            loads: state.loads,
            initial_events: self.initial_events.load(Ordering::Relaxed),
        }
    }

    /// Counts the objects that a watch begins with.
    pub fn count_initial_events(&self, objects: usize) {
        self.initial_events.fetch_add(objects as u64, Ordering::Relaxed);
    }

    /// Returns the prefix of the resource's keys in the store.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// Returns the number of the source that has the resource.
    pub fn source(&self) -> usize {
        self.source
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // A panic under the lock may have broken an invariant: do not continue with the state.
        self.state.read().expect("the cache state is not poisoned")
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        let state = self.state.write().expect("the cache state is not poisoned");
        self.changes.fetch_add(1, Ordering::Release);
        state
    }

    /// Adds an object without a change, while the store is loaded.
    pub(crate) fn load(&self, kv: &KeyValue) -> Result<(), Arc<RecordError>> {
        let entry = Entry::from_store(self.prefix.len(), kv);
        let mut state = self.write();
        match entry {
            Ok(entry) => {
                state.record_head(&entry);
                state.bytes += entry.unfolded_size();
                state.objects.insert(entry);
                Ok(())
            }
            Err(error) => Err(state.record_unreadable(self.key_of(&kv.key), error)),
        }
    }

    /// Returns the part of a store key after the prefix.
    fn key_of<'k>(&self, key: &'k [u8]) -> &'k str {
        let key = key.get(self.prefix.len()..).unwrap_or_default();
        std::str::from_utf8(key).unwrap_or_default()
    }

    /// Applies one event of the store. The caller calls [`Resource::wake_cursors`] afterwards. An
    /// unreadable object is an error for reads and no event for watches, which could not be sent
    /// it.
    pub(crate) fn apply(&self, event: &Event) -> Result<(), Arc<RecordError>> {
        let mut state = self.write();
        state.events += 1;
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
                        entry.map_err(|error| state.record_unreadable(key, error))?
                    }
                };
                state.record_head(&entry);
                state.bytes += entry.unfolded_size();
                state.objects.insert(entry.clone());
                (ChangeKind::Put, entry)
            }
            (None, Some(previous)) => {
                state.objects.remove(by_key(key));
                (ChangeKind::Delete, previous.at_revision(event.revision))
            }
            // The store deletes only objects that exist.
            (None, None) => return Ok(()),
        };
        state.bytes -= previous.as_ref().map_or(0, Entry::unfolded_size);
        if !state.indexes.is_empty() {
            let now = (kind == ChangeKind::Put).then_some(&entry);
            for index in Arc::make_mut(&mut state.indexes) {
                index.update(previous.as_ref(), now);
            }
        }
        state.history.push(Change::new(kind, event.revision, entry, previous));
        Ok(())
    }

    /// Returns a counter that increases with every change, before the change can be read. While it
    /// is the same, a cursor that has read everything has nothing more to read.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Wakes the cursors after changes were applied.
    pub(crate) fn wake_cursors(&self) {
        let next = self.read().history.next();
        publish(&self.next, next);
    }

    /// Returns the number of cursors that may wait for changes.
    pub fn cursors(&self) -> usize {
        self.next.receiver_count()
    }

    /// Ends all present cursors.
    pub(crate) fn end_cursors(&self) {
        self.ends.fetch_add(1, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        self.next.send_modify(|_| ());
    }

    /// Returns the distinct starts of the objects' JSON that list items omit (`kind` and
    /// `apiVersion`), each with the newest revision at which such an object was written.
    pub fn heads(&self) -> Vec<(Box<[u8]>, Revision)> {
        self.read().heads.clone()
    }

    /// Returns whether there are no objects, readable or not.
    pub(crate) fn holds_no_objects(&self) -> bool {
        let state = self.read();
        state.objects.is_empty() && state.unreadable.is_empty()
    }

    /// Packs the older changes when there are many, and folds the versions that they wrote.
    pub(crate) fn pack(&self) {
        self.pack_before(0, true);
    }

    /// Like [`Resource::pack`], but leaves folding to [`Resource::fold_from`].
    pub(crate) fn pack_only(&self) {
        self.pack_before(0, false);
    }

    /// Packs all changes that were there at the call before.
    pub(crate) fn settle(&self) {
        let next = self.read().history.next();
        self.pack_before(self.settled.swap(next, Ordering::Relaxed), true);
    }

    /// Packs changes before a number, and more if there are many. Takes the write lock only
    /// briefly.
    fn pack_before(&self, settled: u64, folds: bool) {
        let state = self.read();
        let (number, due) = state.history.changes_to_pack(settled);
        if due.is_empty() {
            return;
        }
        let objects = state.objects.clone();
        drop(state);
        let mut bases = self.bases();
        let fold = |change: &Arc<Change>| {
            let mut there = objects.from(change.entry.sort_key());
            let written = change.entry.modified();
            let current = there.next().filter(|current| current.modified() == written)?;
            match current.is_folded() {
                true => Some(current.clone()),
                false => bases.fold(current, there.next()),
            }
        };
        let folded: Vec<Entry> = match folds {
            true => due.iter().filter_map(fold).collect(),
            false => vec![],
        };
        let differences = due.iter().map(|change| change.difference()).collect();
        drop((bases, objects));
        let mut state = self.write();
        state.history.pack(number, differences);
        folded.iter().for_each(|one| state.put_folded(one));
    }

    fn bases(&self) -> MutexGuard<'_, Bases> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folds objects that were loaded, from a key on, and returns the key that comes next. `None`:
    /// there are no more.
    pub(crate) fn fold_from(&self, start: &str) -> Option<String> {
        let objects = self.read().objects.clone();
        let mut bases = self.bases();
        let mut folded = vec![];
        let mut all = objects.from(by_key(start));
        let mut near: Option<Entry> = None;
        for entry in all.by_ref().take(FOLDED_AT_ONCE) {
            let made = match entry.is_folded() {
                true => None,
                false => bases.fold(entry, near.as_ref()),
            };
            near = made.clone().or_else(|| near.take());
            folded.extend(made);
        }
        let next = all.next().map(|entry| entry.key().to_owned());
        drop((bases, objects));
        if !folded.is_empty() {
            let mut state = self.write();
            folded.iter().for_each(|one| state.put_folded(one));
        }
        next
    }

    /// Returns the entry of an object that was just written, shared with the cache: one copy serves
    /// the response and later reads.
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

    /// Returns the entry that a writer made for an event. Entries of earlier events are dropped.
    fn take_written(&self, key: &str, revision: Revision) -> Option<Entry> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let at =
            written.iter().position(|entry| entry.modified() == revision && entry.key() == key);
        let entry = at.map(|at| written.swap_remove(at));
        written.retain(|entry| entry.modified() >= revision);
        entry
    }

    /// Replaces all objects with those at `revision` when the changes in between are not available.
    /// All cursors end.
    pub(crate) fn replace(&self, loaded: Loaded, revision: Revision) {
        let Loaded { objects, unreadable } = loaded;
        let mut state = self.write();
        state.unreadable.clear();
        for error in unreadable {
            state.record_unreadable(self.key_of(error.key.as_bytes()), error.clone());
        }
        for entry in &objects {
            state.record_head(entry);
        }
        state.loads += 1;
        state.bytes = objects.iter().map(Entry::unfolded_size).sum();
        state.objects = objects.into_iter().collect();
        state.indexes = Arc::default();
        state.history.restart(revision);
        let next = state.history.next();
        drop(state);
        self.next.send_replace(next);
    }

    /// Returns the current objects. The caller guarantees that `revision` is applied.
    pub(crate) fn snapshot(&self, revision: Revision) -> Snapshot {
        let state = self.read();
        let newest = state.history.newest().unwrap_or(Revision(0));
        let objects = state.objects.clone();
        let indexes = state.indexes.clone();
        Snapshot { objects, indexes, revision: revision.max(newest) }
    }

    /// Returns the objects at `revision`; `None` when the history does not reach back so far or too
    /// much has changed since.
    pub fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        let state = self.read();
        let rolled_back = state.history.rolled_back(revision)?;
        let mut objects = state.objects.clone();
        for (key, previous) in rolled_back {
            match previous {
                Some(previous) => objects.insert(previous),
                None => objects.remove(by_key(key)),
            };
        }
        Some(Snapshot { objects, indexes: Arc::default(), revision })
    }

    /// Counts a list that scanned all objects because there was no index. Returns true when the
    /// caller should call [`Resource::make_index`], on a thread that may block.
    pub fn count_scan(&self, term: &Term) -> bool {
        let state = self.read();
        // A list at a past revision has no index even if there is one now.
        let is_known = state.indexes.iter().any(|index| index.term == *term);
        let is_large = state.objects.len() >= OBJECTS_MIN;
        drop(state);
        is_large && !is_known && self.scans().count(term)
    }

    fn scans(&self) -> MutexGuard<'_, Scans> {
        self.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the index of a term. Does nothing when the history is too short for the changes
    /// meanwhile.
    pub fn make_index(&self, term: Term) {
        self.add_index(term.clone());
        self.scans().finish(&term);
    }

    fn add_index(&self, term: Term) {
        let state = self.read();
        let objects = state.objects.clone();
        let at = state.history.next();
        drop(state);
        let mut index = Index::new(term, &objects);
        let mut state = self.write();
        let Some(since) = state.history.since(at) else { return };
        for change in since {
            let now = (change.kind == ChangeKind::Put).then_some(&change.entry);
            index.update(change.previous.as_ref(), now);
        }
        let indexes = Arc::make_mut(&mut state.indexes);
        indexes.retain(|known| known.term != index.term);
        if indexes.len() == INDEXES_MAX {
            indexes.remove(0);
        }
        indexes.push(index);
    }

    /// Returns the current object with this key.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.read().objects.get(by_key(key)).cloned()
    }

    /// Returns why the object with this key cannot be read.
    pub fn unreadable(&self, key: &str) -> Option<Arc<RecordError>> {
        self.read().unreadable.get(key).cloned()
    }

    /// Returns the error of the first unreadable object whose key starts with `prefix`.
    pub fn unreadable_under(&self, prefix: &str) -> Option<Arc<RecordError>> {
        let state = self.read();
        let mut from =
            state.unreadable.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.next().filter(|(key, _)| key.starts_with(prefix)).map(|(_, error)| error.clone())
    }

    /// Returns the keys of the unreadable objects.
    pub fn unreadable_keys(&self) -> Vec<String> {
        self.read().unreadable.keys().cloned().collect()
    }

    /// Returns the current number of objects.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Returns whether there are currently no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a cursor for the changes after `revision`; `None` when some were evicted.
    pub fn cursor(self: &Arc<Self>, revision: Revision) -> Option<Cursor> {
        let wake = self.next.subscribe();
        let ends = self.ends.load(Ordering::Acquire);
        let at = self.read().history.after(revision)?;
        Some(Cursor { resource: self.clone(), at, wake, ends })
    }

    /// Returns the oldest revision from which a cursor can start.
    pub fn floor(&self) -> Revision {
        self.read().history.floor()
    }

    /// Removes the changes at and before `revision`, which the store has compacted.
    pub(crate) fn compact(&self, revision: Revision) {
        self.write().history.compact(revision);
    }
}

impl State {
    /// Replaces an object by the same version, folded.
    fn put_folded(&mut self, folded: &Entry) {
        self.history.put_folded(folded);
        let current = self.objects.get(folded.sort_key());
        let is_same =
            |current: &&Entry| current.modified() == folded.modified() && !current.is_folded();
        let Some(current) = current.filter(is_same).cloned() else { return };
        if !self.indexes.is_empty() {
            for index in Arc::make_mut(&mut self.indexes) {
                index.update(Some(&current), Some(folded));
            }
        }
        self.objects.insert(folded.clone());
    }

    fn record_unreadable(&mut self, key: &str, error: RecordError) -> Arc<RecordError> {
        let error = Arc::new(error);
        self.unreadable.insert(key.to_owned(), error.clone());
        error
    }
}

/// A position in a resource's history.
pub struct Cursor {
    resource: Arc<Resource>,
    at: u64,
    wake: watch::Receiver<u64>,
    /// How often the resource had ended all cursors when this one was created.
    ends: u64,
}

/// Why a cursor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Changes were evicted before the cursor read them.
    #[error("the watch fell behind the history")]
    Lagged,
    /// The cache was closed, or the resource was removed or redefined.
    #[error("the resource is watched no longer")]
    Closed,
}

impl Cursor {
    /// Returns the resource.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Appends the next changes to `out` without waiting; appends nothing when there are none.
    pub fn take(&mut self, out: &mut Vec<Arc<Change>>) -> Result<(), CursorError> {
        if self.is_ended() {
            return Err(CursorError::Closed);
        }
        let read = self.resource.read().history.read(self.at, out);
        self.at += read.ok_or(CursorError::Lagged)? as u64;
        Ok(())
    }

    /// Waits until there may be another change.
    pub async fn changed(&mut self) -> Result<(), CursorError> {
        let at = self.at;
        let ends = self.ends;
        let resource = &self.resource;
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
    use keelson_records::testing::{PREFIX, stored};

    /// Applies a write to the cache and returns its entry.
    fn applied(resource: &Resource, kv: &KeyValue) -> Entry {
        let KeyValue { key, value, created, modified } = kv.clone();
        let event = Event { key, value: Some(value), revision: modified, created };
        resource.apply(&event).expect("a record");
        resource.get("ns/a").expect("was just put there")
    }

    #[test]
    fn bytes_and_events_are_counted() {
        let resource = Resource::new(Bytes::from_static(PREFIX.as_bytes()), 0, Revision(0));
        let counts = |objects, bytes, events| {
            let wanted = ResourceCounts { objects, bytes, events, loads: 1, initial_events: 0 };
            assert_eq!(resource.counts(), wanted);
        };
        counts(0, 0, 0);
        let first = applied(&resource, &stored("ns/a", &[], 7));
        counts(1, first.size(), 1);
        let second = applied(&resource, &stored("ns/a", &[("a", "label")], 8));
        counts(1, second.size(), 2);
        let key = [PREFIX, "ns/a"].concat().into();
        let gone = Event { key, value: None, revision: Revision(9), created: Revision(7) };
        resource.apply(&gone).expect("no record to be read");
        counts(0, 0, 3);
    }

    #[test]
    fn a_writer_and_the_cache_share_an_entry() {
        let resource = Resource::new(Bytes::from_static(PREFIX.as_bytes()), 0, Revision(0));
        let [first, second, third] = [7, 8, 9].map(|revision| stored("ns/a", &[], revision));
        let made = resource.written(&first).expect("a record");
        assert!(made.ptr_eq(&applied(&resource, &first)));
        let known = applied(&resource, &second);
        assert!(known.ptr_eq(&resource.written(&second).expect("a record")));
        // An entry of a write whose event was already applied is not shared, and is not kept for
        // long.
        let late = resource.written(&first).expect("a record");
        assert_eq!((late.modified(), resource.written.lock().unwrap().len()), (Revision(7), 1));
        assert_eq!(applied(&resource, &third).modified(), Revision(9));
        assert_eq!(resource.written.lock().unwrap().len(), 0);
    }
}
