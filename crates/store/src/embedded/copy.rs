//! A copy of the records in a file beside, that takes up no more room than they need.
//!
//! The library uses the pages that it frees again, but what is live lies spread over the file, which
//! does not get smaller. A copy that is written from the first record to the last is as small as
//! the records allow.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadableDatabase, ReadableTableMetadata, WriteTransaction};

use super::disk::{RecordId, damaged};
use super::facts::set_floor;
use super::files::{Files, Place};
use super::library::{builder, plain, shared};
use super::panics::Opened;
use super::rows::{HEADS, Id, PARTS, Values, decode, decode_head, encode, insert_stored};
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// Keys and values that are copied with one sync.
const STEP_BYTES: u64 = 1 << 20;

/// The records so far, in the file beside. It is taken away with this, unless it has been promoted.
pub(super) struct Copy {
    files: Arc<dyn Files>,
    database: Arc<Opened>,
    file: WriteBehind,
    /// Whether the file has the name of the one in use.
    is_current: Arc<AtomicBool>,
    bytes: u64,
}

impl Copy {
    pub(super) fn begin(files: &Arc<dyn Files>) -> Result<Self, DiskError> {
        files.make_beside().map_err(plain)?;
        let is_current = Arc::new(AtomicBool::new(false));
        let file = WriteBehind::new({
            let (files, is_current) = (Arc::clone(files), Arc::clone(&is_current));
            move || {
                let is_current = is_current.load(Ordering::Acquire);
                files.open(if is_current { Place::Current } else { Place::Beside })
            }
        });
        let file = file.map_err(plain)?;
        let database = builder().create_with_backend(file.clone()).map_err(shared)?;
        let (files, database) = (Arc::clone(files), Arc::new(Opened::new(database)));
        Ok(Self { files, database, file, is_current, bytes: 0 })
    }

    /// Bytes of the keys and values in it.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a step's worth of records; where to go on, `None` when all up to `through` are there.
    pub(super) fn add(
        &mut self,
        from: &Database,
        start: RecordId,
        through: Revision,
    ) -> Result<Option<RecordId>, DiskError> {
        let reading = from.begin_read().map_err(shared)?;
        let from_heads = reading.open_table(HEADS).map_err(shared)?;
        let from_parts = reading.open_table(PARTS).map_err(shared)?;
        let end = Bound::Excluded(encode(RecordId::first(through.next())));
        let range = (Bound::Included(encode(start)), end);
        let mut from_values = Values::new(&from_parts, encode(start))?;
        self.step(|writing| {
            let (mut step, mut next) = (0, None);
            let mut heads = writing.open_table(HEADS).map_err(shared)?;
            let mut parts = writing.open_table(PARTS).map_err(shared)?;
            for row in from_heads.range::<Id>(range).map_err(shared)? {
                let (id, row) = row.map_err(shared)?;
                if step >= STEP_BYTES {
                    next = Some(decode(id.value()));
                    break;
                }
                let head = decode_head(id.value(), row.value()).map_err(damaged)?;
                // A damaged value is copied as it is: it costs nothing but its record, and stays found.
                if !head.is_delete
                    && let Some(stored) = from_values.of(id.value())?
                {
                    insert_stored(&mut parts, id.value(), stored)?;
                }
                heads.insert(id.value(), row.value()).map_err(shared)?;
                step += head.bytes();
            }
            Ok((step, next))
        })
    }

    /// One transaction that adds records; it tells their bytes, and where to go on.
    pub(super) fn step(
        &mut self,
        add: impl FnOnce(&WriteTransaction) -> Result<(u64, Option<RecordId>), DiskError>,
    ) -> Result<Option<RecordId>, DiskError> {
        let writing = self.database.begin_write().map_err(shared)?;
        let (step, next) = add(&writing)?;
        writing.commit().map_err(shared)?;
        self.file.check()?;
        self.bytes += step;
        Ok(next)
    }

    /// Makes everything durable, with this floor, and the next opening cheap.
    pub(super) fn finish(&self, floor: Revision) -> Result<(), DiskError> {
        let mut writing = self.database.begin_write().map_err(shared)?;
        writing.set_quick_repair(true);
        set_floor(&writing, floor)?;
        writing.commit().map_err(shared)?;
        self.file.check()
    }

    /// Whether it has as many records as what it was copied from.
    pub(super) fn is_whole(&self, from: &Database) -> Result<bool, DiskError> {
        Ok(counts(&self.database)? == counts(from)?)
    }

    /// Whether it has as many heads; its values may have other parts.
    pub(super) fn has_heads_of(&self, from: &Database) -> Result<bool, DiskError> {
        Ok(counts(&self.database)?.0 == counts(from)?.0)
    }

    /// Gives the file its new name. On an error it has the old one, and is gone.
    pub(super) fn promote(self) -> Result<(Arc<Opened>, WriteBehind), DiskError> {
        self.files.promote().map_err(plain)?;
        self.is_current.store(true, Ordering::Release);
        Ok((Arc::clone(&self.database), self.file.clone()))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_current.load(Ordering::Acquire) {
            // What stays is taken away by the next copy or the next opening.
            let _ = self.files.discard_beside();
        }
    }
}

/// How many heads and parts of values there are.
fn counts(database: &Database) -> Result<(u64, u64), DiskError> {
    let reading = database.begin_read().map_err(shared)?;
    let heads = reading.open_table(HEADS).map_err(shared)?.len().map_err(shared)?;
    let parts = reading.open_table(PARTS).map_err(shared)?.len().map_err(shared)?;
    Ok((heads, parts))
}
