//! The state that readers, watches and the commit thread of one engine share.
//!
//! Only the commit thread changes the state ([`Shared::publish`], [`Shared::raise_floor`] and
//! [`Shared::prune`]), after the disk has confirmed the write. The lock is not held
//! during disk IO.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use tokio::sync::watch;

use super::MakePlaceholder;
use super::disk::{Damage, Disk, Record, RecordId, Sink, StoredRecord, damage_error};
use super::index::{Index, PruneCursor, Version};
use super::leases::Leases;
use super::ring::{BatchBuilder, Ring};
use crate::{
    Batch, DiskError, Event, HealthError, KeyValue, PAGE_BYTES_MAX, Page, Range, ReadError,
    Revision, WatchError, WatchSlots, prefix_end,
};

/// Most records that one batch of a watch reads from disk, whether they match its prefix or not.
const SCAN_RECORDS_MAX: usize = 8192;

/// Most keys that are counted while writers wait.
const COUNT_KEYS_MAX: usize = 8192;

pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    make_placeholder: Option<MakePlaceholder>,
    state: RwLock<State>,
    /// The revisions being read, with the number of readers. Versions they need are not pruned.
    pins: Mutex<BTreeMap<Revision, usize>>,
    /// Copies of `State::newest` and `State::floor`, to be read without the lock.
    newest: AtomicU64,
    floor: AtomicU64,
    /// Sends the newest revision to wake the watches.
    newest_changed: watch::Sender<u64>,
    pub(super) watches: WatchSlots,
    /// Why writes currently fail. Only the commit thread changes it.
    failure: Mutex<Option<DiskError>>,
    /// Why the commit thread has stopped, unless the store was closed.
    stopped: Mutex<Option<DiskError>>,
    is_closed: AtomicBool,
}

/// The state loaded from the disk when the store is opened.
pub(super) struct Loaded {
    pub(super) shared: Shared,
    /// Size of the keys and values of all records.
    pub(super) bytes: u64,
    pub(super) leases: Leases,
}

struct State {
    index: Index,
    ring: Ring,
    /// Invariant: `floor <= newest`, both only grow, and everything up to `newest` is durable.
    newest: Revision,
    floor: Revision,
}

/// Protects a revision from pruning while its values are being read.
pub(super) struct Pin<'a> {
    shared: &'a Shared,
    at: Revision,
}

impl Pin<'_> {
    pub(super) fn at(&self) -> Revision {
        self.at
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pins = self.shared.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = pins.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.at);
            }
        }
    }
}

impl Shared {
    /// Builds the index from the disk. Reads no values. A damaged head is an error: if it were
    /// skipped, an older version of some key would become its newest one.
    pub(super) fn load(
        disk: Arc<dyn Disk>,
        make_placeholder: Option<MakePlaceholder>,
    ) -> Result<Loaded, DiskError> {
        let floor = disk.floor()?;
        let mut index = Index::default();
        let mut leases = Leases::default();
        let mut newest = floor;
        let mut bytes = 0;
        let mut last = None;
        let mut disorder = None;
        disk.heads(RecordId::first(Revision(0)), &mut |head| {
            if last.replace(head.id) >= Some(head.id) {
                disorder = Some(Damage { id: head.id, what: Damage::HEAD_ORDER });
                return ControlFlow::Break(());
            }
            newest = newest.max(head.id.revision);
            bytes += head.bytes();
            index.add(&head.key, Version::of(&head));
            leases.update(&head);
            ControlFlow::Continue(())
        })?;
        disorder.map_or(Ok(()), |damage| Err(damage_error(damage)))?;
        let state = State { index, ring: Ring::new(newest), newest, floor };
        let this = Self {
            disk,
            make_placeholder,
            state: RwLock::new(state),
            pins: Mutex::default(),
            newest: AtomicU64::new(newest.0),
            floor: AtomicU64::new(floor.0),
            newest_changed: watch::Sender::new(newest.0),
            watches: WatchSlots::default(),
            failure: Mutex::default(),
            stopped: Mutex::default(),
            is_closed: AtomicBool::new(false),
        };
        Ok(Loaded { shared: this, bytes, leases })
    }

    pub(super) fn newest(&self) -> Revision {
        Revision(self.newest.load(Ordering::Acquire))
    }

    pub(super) fn floor(&self) -> Revision {
        Revision(self.floor.load(Ordering::Acquire))
    }

    pub(super) fn newest_changed(&self) -> watch::Receiver<u64> {
        self.newest_changed.subscribe()
    }

    /// Records that the commit thread has stopped, and why.
    pub(super) fn stop(&self, source: DiskError) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }

    /// Returns why the commit thread has stopped, unless the store was closed.
    pub(super) fn stopped(&self) -> Option<DiskError> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn health(&self) -> Result<(), HealthError> {
        if let Some(source) = self.stopped() {
            return Err(HealthError::Stopped { source });
        }
        match self.lock_failure().clone() {
            Some(source) => Err(HealthError::Failing { source }),
            None if self.is_closed() => Err(HealthError::Closed),
            None => Ok(()),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, ReadError> {
        let state = self.read();
        let newest = state.newest;
        let Some(version) = state.index.live(key, newest) else { return Ok(None) };
        let key = Bytes::copy_from_slice(key);
        if let Some(value) = state.ring.value(version.id()) {
            return Ok(Some(key_value(key, value, version)));
        }
        let _pin = self.pin(newest);
        drop(state);
        let value = self.value(&key, version.id())?;
        Ok(Some(key_value(key, value, version)))
    }

    pub(super) fn range(&self, range: &Range) -> Result<Page, ReadError> {
        let limit = range.items_max();
        let state = self.read();
        let at = state.resolve_revision(range.at)?;
        let mut found: Vec<_> = state
            .index
            .range(&range.start, &range.end, at)
            .take(limit + 1)
            .map(|(key, version)| {
                (Bytes::copy_from_slice(key), version, state.ring.value(version.id()))
            })
            .collect();
        let _pin = self.pin(at);
        drop(state);
        let mut more = found.len() > limit;
        found.truncate(limit);
        let mut items = Vec::with_capacity(found.len());
        let mut bytes = 0;
        for (key, version, value) in found {
            if bytes >= PAGE_BYTES_MAX {
                more = true;
                break;
            }
            let value = value.map_or_else(|| self.value(&key, version.id()), Ok)?;
            bytes += value.len();
            items.push(key_value(key, value, version));
        }
        Ok(Page { items, at, more })
    }

    /// Counts the keys of a range, whatever its limit. Lets writers and other tasks go on between
    /// steps.
    pub(super) async fn count(&self, range: &Range) -> Result<(u64, Revision), ReadError> {
        let pin = self.pin_revision(range.at)?;
        let mut count = 0;
        let mut start = range.start.clone();
        loop {
            let (found, next) = self.count_step(&start, &range.end, pin.at);
            count += found as u64;
            match next {
                Some(next) => start = next,
                None => return Ok((count, pin.at)),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Counts up to [`COUNT_KEYS_MAX`] keys, and returns the key where to continue.
    fn count_step(&self, start: &[u8], end: &[u8], at: Revision) -> (usize, Option<Bytes>) {
        let state = self.read();
        let mut keys = state.index.range(start, end, at);
        let count = keys.by_ref().take(COUNT_KEYS_MAX).count();
        (count, keys.next().map(|(key, _)| Bytes::copy_from_slice(key)))
    }

    /// Passes the records up to a revision to `sink`; see
    /// [`Embedded::records`](super::Embedded::records).
    pub(super) fn records(
        &self,
        oldest: Revision,
        through: Revision,
        sink: Sink<'_, Record>,
    ) -> Result<(), ReadError> {
        // Nothing that a read at that revision needs is pruned meanwhile.
        let _pin = self.pin_revision(Some(oldest))?;
        let mut broken = Ok(());
        let result = self.disk.records(RecordId::first(Revision(0)), &mut |stored| {
            let StoredRecord { head, value } = stored;
            if head.id.revision > through {
                return ControlFlow::Break(());
            }
            let is_needed = head.id.revision > oldest
                || self.version_at(&head.key, oldest).is_some_and(|live| live.id() == head.id);
            if !is_needed {
                return ControlFlow::Continue(());
            }
            match value.or_else(|damage| placeholder_for(self.make_placeholder, &head.key, damage))
            {
                Ok(value) => sink(Record { head, value }),
                Err(error) => {
                    broken = Err(error);
                    ControlFlow::Break(())
                }
            }
        });
        result.map_err(|source| ReadError::Backend { source }).and(broken)
    }

    /// Returns the keys of a range at a revision that is not compacted, for the commit thread.
    pub(super) fn keys_at(
        &self,
        start: &[u8],
        end: &[u8],
        at: Revision,
        keys_max: usize,
    ) -> Vec<(Bytes, Version)> {
        let state = self.read();
        let keys = state.index.range(start, end, at).take(keys_max);
        keys.map(|(key, version)| (Bytes::copy_from_slice(key), version)).collect()
    }

    /// Returns the version of a key at a revision that is not pruned.
    pub(super) fn version_at(&self, key: &[u8], at: Revision) -> Option<Version> {
        self.read().index.live(key, at)
    }

    /// Pins a revision for a longer read.
    pub(super) fn pin_revision(&self, at: Option<Revision>) -> Result<Pin<'_>, ReadError> {
        let state = self.read();
        let at = state.resolve_revision(at)?;
        Ok(self.pin(at))
    }

    pub(super) fn load_prefix(
        &self,
        prefix: &[u8],
        at: Option<Revision>,
        sink: &mut (dyn FnMut(KeyValue) + Send),
    ) -> Result<Revision, ReadError> {
        let pin = self.pin_revision(at)?;
        self.load_pinned(&pin, prefix, self.make_placeholder, &mut |kv| {
            sink(kv);
            ControlFlow::Continue(())
        })?;
        Ok(pin.at)
    }

    /// Passes all live keys at a pinned revision to `sink`, in the order of their last writes.
    /// Reads the disk once.
    pub(super) fn load_pinned(
        &self,
        pin: &Pin<'_>,
        prefix: &[u8],
        make_placeholder: Option<MakePlaceholder>,
        sink: Sink<'_, KeyValue>,
    ) -> Result<(), ReadError> {
        let at = pin.at;
        let mut broken = Ok(());
        let result = self.disk.records(RecordId::first(Revision(0)), &mut |record| {
            let StoredRecord { head, value } = record;
            if head.id.revision > at {
                return ControlFlow::Break(());
            }
            if !head.is_delete && head.key.starts_with(prefix) {
                let version = self.read().index.live(&head.key, at);
                if let Some(version) = version.filter(|version| version.id() == head.id) {
                    match value
                        .or_else(|damage| placeholder_for(make_placeholder, &head.key, damage))
                    {
                        Ok(value) => return sink(key_value(head.key, value, version)),
                        Err(error) => broken = Err(error),
                    }
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        result.map_err(|source| ReadError::Backend { source }).and(broken)
    }

    /// Returns the next batch of a watch, or `None` if there is no revision after `after` yet.
    pub(super) fn batch(
        &self,
        prefix: &[u8],
        after: Revision,
    ) -> Result<Option<Batch>, WatchError> {
        let state = self.read();
        let newest = state.newest;
        let floor = state.floor;
        if after < floor {
            return Err(WatchError::Compacted { asked: after, floor });
        }
        if after >= newest {
            return Ok(None);
        }
        if state.ring.reaches(after) {
            return Ok(Some(state.ring.batch(prefix, after, newest)));
        }
        // A pin protects the live versions at its revision and all later records.
        let _pin = self.pin(after);
        drop(state);
        let batch = self.scan(prefix, after, newest);
        batch.map(Some).map_err(|source| WatchError::Backend { source })
    }

    /// Reads the next batch of a watch from the disk.
    fn scan(&self, prefix: &[u8], after: Revision, newest: Revision) -> Result<Batch, DiskError> {
        let mut builder = BatchBuilder::new(prefix);
        let mut scanned = 0;
        let mut reached = newest;
        let mut broken = Ok(());
        self.disk.records(RecordId::first(after.next()), &mut |record| {
            let StoredRecord { head, value } = record;
            let revision = head.id.revision;
            if revision > newest || !builder.has_room_for(revision) {
                return ControlFlow::Break(());
            }
            if scanned >= SCAN_RECORDS_MAX && head.id.index == 0 {
                reached = Revision(revision.0 - 1);
                return ControlFlow::Break(());
            }
            scanned += 1;
            if builder.matches(&head.key) {
                match value
                    .or_else(|damage| placeholder_for(self.make_placeholder, &head.key, damage))
                {
                    Ok(value) => builder.push(event(Record { head, value })),
                    Err(error) => {
                        broken = Err(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        broken.map_err(|error| -> DiskError { Arc::new(error) })?;
        Ok(builder.finish(reached))
    }

    /// Returns the value of a record. Only for the commit thread: it needs no pin, because the
    /// commit thread itself does the pruning.
    pub(super) fn recent_value(&self, key: &[u8], id: RecordId) -> Result<Bytes, ReadError> {
        let value = self.read().ring.value(id);
        value.map_or_else(|| self.value(key, id), Ok)
    }

    /// Returns the newest version of a key, for the commit thread.
    pub(super) fn current(&self, key: &[u8]) -> Option<Version> {
        let state = self.read();
        state.index.live(key, state.newest)
    }

    /// Returns the live keys under a prefix.
    pub(super) fn live_keys(&self, prefix: &[u8]) -> Vec<Bytes> {
        let state = self.read();
        let end = prefix_end(prefix);
        let keys = state.index.range(prefix, &end, state.newest);
        keys.map(|(key, _)| Bytes::copy_from_slice(key)).collect()
    }

    /// Makes durable records visible. The caller wakes the watches.
    pub(super) fn publish(&self, records: Vec<Record>) {
        let Some(newest) = records.last().map(|record| record.head.id.revision) else { return };
        let mut state = self.write();
        assert!(newest > state.newest, "revision {newest} after {}", state.newest);
        for record in records {
            state.index.add(&record.head.key, Version::of(&record.head));
            state.ring.push(record.head.id, event(record));
        }
        state.newest = newest;
        self.newest.store(newest.0, Ordering::Release);
    }

    /// Gives back the memory of recent events, when there is nothing to do.
    pub(super) fn forget_events(&self) {
        self.write().ring.clear();
    }

    /// Wakes the watches after a group was published.
    pub(super) fn wake_watches(&self) {
        let newest = self.newest.load(Ordering::Acquire);
        self.newest_changed.send_if_modified(|seen| std::mem::replace(seen, newest) != newest);
    }

    /// Raises the floor, which must be durable already.
    pub(super) fn raise_floor(&self, floor: Revision) {
        let mut state = self.write();
        assert!(floor > state.floor && floor <= state.newest, "floor {floor}");
        state.floor = floor;
        self.floor.store(floor.0, Ordering::Release);
    }

    /// Does one step of finding the records that no read can need; returns where to continue.
    pub(super) fn prune(
        &self,
        cursor: &PruneCursor,
        keys_max: usize,
        obsolete: &mut Vec<RecordId>,
    ) -> Option<PruneCursor> {
        let mut state = self.write();
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let through = pins.keys().next().map_or(state.floor, |pin| state.floor.min(*pin));
        drop(pins);
        state.index.prune(cursor, keys_max, through, obsolete)
    }

    /// Reports a disk failure to readers of `health`; returns it.
    pub(super) fn fail(&self, source: DiskError) -> DiskError {
        *self.lock_failure() = Some(source.clone());
        source
    }

    /// Clears the disk failure.
    pub(super) fn recover(&self) {
        *self.lock_failure() = None;
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.newest_changed.send_modify(|_| ());
    }

    /// Must be called while the state is locked, so that no prune runs in between.
    fn pin(&self, at: Revision) -> Pin<'_> {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        *pins.entry(at).or_default() += 1;
        Pin { shared: self, at }
    }

    fn value(&self, key: &[u8], id: RecordId) -> Result<Bytes, ReadError> {
        let damage = match self.disk.value(id) {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => Damage { id, what: Damage::NO_VALUE },
            Err(source) => match source.downcast_ref::<Damage>() {
                Some(damage) => damage.clone(),
                None => return Err(ReadError::Backend { source }),
            },
        };
        placeholder_for(self.make_placeholder, key, damage)
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<DiskError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn resolve_revision(&self, at: Option<Revision>) -> Result<Revision, ReadError> {
        let floor = self.floor;
        let newest = self.newest;
        match at {
            None => Ok(newest),
            Some(asked) if asked < floor => Err(ReadError::Compacted { asked, floor }),
            Some(asked) if asked > newest => Err(ReadError::Future { asked, newest }),
            Some(asked) => Ok(asked),
        }
    }
}

/// Returns the placeholder of a damaged value, or an error if there is none.
fn placeholder_for(
    make_placeholder: Option<MakePlaceholder>,
    key: &[u8],
    damage: Damage,
) -> Result<Bytes, ReadError> {
    let Some(make) = make_placeholder else {
        let key = Bytes::copy_from_slice(key);
        return Err(ReadError::Damaged { key, source: Arc::new(damage) });
    };
    let key = key.escape_ascii();
    tracing::error!(%key, %damage, "stored value is damaged; reads of this object fail");
    Ok(make(&damage.to_string()))
}

pub(super) fn key_value(key: Bytes, value: Bytes, version: Version) -> KeyValue {
    KeyValue { key, value, created: version.created, modified: version.modified() }
}

fn event(Record { head, value }: Record) -> Event {
    let value = (!head.is_delete).then_some(value);
    Event { key: head.key, value, revision: head.id.revision, created: head.created }
}
