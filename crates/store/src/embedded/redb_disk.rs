//! The real disk: records in one redb file.
//!
//! Heads and values are in two tables, so that opening reads no values. `docs/storage.md` describes
//! the format.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use bytes::Bytes;
use redb::{
    Database, Durability, ReadableDatabase, ReadableTableMetadata, StorageError, WriteTransaction,
};

use super::copy::FileCopy;
use super::disk::{Disk, Head, Record, RecordId, Sink, StoredRecord, damage_error};
use super::files::{DirFiles, FileRole, Files, backend};
use super::meta_table::{RowsFormat, floor_of, read_format_of, set_floor};
use super::redb_panics::{OpenDatabase, RedbPanicked, catch_panic};
use super::redb_setup::{builder, closes_database, io_error, redb_error};
use super::rows::{
    AuditItem, Divider, HEADS, Id, PARTS, ValueReader, decode_head, decode_value, encode,
    encode_head, insert_value, remove_parts, remove_value,
};
use super::upgrade::upgrade;
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// File size per byte of data, in thousandths, above which the file is rewritten. A fresh copy has
/// some 1,300, so that at least one byte has been written for each byte that is copied.
const OVERHEAD_MAX: u64 = 2500;
/// A copy requires `COPY_SPACE_FACTOR * bytes + COPY_SPACE_EXTRA` of free disk space.
const COPY_SPACE_FACTOR: u64 = 3;
const COPY_SPACE_EXTRA: u64 = 64 << 20;

/// Records in a redb file.
///
/// A failed write or sync is reported once, by its commit, and hidden from redb ([`WriteBehind`]).
/// A failed read closes redb's database for good, so it is opened again.
pub struct RedbDisk {
    current: RwLock<Current>,
    files: Arc<dyn Files>,
    copy: Mutex<Option<FileCopy>>,
    /// The overhead of the last copy when it was made: another copy would not have less.
    overhead_min: AtomicU64,
    /// Whether the rename of the current file is not durable yet.
    is_rename_unsynced: AtomicBool,
    /// How the parts of the next value fill pages.
    divider: Mutex<Divider>,
    /// The panic of redb in a write. Further writes are refused, because its state is unknown.
    write_panic: OnceLock<DiskError>,
    /// The lock of the data directory; dropped after the file is closed.
    _lock: Option<File>,
}

/// The file in use. Its replacement has the same records.
struct Current {
    /// `None` after a failed read, which makes the handle unusable, until it is opened again. Reads
    /// in progress keep the old handle. At most one usable handle exists.
    database: Option<Arc<OpenDatabase>>,
    file: WriteBehind,
}

impl RedbDisk {
    /// Opens the file in a directory, or creates it. `lock` is held until the disk is dropped. A
    /// file of format 3 is upgraded; `before_replace` is called right before the new file replaces
    /// it.
    pub(super) fn open(
        files: DirFiles,
        lock: File,
        before_replace: &dyn Fn() -> io::Result<()>,
    ) -> Result<Self, DiskError> {
        files.prepare().map_err(io_error)?;
        catch_panic(|| Self::prepare(Arc::new(files), Some(lock), before_replace))
    }

    /// Opens the file, or creates it, in any [`Files`]; for tests that simulate power loss.
    pub fn with_files(files: impl Files) -> Result<Self, DiskError> {
        catch_panic(|| Self::prepare(Arc::new(files), None, &|| Ok(())))
    }

    /// Opens the file without ever writing to it; repairs are done in memory.
    pub(super) fn open_read_only(path: &Path, lock: File) -> Result<Self, DiskError> {
        let path = path.to_owned();
        let open = {
            let path = path.clone();
            move || backend(OpenOptions::new().read(true).open(&path)?, true)
        };
        let file = WriteBehind::read_only(open).map_err(io_error)?;
        catch_panic(|| {
            let database = builder().create_with_backend(file.clone()).map_err(redb_error)?;
            if read_format_of(&database)? == RowsFormat::V3 {
                let why = "the records have format 3: a server that starts takes them over";
                return Err(io_error(io::Error::other(why)));
            }
            Ok(Self::new(
                Arc::new(OpenDatabase::new(database)),
                file,
                Arc::new(DirFiles::new(path, super::Durability::Sync)),
                Some(lock),
            ))
        })
    }

    fn new(
        database: Arc<OpenDatabase>,
        file: WriteBehind,
        files: Arc<dyn Files>,
        lock: Option<File>,
    ) -> Self {
        Self {
            current: RwLock::new(Current { database: Some(database), file }),
            files,
            copy: Mutex::default(),
            overhead_min: AtomicU64::new(0),
            is_rename_unsynced: AtomicBool::new(false),
            divider: Mutex::default(),
            write_panic: OnceLock::new(),
            _lock: lock,
        }
    }

    /// Verifies the checksum of every page. Returns `false` if pages are inconsistent.
    pub(super) fn check_pages(&mut self) -> Result<bool, DiskError> {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        let database = current
            .database
            .as_mut()
            .and_then(Arc::get_mut)
            .ok_or_else(|| redb_error(StorageError::DatabaseClosed))?;
        catch_panic(|| database.check_integrity().map_err(redb_error))
    }

    /// Passes all records to `sink` in order, and the damage of rows that are damaged or
    /// incomplete.
    pub(super) fn audit(&self, sink: Sink<'_, AuditItem>) -> Result<(), DiskError> {
        self.with(|database| {
            let txn = database.begin_read().map_err(redb_error)?;
            let heads = txn.open_table(HEADS).map_err(redb_error)?;
            let parts = txn.open_table(PARTS).map_err(redb_error)?;
            let mut values = ValueReader::new(&parts, Id::default())?;
            for row in heads.range::<Id>(..).map_err(redb_error)? {
                let (id, row) = row.map_err(redb_error)?;
                let id = id.value();
                while let Some(orphan) = values.skip_before(id)? {
                    if sink(AuditItem::orphan(orphan)).is_break() {
                        return Ok(());
                    }
                }
                if sink(AuditItem::of(id, row.value(), values.read(id)?)).is_break() {
                    return Ok(());
                }
            }
            while let Some(orphan) = values.skip()? {
                if sink(AuditItem::orphan(orphan)).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Removes the records with these ids, damaged or not, and sets the floor.
    pub(super) fn discard(&self, ids: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.write(Durability::Immediate, |txn| {
            set_floor(txn, floor)?;
            let mut heads = txn.open_table(HEADS).map_err(redb_error)?;
            let mut parts = txn.open_table(PARTS).map_err(redb_error)?;
            for id in ids {
                heads.remove(encode(*id)).map_err(redb_error)?;
                remove_parts(&mut parts, encode(*id))?;
            }
            Ok(())
        })
    }

    fn prepare(
        files: Arc<dyn Files>,
        lock: Option<File>,
        before_replace: &dyn Fn() -> io::Result<()>,
    ) -> Result<Self, DiskError> {
        let file = WriteBehind::new({
            let files = Arc::clone(&files);
            move || files.open(FileRole::Current)
        })
        .map_err(io_error)?;
        let database = builder().create_with_backend(file.clone()).map_err(redb_error)?;
        // Repairs done by the open must be on the disk before anything depends on them.
        file.check()?;
        match read_format_of(&database)? {
            RowsFormat::Current => {
                Ok(Self::new(Arc::new(OpenDatabase::new(database)), file, files, lock))
            }
            RowsFormat::Empty => {
                let disk = Self::new(Arc::new(OpenDatabase::new(database)), file, files, lock);
                disk.commit(&[], Some(Revision(0)))?;
                Ok(disk)
            }
            RowsFormat::V3 => {
                let (database, file) = upgrade(&files, database, before_replace)?;
                Ok(Self::new(database, file, files, lock))
            }
        }
    }

    /// Runs `work` with the database, which is opened again if an earlier read has closed it. A
    /// panic of redb is an error that does not close it: reads share no state that a panic can
    /// leave inconsistent.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let database = self.database()?;
        let result = catch_panic(|| work(&database));
        if result.as_ref().is_err_and(closes_database) {
            let mut current = self.write_current();
            // The failed handle may have been replaced already; leave its successor alone.
            if current.database.as_ref().is_some_and(|current| Arc::ptr_eq(current, &database)) {
                current.database = None;
            }
        }
        result
    }

    fn database(&self) -> Result<Arc<OpenDatabase>, DiskError> {
        let current = self.read_current().database.clone();
        if let Some(database) = current {
            return Ok(database);
        }
        let mut current = self.write_current();
        if let Some(database) = &current.database {
            return Ok(Arc::clone(database));
        }
        // A handle that reads still use is closed, so it writes nothing any more.
        let file = current.file.clone();
        let new = catch_panic(|| builder().create_with_backend(file).map_err(redb_error))?;
        Ok(Arc::clone(current.database.insert(Arc::new(OpenDatabase::new(new)))))
    }

    fn read_current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_current(&self) -> RwLockWriteGuard<'_, Current> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> WriteBehind {
        self.read_current().file.clone()
    }

    /// Runs one write transaction. On `Ok` it is as durable as `durability` says.
    fn write<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut WriteTransaction) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        if let Some(write_panic) = self.write_panic.get() {
            return Err(write_panic.clone());
        }
        if self.is_rename_unsynced.load(Ordering::Acquire) {
            self.files.sync_directory().map_err(io_error)?;
            self.is_rename_unsynced.store(false, Ordering::Release);
        }
        let done = self.with(|database| {
            let mut txn = database.begin_write().map_err(redb_error)?;
            txn.set_durability(durability).map_err(redb_error)?;
            let done = work(&mut txn)?;
            txn.commit().map_err(redb_error)?;
            Ok(done)
        });
        let done = done.inspect_err(|error| {
            if error.is::<RedbPanicked>() {
                // The next start verifies every page.
                self.write_panic.get_or_init(|| error.clone());
            }
        })?;
        self.file().check()?;
        Ok(done)
    }

    fn lock_divider(&self) -> MutexGuard<'_, Divider> {
        self.divider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_copy(&self) -> MutexGuard<'_, Option<FileCopy>> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for RedbDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        self.with(floor_of)
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        self.with(|database| {
            let txn = database.begin_read().map_err(redb_error)?;
            let heads = txn.open_table(HEADS).map_err(redb_error)?;
            let mut count = 0;
            for row in heads.range(encode(from)..).map_err(redb_error)? {
                let (id, head) = row.map_err(redb_error)?;
                count += 1;
                if sink(decode_head(id.value(), head.value()).map_err(damage_error)?).is_break() {
                    return Ok(());
                }
            }
            // A damaged branch page may hide leaves, or show one twice.
            let length = heads.len().map_err(redb_error)?;
            if from == RecordId::first(Revision(0)) && count != length {
                let why = format!("{count} records are found, and not {length}");
                return Err(io_error(io::Error::other(why)));
            }
            Ok(())
        })
    }

    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError> {
        self.with(|database| {
            let txn = database.begin_read().map_err(redb_error)?;
            let heads = txn.open_table(HEADS).map_err(redb_error)?;
            let parts = txn.open_table(PARTS).map_err(redb_error)?;
            let mut values = ValueReader::new(&parts, encode(from))?;
            for row in heads.range(encode(from)..).map_err(redb_error)? {
                let (id, head) = row.map_err(redb_error)?;
                let head = decode_head(id.value(), head.value()).map_err(damage_error)?;
                let value = if head.is_delete { Ok(Bytes::new()) } else { values.value(&head)? };
                if sink(StoredRecord { head, value }).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError> {
        let read = || {
            self.with(|database| {
                let txn = database.begin_read().map_err(redb_error)?;
                let parts = txn.open_table(PARTS).map_err(redb_error)?;
                let mut values = ValueReader::new(&parts, encode(id))?;
                let stored = values.read(encode(id))?;
                let value = stored.map(|stored| decode_value(id, stored)).transpose();
                Ok(value.map_err(damage_error)?.map(Bytes::copy_from_slice))
            })
        };
        // A concurrent read may have closed the handle; try once more.
        read().or_else(|error| if closes_database(&error) { read() } else { Err(error) })
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        // Not used again if the write fails: the last page is then as it was, or unknown.
        let mut divider = std::mem::take(&mut *self.lock_divider());
        self.write(Durability::Immediate, |txn| {
            let mut heads = txn.open_table(HEADS).map_err(redb_error)?;
            let mut parts = txn.open_table(PARTS).map_err(redb_error)?;
            let mut buffer = Vec::new();
            for Record { head, value } in records {
                let id = encode(head.id);
                encode_head(head, &mut buffer);
                heads.insert(id, &buffer[..]).map_err(redb_error)?;
                if !head.is_delete {
                    insert_value(&mut parts, &mut divider, id, value, &mut buffer)?;
                }
            }
            floor.map_or(Ok(()), |floor| set_floor(txn, floor))
        })?;
        *self.lock_divider() = divider;
        Ok(())
    }

    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError> {
        self.write(Durability::None, |txn| remove(txn, ids))
    }

    fn settle(&self) -> Result<(), DiskError> {
        // A commit with quick repair costs twice as much as another, but the start after a crash
        // need not read the whole file.
        self.write(Durability::Immediate, |txn| {
            txn.set_quick_repair(true);
            Ok(())
        })
    }

    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.file().catch_up()?;
        self.write(Durability::Immediate, |txn| {
            remove(txn, undo)?;
            set_floor(txn, floor)
        })
    }

    fn size(&self) -> Option<u64> {
        self.files.size().ok()
    }

    fn should_rewrite(&self, bytes: u64) -> bool {
        // On an error try again after the next compaction.
        let Ok(size) = self.files.size() else { return false };
        let overhead_max = OVERHEAD_MAX.max(self.overhead_min.load(Ordering::Relaxed) * 5 / 4);
        if size < self.files.rewrite_bytes_min() || overhead(size, bytes) <= overhead_max {
            return false;
        }
        let free = self.files.free_bytes().ok().flatten();
        let needed = bytes.saturating_mul(COPY_SPACE_FACTOR) + COPY_SPACE_EXTRA;
        let has_space = free.is_none_or(|free| free >= needed);
        if !has_space {
            tracing::warn!(size, bytes, free, needed, "no disk space to shrink the records file");
        }
        has_space
    }

    fn copy(&self, from: RecordId, through: Revision) -> Result<Option<RecordId>, DiskError> {
        let mut copy = self.lock_copy();
        if from == RecordId::first(Revision(0)) {
            // The file of an earlier copy must be removed before the new one is created.
            *copy = None;
            *copy = Some(FileCopy::begin(&self.files)?);
        }
        let copy = copy.as_mut().ok_or_else(no_copy)?;
        self.with(|database| copy.add(database, from, through))
    }

    fn switch_to_copy(&self, floor: Revision) -> Result<(), DiskError> {
        let copy = self.lock_copy().take().ok_or_else(no_copy)?;
        copy.finish(floor)?;
        if !self.with(|database| copy.is_complete(database))? {
            return Err(io_error(io::Error::other("the copy has not all records")));
        }
        let bytes = copy.bytes();
        let before = self.files.size().unwrap_or_default();
        let (database, file) = copy.promote()?;
        // Nothing is written until the rename is durable: until then both files have all records.
        self.is_rename_unsynced.store(true, Ordering::Release);
        let new = Current { database: Some(database), file };
        let old = std::mem::replace(&mut *self.write_current(), new);
        *self.lock_divider() = Divider::default();
        let size = self.files.size().unwrap_or_default();
        self.overhead_min.store(overhead(size, bytes), Ordering::Relaxed);
        tracing::info!(bytes, before, size, "records file shrunk");
        // Freeing the blocks of a large file takes long, so it is done on another thread if
        // possible.
        let _ = std::thread::Builder::new().name("store-drop".to_owned()).spawn(|| drop(old));
        Ok(())
    }

    fn discard_copy(&self) {
        *self.lock_copy() = None;
    }
}

/// Removes records. Returns the size of their keys and values in bytes.
fn remove(txn: &WriteTransaction, ids: &[RecordId]) -> Result<u64, DiskError> {
    let mut heads = txn.open_table(HEADS).map_err(redb_error)?;
    let mut parts = txn.open_table(PARTS).map_err(redb_error)?;
    let mut bytes = 0;
    for id in ids {
        let id = encode(*id);
        let Some(row) = heads.remove(id).map_err(redb_error)? else { continue };
        match decode_head(id, row.value()) {
            Ok(head) if head.is_delete => bytes += head.bytes(),
            Ok(head) => {
                bytes += head.bytes();
                remove_value(&mut parts, id, head.value_bytes)?;
            }
            // Damaged records are removed too.
            Err(_) => remove_parts(&mut parts, id)?,
        }
    }
    Ok(bytes)
}

/// Returns the file size per byte of keys and values, in thousandths.
fn overhead(size: u64, bytes: u64) -> u64 {
    size.saturating_mul(1000) / bytes.max(1)
}

fn no_copy() -> DiskError {
    io_error(io::Error::other("there is no copy"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use redb::StorageBackend;

    use super::super::redb_setup::CACHE_BYTES_MAX;
    use super::*;
    use crate::conformance::{Fault, PowerDisk};

    /// Larger than the page cache, so that only the last value can be in memory after opening.
    const VALUE_BYTES: usize = CACHE_BYTES_MAX + 1;
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Channels that report that the read has started, and that it may end.
    type Gate = Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>;

    /// Files that block one read, which then fails when it is released.
    #[derive(Clone)]
    struct BlockingFiles {
        disk: PowerDisk,
        gate: Gate,
    }

    #[derive(Debug)]
    struct BlockingFile {
        file: Arc<dyn StorageBackend>,
        gate: Gate,
    }

    impl Files for BlockingFiles {
        fn open(&self, role: FileRole) -> io::Result<Arc<dyn StorageBackend>> {
            let file = self.disk.open(role)?;
            let gate = Arc::clone(&self.gate);
            Ok(Arc::new(BlockingFile { file, gate }))
        }

        fn create_new(&self) -> io::Result<()> {
            self.disk.create_new()
        }

        fn promote(&self) -> io::Result<()> {
            self.disk.promote()
        }

        fn sync_directory(&self) -> io::Result<()> {
            self.disk.sync_directory()
        }

        fn remove_new(&self) -> io::Result<()> {
            self.disk.remove_new()
        }

        fn size(&self) -> io::Result<u64> {
            self.disk.size()
        }

        fn free_bytes(&self) -> io::Result<Option<u64>> {
            self.disk.free_bytes()
        }
    }

    impl StorageBackend for BlockingFile {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let gate = self.gate.lock().expect("a lock").take();
            let Some((started, release)) = gate else { return self.file.read(offset, out) };
            started.send(()).expect("the test waits");
            // The test may have failed.
            let _ = release.recv();
            Err(io::Error::other("late"))
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.file.write(offset, data)
        }
    }

    fn record(revision: u64, bytes: usize) -> Record {
        let id = RecordId::first(Revision(revision));
        let key = revision.to_string().into();
        let value_bytes = bytes as u32;
        let created = id.revision;
        let is_delete = false;
        let expires = None;
        let head = Head { id, key, created, is_delete, value_bytes, expires };
        Record { head, value: vec![revision as u8; bytes].into() }
    }

    /// Returns the number of pages that have values.
    fn value_pages(disk: &RedbDisk) -> u64 {
        let txn = disk.database().expect("it is open").begin_read().expect("it is open");
        txn.open_table(PARTS).expect("a table").stats().expect("it is read").leaf_pages()
    }

    #[test]
    fn values_that_would_leave_pages_half_empty_fill_them() {
        let disk = RedbDisk::with_files(PowerDisk::default()).expect("it opens");
        let records: Vec<_> = (1..=300).map(|n| record(n, 5000)).collect();
        records.chunks(3).for_each(|group| disk.commit(group, None).expect("it is written"));
        // 300 values with their checksums take 367 pages; undivided they would take 600.
        let pages = value_pages(&disk);
        assert!((367..380).contains(&pages), "{pages} pages");
        for Record { head, value } in &records {
            assert_eq!(disk.value(head.id).expect("it is read").as_ref(), Some(value));
        }
    }

    #[test]
    fn a_late_failure_of_a_replaced_handle_leaves_its_successor_alone() {
        let disk = PowerDisk::default();
        let records = [1, 2, 3].map(|n| record(n, VALUE_BYTES));
        let gate = Gate::default();
        let files = BlockingFiles { disk: disk.clone(), gate: Arc::clone(&gate) };
        let open = || RedbDisk::with_files(files.clone()).expect("open");
        open().commit(&records, None).expect("commit");
        let store = open();
        let read = |n: usize| store.value(records[n].head.id);
        let (started, has_started) = channel();
        let (release, released) = channel();
        thread::scope(|scope| {
            // A failing test drops it too, which releases the read.
            let release = release;
            *gate.lock().expect("a lock") = Some((started, released));
            let late = scope.spawn(|| read(0));
            has_started.recv_timeout(DEADLINE).expect("the read begins");
            disk.fail(Some(Fault::Reads));
            read(1).expect_err("reads fail");
            disk.fail(None);
            assert_eq!(read(1).expect("reads work"), Some(records[1].value.clone()));
            let successor = store.database().expect("it is open");
            release.send(()).expect("the read waits");
            let late = late.join().expect("no panic").expect("it is read again");
            assert_eq!(late, Some(records[0].value.clone()));
            assert!(Arc::ptr_eq(&successor, &store.database().expect("it is open")));
        });
    }
}
