//! The disk interface of the engine, and an in-memory implementation.
//!
//! The trait is narrow on purpose: order, grouping, history and watches are implemented above it,
//! so tests can run them over a disk that fails, tears writes or stalls.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::{DiskError, Revision, Timestamp};

/// Identifies a record by the revision of its transaction and its index in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordId {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The index among the changes of the transaction.
    pub index: u32,
}

impl RecordId {
    /// Returns the id of the first record of a revision.
    #[must_use]
    pub fn first(revision: Revision) -> Self {
        Self { revision, index: 0 }
    }
}

/// A record without its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The id of the record.
    pub id: RecordId,
    /// The key it changes.
    pub key: Bytes,
    /// The revision at which the key was created.
    pub created: Revision,
    /// Whether the change is a delete; such a record has an empty value.
    pub is_delete: bool,
    /// The length of the value.
    pub value_bytes: u32,
    /// When the key expires, unless it is written before.
    pub expires: Option<Timestamp>,
}

impl Head {
    /// Returns the size of key and value in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.key.len() as u64 + u64::from(self.value_bytes)
    }
}

/// One change, as it is written to disk.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Everything but the value.
    pub head: Head,
    /// The value; empty for a delete. Its length is [`Head::value_bytes`].
    pub value: Bytes,
}

/// One change, as it was read from disk. Its head is intact; its value may be damaged.
#[derive(Clone)]
pub struct StoredRecord {
    /// Everything but the value.
    pub head: Head,
    /// The value, or its damage; empty for a delete.
    pub value: Result<Bytes, Damage>,
}

/// Damage of one record on disk. Other records are not affected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {}.{} is damaged: {what}", id.revision, id.index)]
pub struct Damage {
    /// The damaged record.
    pub id: RecordId,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Damage {
    pub(super) const NO_VALUE: &'static str = "it has no value";
    pub(super) const VALUE_SUM: &'static str = "its value fails its checksum";
    pub(super) const VALUE_LENGTH: &'static str = "its value has another length";
    pub(super) const HEAD_SUM: &'static str = "its head fails its checksum";
    pub(super) const HEAD_ORDER: &'static str = "it is not in the order of revisions";
}

/// Converts damage to a [`DiskError`].
pub(super) fn damage_error(damage: Damage) -> DiskError {
    Arc::new(damage)
}

impl From<Record> for StoredRecord {
    fn from(Record { head, value }: Record) -> Self {
        Self { head, value: Ok(value) }
    }
}

/// A callback that gets items and can stop the iteration.
pub type Sink<'a, T> = &'a mut dyn FnMut(T) -> ControlFlow<()>;

/// Stores records in order. One thread writes; other threads read at the same time.
pub trait Disk: Send + Sync + 'static {
    /// Returns the floor of the last commit that had one; 0 if none had.
    fn floor(&self) -> Result<Revision, DiskError>;

    /// Passes heads from `from` on to `sink`, in order. A damaged head is an error, because its key
    /// is unknown.
    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError>;

    /// Passes records from `from` on to `sink`, in order. A damaged value is reported in its
    /// record; a damaged head is an error.
    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError>;

    /// Reads the value of one record. If the error is a [`Damage`], only this record is affected.
    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError>;

    /// Appends records in order, and sets the floor if given. Atomic, and durable on `Ok`. After an
    /// error the writer must call [`Disk::recover`] before anything else; reads continue.
    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError>;

    /// Removes records atomically, but not durably: they may reappear after a crash. Returns the
    /// size of their keys and values in bytes.
    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError>;

    /// Makes removals durable, so that the next start needs no repair. Called after a pause in the
    /// writes, and at the end.
    fn settle(&self) -> Result<(), DiskError>;

    /// Recovers after a failed write: restores the state before it, without the records `undo` and
    /// with this floor, atomically and durably. Called again until it succeeds.
    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError>;

    /// Returns the bytes of the file; `None`: there is none, or its size is unknown.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Returns whether a copy of the records, whose keys and values have `bytes` bytes, would be
    /// much smaller than the file, and the disk has space for it.
    fn should_rewrite(&self, _bytes: u64) -> bool {
        false
    }

    /// Copies some records from `from` on, up to the revision `through`, to a new file. Starts a
    /// new copy if `from` is the first record id. Returns where to continue, or `None` if all are
    /// copied. May run on any thread, parallel to everything but [`Disk::forget`] and
    /// [`Disk::recover`].
    fn copy(&self, _from: RecordId, _through: Revision) -> Result<Option<RecordId>, DiskError> {
        Err(Arc::new(io::Error::from(io::ErrorKind::Unsupported)))
    }

    /// Switches to the copy, which must be complete, and sets the floor. After an error the old
    /// file is still in use.
    fn switch_to_copy(&self, _floor: Revision) -> Result<(), DiskError> {
        Err(Arc::new(io::Error::from(io::ErrorKind::Unsupported)))
    }

    /// Discards the copy, if there is one.
    fn discard_copy(&self) {}
}

/// Records in memory: used for `--durability=memory` and by simulated disks.
#[derive(Default)]
pub struct MemDisk {
    state: RwLock<MemState>,
}

#[derive(Default)]
struct MemState {
    records: BTreeMap<RecordId, Record>,
    floor: Revision,
}

impl MemDisk {
    /// Creates an empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().records.len()
    }

    /// Returns whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self) -> RwLockReadGuard<'_, MemState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, MemState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        Ok(self.read().floor)
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        let _ =
            self.read().records.range(from..).try_for_each(|(_, record)| sink(record.head.clone()));
        Ok(())
    }

    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError> {
        let state = self.read();
        let _ = state.records.range(from..).try_for_each(|(_, record)| sink(record.clone().into()));
        Ok(())
    }

    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError> {
        Ok(self.read().records.get(&id).map(|record| record.value.clone()))
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        let mut state = self.write();
        state.floor = floor.unwrap_or(state.floor);
        state.records.extend(records.iter().map(|record| (record.head.id, record.clone())));
        Ok(())
    }

    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError> {
        let mut state = self.write();
        let removed = ids.iter().filter_map(|id| state.records.remove(id));
        Ok(removed.map(|record| record.head.bytes()).sum())
    }

    fn settle(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.forget(undo)?;
        self.write().floor = floor;
        Ok(())
    }
}
