//! The disk proper: records in one redb file.
//!
//! Heads and values stand in two tables, so that opening reads no value. The layout is described,
//! with its version, in `docs/storage.md`.

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

use super::copy::Copy;
use super::disk::{Disk, Head, Record, RecordId, Sink, StoredRecord, damaged};
use super::facts::{Rows, floor_of, rows_of, set_floor};
use super::files::{DirFiles, Files, Place, backend};
use super::library::{builder, is_spoiling, plain, shared};
use super::panics::{Opened, Panicked, caught};
use super::rows::{
    Finding, HEADS, Id, PARTS, Values, decode_head, decode_value, encode, encode_head,
    insert_value, remove_parts, remove_value, value_of,
};
use super::takeover::take_over;
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// Thousandths: a file that takes up more for each byte in it is copied. A copy takes up some 1,300,
/// so that each byte that is copied has let another one be written.
const WASTE_MAX: u64 = 2500;
/// What a copy may take up for each byte, and beside.
const COPY_ROOM: u64 = 3;
const COPY_ROOM_MIN: u64 = 64 << 20;

/// Records in a redb file.
///
/// A failed write or sync is told once, by the commit that asked for it; the library sees none of
/// them ([`WriteBehind`]). A failed read spoils the library's handle, so it is opened anew.
pub struct RedbDisk {
    current: RwLock<Current>,
    files: Arc<dyn Files>,
    copy: Mutex<Option<Copy>>,
    /// The waste of the last copy when it was made: no other one can be expected to have less.
    waste_min: AtomicU64,
    /// Whether a crash may give the name of the file back to the one that had it before.
    is_name_unsure: AtomicBool,
    /// The library panicked in a write: nobody knows what it would do with the next one.
    broken: OnceLock<DiskError>,
    /// Held for as long as the file is open; dropped after it.
    _lock: Option<File>,
}

/// The file in use. What replaces it holds the same records.
struct Current {
    /// `None` from a failed read, after which the handle answers nothing more, until it is
    /// replaced. Readers keep theirs to their end. At most one that is not spoilt lives.
    database: Option<Arc<Opened>>,
    file: WriteBehind,
}

impl RedbDisk {
    /// Opens or makes the file. `lock` is held until the disk is dropped. A file of format 3 is taken
    /// over; `before` is done right before the new one takes its place.
    pub(super) fn open(
        path: &Path,
        lock: File,
        before: &dyn Fn() -> io::Result<()>,
    ) -> Result<Self, DiskError> {
        let files = DirFiles::new(path.to_owned());
        files.prepare().map_err(plain)?;
        caught(|| Self::prepare(Arc::new(files), Some(lock), before))
    }

    /// Opens or makes it in something that is like files; for tests that cut the power.
    pub fn over(files: impl Files) -> Result<Self, DiskError> {
        caught(|| Self::prepare(Arc::new(files), None, &|| Ok(())))
    }

    /// Opens the file without ever writing to it; what has to be repaired is so in memory.
    pub(super) fn open_read_only(path: &Path, lock: File) -> Result<Self, DiskError> {
        let path = path.to_owned();
        let open = {
            let path = path.clone();
            move || backend(OpenOptions::new().read(true).open(&path)?)
        };
        let file = WriteBehind::read_only(open).map_err(plain)?;
        caught(|| {
            let database = builder().create_with_backend(file.clone()).map_err(shared)?;
            if rows_of(&database)? == Rows::Old {
                let why = "the records have format 3: a server that starts takes them over";
                return Err(plain(io::Error::other(why)));
            }
            Ok(Self::new(
                Arc::new(Opened::new(database)),
                file,
                Arc::new(DirFiles::new(path)),
                Some(lock),
            ))
        })
    }

    fn new(
        database: Arc<Opened>,
        file: WriteBehind,
        files: Arc<dyn Files>,
        lock: Option<File>,
    ) -> Self {
        Self {
            current: RwLock::new(Current { database: Some(database), file }),
            files,
            copy: Mutex::default(),
            waste_min: AtomicU64::new(0),
            is_name_unsure: AtomicBool::new(false),
            broken: OnceLock::new(),
            _lock: lock,
        }
    }

    /// Reads every page against its checksum; `false` when some do not fit together.
    pub(super) fn check_pages(&mut self) -> Result<bool, DiskError> {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        let database = current.database.as_mut().and_then(Arc::get_mut);
        let database = database.ok_or_else(|| shared(StorageError::DatabaseClosed))?;
        caught(|| database.check_integrity().map_err(shared))
    }

    /// All records in order; where a row is damaged or has no counterpart, what is wrong.
    pub(super) fn audit(&self, sink: Sink<'_, Finding>) -> Result<(), DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let heads = reading.open_table(HEADS).map_err(shared)?;
            let parts = reading.open_table(PARTS).map_err(shared)?;
            let mut values = Values::new(&parts, Id::default())?;
            for row in heads.range::<Id>(..).map_err(shared)? {
                let (id, row) = row.map_err(shared)?;
                let id = id.value();
                while let Some(orphan) = values.skip_before(id)? {
                    if sink(Finding::orphan(orphan)).is_break() {
                        return Ok(());
                    }
                }
                if sink(Finding::of(id, row.value(), values.of(id)?)).is_break() {
                    return Ok(());
                }
            }
            while let Some(orphan) = values.skip()? {
                if sink(Finding::orphan(orphan)).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Removes all that stands under these names.
    pub(super) fn discard(&self, ids: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.write(Durability::Immediate, |writing| {
            set_floor(writing, floor)?;
            let mut heads = writing.open_table(HEADS).map_err(shared)?;
            let mut parts = writing.open_table(PARTS).map_err(shared)?;
            for id in ids {
                heads.remove(encode(*id)).map_err(shared)?;
                remove_parts(&mut parts, encode(*id))?;
            }
            Ok(())
        })
    }

    fn prepare(
        files: Arc<dyn Files>,
        lock: Option<File>,
        before: &dyn Fn() -> io::Result<()>,
    ) -> Result<Self, DiskError> {
        let file = WriteBehind::new({
            let files = Arc::clone(&files);
            move || files.open(Place::Current)
        });
        let file = file.map_err(plain)?;
        let database = builder().create_with_backend(file.clone()).map_err(shared)?;
        // What an opening repairs must be on the disk before anything stands on it.
        file.check()?;
        match rows_of(&database)? {
            Rows::Known => Ok(Self::new(Arc::new(Opened::new(database)), file, files, lock)),
            Rows::None => {
                let disk = Self::new(Arc::new(Opened::new(database)), file, files, lock);
                disk.commit(&[], Some(Revision(0)))?;
                Ok(disk)
            }
            Rows::Old => {
                let (database, file) = take_over(&files, database, before)?;
                Ok(Self::new(database, file, files, lock))
            }
        }
    }

    /// Does something with the database, opened anew when an earlier read has spoilt it. A panic of
    /// the library is an error, which does not spoil it: reads share nothing that a panic leaves half
    /// done.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let database = self.database()?;
        let result = caught(|| work(&database));
        if result.as_ref().is_err_and(is_spoiling) {
            let mut current = self.write_current();
            // A failure of one that has been replaced says nothing of the one that did.
            if current.database.as_ref().is_some_and(|current| Arc::ptr_eq(current, &database)) {
                current.database = None;
            }
        }
        result
    }

    fn database(&self) -> Result<Arc<Opened>, DiskError> {
        let current = self.read_current().database.clone();
        if let Some(database) = current {
            return Ok(database);
        }
        let mut current = self.write_current();
        if let Some(database) = &current.database {
            return Ok(Arc::clone(database));
        }
        // One that is still read from writes nothing any more: it is spoilt.
        let file = current.file.clone();
        let new = caught(|| builder().create_with_backend(file).map_err(shared))?;
        Ok(Arc::clone(current.database.insert(Arc::new(Opened::new(new)))))
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

    /// One transaction; `Ok` when all of it is as durable as it should be.
    fn write<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut WriteTransaction) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        if let Some(broken) = self.broken.get() {
            return Err(broken.clone());
        }
        if self.is_name_unsure.load(Ordering::Acquire) {
            self.files.sync_names().map_err(plain)?;
            self.is_name_unsure.store(false, Ordering::Release);
        }
        let done = self.with(|database| {
            let mut writing = database.begin_write().map_err(shared)?;
            writing.set_durability(durability).map_err(shared)?;
            let done = work(&mut writing)?;
            writing.commit().map_err(shared)?;
            Ok(done)
        });
        let done = done.inspect_err(|error| {
            if error.is::<Panicked>() {
                // The next opening reads every page before it trusts the file.
                self.broken.get_or_init(|| error.clone());
            }
        })?;
        self.file().check()?;
        Ok(done)
    }

    fn copy_now(&self) -> MutexGuard<'_, Option<Copy>> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for RedbDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        self.with(floor_of)
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let heads = reading.open_table(HEADS).map_err(shared)?;
            let mut count = 0;
            for row in heads.range(encode(from)..).map_err(shared)? {
                let (id, head) = row.map_err(shared)?;
                count += 1;
                if sink(decode_head(id.value(), head.value()).map_err(damaged)?).is_break() {
                    return Ok(());
                }
            }
            // A damaged branch of the tree may hide leaves, or show one twice.
            let length = heads.len().map_err(shared)?;
            if from == RecordId::first(Revision(0)) && count != length {
                let why = format!("{count} records are found, and not {length}");
                return Err(plain(io::Error::other(why)));
            }
            Ok(())
        })
    }

    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let heads = reading.open_table(HEADS).map_err(shared)?;
            let parts = reading.open_table(PARTS).map_err(shared)?;
            let mut values = Values::new(&parts, encode(from))?;
            for row in heads.range(encode(from)..).map_err(shared)? {
                let (id, head) = row.map_err(shared)?;
                let head = decode_head(id.value(), head.value()).map_err(damaged)?;
                let value = if head.is_delete {
                    Ok(Bytes::new())
                } else {
                    value_of(&head, values.of(id.value())?)
                };
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
                let reading = database.begin_read().map_err(shared)?;
                let parts = reading.open_table(PARTS).map_err(shared)?;
                let mut values = Values::new(&parts, encode(id))?;
                let stored = values.of(encode(id))?;
                let value = stored.map(|stored| decode_value(id, stored)).transpose();
                Ok(value.map_err(damaged)?.map(Bytes::copy_from_slice))
            })
        };
        // Another read may have spoilt the handle under this one.
        read().or_else(|error| if is_spoiling(&error) { read() } else { Err(error) })
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        self.write(Durability::Immediate, |writing| {
            let mut heads = writing.open_table(HEADS).map_err(shared)?;
            let mut parts = writing.open_table(PARTS).map_err(shared)?;
            let mut buffer = Vec::new();
            for Record { head, value } in records {
                let id = encode(head.id);
                encode_head(head, &mut buffer);
                heads.insert(id, &buffer[..]).map_err(shared)?;
                if !head.is_delete {
                    insert_value(&mut parts, id, value, &mut buffer)?;
                }
            }
            floor.map_or(Ok(()), |floor| set_floor(writing, floor))
        })
    }

    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError> {
        self.write(Durability::None, |writing| remove(writing, ids))
    }

    fn settle(&self) -> Result<(), DiskError> {
        // A commit with quick repair costs twice another, and spares the next opening after a
        // crash a walk over the whole file.
        self.write(Durability::Immediate, |writing| {
            writing.set_quick_repair(true);
            Ok(())
        })
    }

    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.file().catch_up()?;
        self.write(Durability::Immediate, |writing| {
            remove(writing, undo)?;
            set_floor(writing, floor)
        })
    }

    fn is_wasteful(&self, bytes: u64) -> bool {
        // What cannot be found out now is asked again after the next compaction.
        let Ok(size) = self.files.size() else { return false };
        let waste_max = WASTE_MAX.max(self.waste_min.load(Ordering::Relaxed) * 5 / 4);
        if size < self.files.spared() || waste(size, bytes) <= waste_max {
            return false;
        }
        let room = self.files.room().ok().flatten();
        let needed = bytes.saturating_mul(COPY_ROOM) + COPY_ROOM_MIN;
        let is_room = room.is_none_or(|room| room >= needed);
        if !is_room {
            tracing::warn!(size, bytes, room, needed, "no room to make the records file smaller");
        }
        is_room
    }

    fn copy(&self, from: RecordId, through: Revision) -> Result<Option<RecordId>, DiskError> {
        let mut copy = self.copy_now();
        if from == RecordId::first(Revision(0)) {
            // The file of an earlier one must be gone before the new one is made.
            *copy = None;
            *copy = Some(Copy::begin(&self.files)?);
        }
        let copy = copy.as_mut().ok_or_else(no_copy)?;
        self.with(|database| copy.add(database, from, through))
    }

    fn change_over(&self, floor: Revision) -> Result<(), DiskError> {
        let copy = self.copy_now().take().ok_or_else(no_copy)?;
        copy.finish(floor)?;
        if !self.with(|database| copy.is_whole(database))? {
            return Err(plain(io::Error::other("the copy has not all records")));
        }
        let (bytes, before) = (copy.bytes(), self.files.size().unwrap_or_default());
        let (database, file) = copy.promote()?;
        // Until its name is durable nothing is written: either file holds all there is.
        self.is_name_unsure.store(true, Ordering::Release);
        let new = Current { database: Some(database), file };
        let old = std::mem::replace(&mut *self.write_current(), new);
        let size = self.files.size().unwrap_or_default();
        self.waste_min.store(waste(size, bytes), Ordering::Relaxed);
        tracing::info!(bytes, before, size, "the records file has been made smaller");
        // To free the blocks of a large file takes the system a while; what no thread is given for
        // is done here.
        let _ = std::thread::Builder::new().name("store-drop".to_owned()).spawn(|| drop(old));
        Ok(())
    }

    fn discard_copy(&self) {
        *self.copy_now() = None;
    }
}

/// Removes records; how many bytes of keys and values they had.
fn remove(writing: &WriteTransaction, ids: &[RecordId]) -> Result<u64, DiskError> {
    let mut heads = writing.open_table(HEADS).map_err(shared)?;
    let mut parts = writing.open_table(PARTS).map_err(shared)?;
    let mut bytes = 0;
    for id in ids {
        let id = encode(*id);
        let Some(row) = heads.remove(id).map_err(shared)? else { continue };
        match decode_head(id, row.value()) {
            Ok(head) if head.is_delete => bytes += head.bytes(),
            Ok(head) => {
                bytes += head.bytes();
                remove_value(&mut parts, id, head.value_bytes)?;
            }
            // What is damaged must not stay because of that.
            Err(_) => remove_parts(&mut parts, id)?,
        }
    }
    Ok(bytes)
}

/// Thousandths of what a file takes up for each byte of the keys and values in it.
fn waste(size: u64, bytes: u64) -> u64 {
    size.saturating_mul(1000) / bytes.max(1)
}

fn no_copy() -> DiskError {
    plain(io::Error::other("there is no copy"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use redb::StorageBackend;

    use super::super::library::CACHE_BYTES_MAX;
    use super::*;
    use crate::conformance::{Fault, PowerDisk};

    /// Opening may leave one value of this size in memory, the last.
    const VALUE_BYTES: usize = CACHE_BYTES_MAX + 1;
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Says that the read has begun, and hears when it may end.
    type Hold = Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>;

    /// Files of which one read is held back, and fails when it is let go.
    #[derive(Clone)]
    struct HoldsBack {
        disk: PowerDisk,
        hold: Hold,
    }

    #[derive(Debug)]
    struct HeldBack {
        file: Arc<dyn StorageBackend>,
        hold: Hold,
    }

    impl Files for HoldsBack {
        fn open(&self, place: Place) -> io::Result<Arc<dyn StorageBackend>> {
            let (file, hold) = (self.disk.open(place)?, Arc::clone(&self.hold));
            Ok(Arc::new(HeldBack { file, hold }))
        }

        fn make_beside(&self) -> io::Result<()> {
            self.disk.make_beside()
        }

        fn promote(&self) -> io::Result<()> {
            self.disk.promote()
        }

        fn sync_names(&self) -> io::Result<()> {
            self.disk.sync_names()
        }

        fn discard_beside(&self) -> io::Result<()> {
            self.disk.discard_beside()
        }

        fn size(&self) -> io::Result<u64> {
            self.disk.size()
        }

        fn room(&self) -> io::Result<Option<u64>> {
            self.disk.room()
        }
    }

    impl StorageBackend for HeldBack {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let hold = self.hold.lock().expect("a lock").take();
            let Some((begun, go)) = hold else { return self.file.read(offset, out) };
            begun.send(()).expect("the test waits");
            // The test may have failed.
            let _ = go.recv();
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

    fn record(revision: u64) -> Record {
        let (id, key) = (RecordId::first(Revision(revision)), revision.to_string().into());
        let value_bytes = VALUE_BYTES as u32;
        let (created, is_delete, expires) = (id.revision, false, None);
        let head = Head { id, key, created, is_delete, value_bytes, expires };
        Record { head, value: vec![revision as u8; VALUE_BYTES].into() }
    }

    #[test]
    fn a_late_failure_of_a_replaced_handle_leaves_its_successor_alone() {
        let disk = PowerDisk::default();
        let records = [record(1), record(2), record(3)];
        let hold = Hold::default();
        let files = HoldsBack { disk: disk.clone(), hold: Arc::clone(&hold) };
        let open = || RedbDisk::over(files.clone()).expect("open");
        open().commit(&records, None).expect("commit");
        let store = open();
        let read = |n: usize| store.value(records[n].head.id);
        let ((begun, has_begun), (go, may_go)) = (channel(), channel());
        thread::scope(|scope| {
            // Dropped by a failure too, which lets the read go.
            let go = go;
            *hold.lock().expect("a lock") = Some((begun, may_go));
            let late = scope.spawn(|| read(0));
            has_begun.recv_timeout(DEADLINE).expect("the read begins");
            disk.fail(Some(Fault::Reads));
            read(1).expect_err("reads fail");
            disk.fail(None);
            assert_eq!(read(1).expect("reads work"), Some(records[1].value.clone()));
            let successor = store.database().expect("it is open");
            go.send(()).expect("the read waits");
            let late = late.join().expect("no panic").expect("it is read again");
            assert_eq!(late, Some(records[0].value.clone()));
            assert!(Arc::ptr_eq(&successor, &store.database().expect("it is open")));
        });
    }
}
