//! What the engine asks of a disk, and the disk that is only memory.
//!
//! The trait is narrow on purpose: order, grouping, history and watches are decided above it, so
//! they run unchanged over a disk that fails, tears or stalls where a test wants it to.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::{DiskError, Revision, Timestamp};

/// Names a record: the revision of its transaction, and its place in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordId {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The place among the changes of the transaction.
    pub index: u32,
}

impl RecordId {
    /// The first record that can have this revision.
    #[must_use]
    pub fn first(revision: Revision) -> Self {
        Self { revision, index: 0 }
    }
}

/// A record without its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Its name.
    pub id: RecordId,
    /// The key it changes.
    pub key: Bytes,
    /// When the incarnation of the key was created.
    pub created: Revision,
    /// Whether the change is a delete; such a record has an empty value.
    pub is_delete: bool,
    /// The length of the value.
    pub value_bytes: u32,
    /// When the key is deleted again, unless it is written before.
    pub expires: Option<Timestamp>,
}

impl Head {
    /// Bytes of the key and the value.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.key.len() as u64 + u64::from(self.value_bytes)
    }
}

/// One change as it stands on disk.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Everything but the value.
    pub head: Head,
    /// The value; empty for a delete. Its length is [`Head::value_bytes`].
    pub value: Bytes,
}

/// One change as it was read. Its head is whole.
#[derive(Clone)]
pub struct StoredRecord {
    /// Everything but the value.
    pub head: Head,
    /// The value as it was written; empty for a delete.
    pub value: Result<Bytes, Damage>,
}

/// A record that is not on disk as it was written. Costs nothing but this record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {}.{} is damaged: {what}", id.revision, id.index)]
pub struct Damage {
    /// Which record.
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

/// A damage as the error of a disk.
pub(super) fn damaged(damage: Damage) -> DiskError {
    Arc::new(damage)
}

impl From<Record> for StoredRecord {
    fn from(Record { head, value }: Record) -> Self {
        Self { head, value: Ok(value) }
    }
}

/// A sink that says when it has enough.
pub type Sink<'a, T> = &'a mut dyn FnMut(T) -> ControlFlow<()>;

/// A place that keeps records in order. Writes come from one thread; reads from any, beside them.
pub trait Disk: Send + Sync + 'static {
    /// The floor of the last commit that carried one; 0 when none did.
    fn floor(&self) -> Result<Revision, DiskError>;

    /// Heads from `from` on, in order. One that is damaged is an error: which key it belongs to is
    /// unknown.
    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError>;

    /// Records from `from` on, in order. A damaged value is told with its record, a damaged head is
    /// an error.
    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError>;

    /// The value of one record. A [`Damage`] as the error costs only this record.
    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError>;

    /// Adds records, in order and above all others, and raises the floor. When this returns `Ok`
    /// it survives a crash; a crash before leaves all of it or nothing. After an error nothing but
    /// [`Disk::recover`] is asked of the writer; reads go on.
    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError>;

    /// Forgets records, all or none of them. A crash may bring them back. Tells how many bytes
    /// of keys and values they had.
    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError>;

    /// Called once when nothing has been written for a moment, and at the end: makes what was
    /// forgotten durable and the next opening cheap.
    fn settle(&self) -> Result<(), DiskError>;

    /// After a failed write: makes the disk hold durably what it held before, without the records
    /// `undo` and with this floor, in one step. Asked again until it succeeds.
    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError>;

    /// Whether a copy of what the disk holds, which are so many bytes of keys and values, would take
    /// up much less room, and there is room to make it.
    fn is_wasteful(&self, _bytes: u64) -> bool {
        false
    }

    /// One step of copying records from `from` on and up to the revision `through` to a place
    /// beside; from the very first on it begins anew. Where to go on, `None` when all are copied.
    /// Asked from any thread, while all else goes on but [`Disk::forget`] and [`Disk::recover`].
    fn copy(&self, _from: RecordId, _through: Revision) -> Result<Option<RecordId>, DiskError> {
        Err(Arc::new(io::Error::from(io::ErrorKind::Unsupported)))
    }

    /// Puts the copy, which has all records, in the place of what was copied, with this floor. After
    /// an error everything is as it was before.
    fn change_over(&self, _floor: Revision) -> Result<(), DiskError> {
        Err(Arc::new(io::Error::from(io::ErrorKind::Unsupported)))
    }

    /// Gives up what was copied, if anything was.
    fn discard_copy(&self) {}
}

/// Records in memory: what `--durability=memory` runs on, and the ground of simulated disks.
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
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many records it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().records.len()
    }

    /// Whether it holds none.
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
        let gone = ids.iter().filter_map(|id| state.records.remove(id));
        Ok(gone.map(|record| record.head.bytes()).sum())
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
