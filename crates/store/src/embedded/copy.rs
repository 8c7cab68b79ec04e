//! A compact copy of the records in a new file.
//!
//! redb reuses freed pages, but live pages are spread over the file, so the file does not shrink. A
//! copy that is written from the first record to the last has the smallest size.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Database, Key, ReadableDatabase, ReadableTableMetadata, TableDefinition, WriteTransaction,
};

use super::disk::{RecordId, damage_error};
use super::files::{FileRole, Files};
use super::meta_table::set_floor;
use super::redb_panics::OpenDatabase;
use super::redb_setup::{builder, io_error, redb_error};
use super::rows::{
    Divider, HEADS, Id, PARTS, ValueReader, decode, decode_head, encode, insert_stored,
};
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// Bytes of keys and values copied with one sync.
const STEP_BYTES: u64 = 1 << 20;

/// A copy in progress. Dropping it removes the new file, unless it has been promoted.
pub(super) struct FileCopy {
    files: Arc<dyn Files>,
    database: Arc<OpenDatabase>,
    file: WriteBehind,
    /// Whether the new file has replaced the one in use.
    is_current: Arc<AtomicBool>,
    bytes: u64,
    /// Number of parts of values in the source that were copied.
    parts_read: u64,
    divider: Divider,
}

impl FileCopy {
    pub(super) fn begin(files: &Arc<dyn Files>) -> Result<Self, DiskError> {
        files.create_new().map_err(io_error)?;
        let is_current = Arc::new(AtomicBool::new(false));
        let file = WriteBehind::new({
            let files = Arc::clone(files);
            let is_current = Arc::clone(&is_current);
            move || {
                let is_current = is_current.load(Ordering::Acquire);
                files.open(if is_current { FileRole::Current } else { FileRole::New })
            }
        })
        .map_err(io_error)?;
        let database = builder().create_with_backend(file.clone()).map_err(redb_error)?;
        let files = Arc::clone(files);
        let database = Arc::new(OpenDatabase::new(database));
        let divider = Divider::default();
        Ok(Self { files, database, file, is_current, bytes: 0, parts_read: 0, divider })
    }

    /// Returns the size of the copied keys and values in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies up to [`STEP_BYTES`] of records. Returns where to continue, or `None` if all records
    /// up to `through` are copied.
    pub(super) fn add(
        &mut self,
        from: &Database,
        start: RecordId,
        through: Revision,
    ) -> Result<Option<RecordId>, DiskError> {
        let txn = from.begin_read().map_err(redb_error)?;
        let from_heads = txn.open_table(HEADS).map_err(redb_error)?;
        let from_parts = txn.open_table(PARTS).map_err(redb_error)?;
        let end = Bound::Excluded(encode(RecordId::first(through.next())));
        let range = (Bound::Included(encode(start)), end);
        let mut from_values = ValueReader::new(&from_parts, encode(start))?;
        let next = self.step(|txn, divider| {
            let mut step = 0;
            let mut next = None;
            let mut heads = txn.open_table(HEADS).map_err(redb_error)?;
            let mut parts = txn.open_table(PARTS).map_err(redb_error)?;
            for row in from_heads.range::<Id>(range).map_err(redb_error)? {
                let (id, row) = row.map_err(redb_error)?;
                if step >= STEP_BYTES {
                    next = Some(decode(id.value()));
                    break;
                }
                let head = decode_head(id.value(), row.value()).map_err(damage_error)?;
                // A damaged value is copied unchanged, so that its damage is still detected.
                if !head.is_delete
                    && let Some(stored) = from_values.read(id.value())?
                {
                    insert_stored(&mut parts, divider, id.value(), stored)?;
                }
                heads.insert(id.value(), row.value()).map_err(redb_error)?;
                step += head.bytes();
            }
            Ok((step, next))
        })?;
        self.parts_read += from_values.parts_read();
        Ok(next)
    }

    /// Runs one transaction that adds records. `add` returns their size and where to continue.
    pub(super) fn step(
        &mut self,
        add: impl FnOnce(&WriteTransaction, &mut Divider) -> Result<(u64, Option<RecordId>), DiskError>,
    ) -> Result<Option<RecordId>, DiskError> {
        let txn = self.database.begin_write().map_err(redb_error)?;
        let (step, next) = add(&txn, &mut self.divider)?;
        txn.commit().map_err(redb_error)?;
        self.file.check()?;
        self.bytes += step;
        Ok(next)
    }

    /// Writes the floor and makes the copy durable, so that opening it needs no repair.
    pub(super) fn finish(&self, floor: Revision) -> Result<(), DiskError> {
        let mut txn = self.database.begin_write().map_err(redb_error)?;
        txn.set_quick_repair(true);
        set_floor(&txn, floor)?;
        txn.commit().map_err(redb_error)?;
        self.file.check()
    }

    /// Returns whether all records of the source were copied, with all parts of their values.
    pub(super) fn is_complete(&self, from: &Database) -> Result<bool, DiskError> {
        Ok(self.has_all_heads(from)? && self.parts_read == row_count(from, PARTS)?)
    }

    /// Returns whether the copy has as many heads as its source.
    pub(super) fn has_all_heads(&self, from: &Database) -> Result<bool, DiskError> {
        Ok(row_count(&self.database, HEADS)? == row_count(from, HEADS)?)
    }

    /// Replaces the file in use by the copy. On an error the copy is removed.
    pub(super) fn promote(self) -> Result<(Arc<OpenDatabase>, WriteBehind), DiskError> {
        self.files.promote().map_err(io_error)?;
        self.is_current.store(true, Ordering::Release);
        Ok((Arc::clone(&self.database), self.file.clone()))
    }
}

impl Drop for FileCopy {
    fn drop(&mut self) {
        if !self.is_current.load(Ordering::Acquire) {
            // If this fails, the next copy or the next start removes the file.
            let _ = self.files.remove_new();
        }
    }
}

fn row_count<K: Key + 'static>(
    database: &Database,
    table: TableDefinition<'_, K, &'static [u8]>,
) -> Result<u64, DiskError> {
    let txn = database.begin_read().map_err(redb_error)?;
    txn.open_table(table).map_err(redb_error)?.len().map_err(redb_error)
}
