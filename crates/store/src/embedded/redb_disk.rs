//! The disk proper: records in one redb file.
//!
//! Heads and values stand in two tables, so that opening reads no value. The layout is described,
//! with its version, in `docs/storage.md`.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, Durability, Error, ReadableDatabase, StorageBackend, StorageError,
    TableDefinition, TableError, WriteTransaction,
};

use super::directory;
use super::disk::{Disk, Head, Record, RecordId, Sink};
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// Record name to kind, revision of creation and key.
const HEADS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("heads");
/// Record name to value; deletes have no row.
const VALUES: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("values");
/// Facts about the whole.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FLOOR: &str = "floor";

/// Pages kept in memory, read and written together. Values are read from here only on a miss of
/// the cache above and of the ring, and a write needs the end of the tables, so little does.
const CACHE_BYTES_MAX: usize = 2 << 20;

const KIND_PUT: u8 = 0;
const KIND_DELETE: u8 = 1;
/// Kind and revision of creation.
const HEAD_BYTES_MIN: usize = 9;

/// Revision and index, big-endian, so that bytes order as records do.
type Id = [u8; 12];

/// Records in a redb file.
///
/// A failed write or sync is told once, by the commit that asked for it; the library sees none of
/// them ([`WriteBehind`]). A failed read spoils the library's handle, so it is opened anew.
pub struct RedbDisk {
    /// `None` from a failed read, after which the handle answers nothing more, until it is
    /// replaced. Readers keep theirs to their end. At most one that is not spoilt lives.
    database: RwLock<Option<Arc<Database>>>,
    file: WriteBehind,
    /// Held for as long as the file is open; dropped after it.
    _lock: Option<File>,
}

impl RedbDisk {
    /// Opens or makes the file. `lock` is held until the disk is dropped.
    pub(super) fn open(path: &Path, lock: File) -> Result<Self, DiskError> {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        drop(options.map_err(plain)?);
        // Else a power cut may take the name away, and all that was synced with it.
        directory::sync(directory::parent(path)).map_err(plain)?;
        let path = path.to_owned();
        let open = move || file(OpenOptions::new().read(true).write(true).open(&path)?);
        Self::prepare(WriteBehind::new(open).map_err(plain)?, Some(lock))
    }

    /// Opens or makes it in something that is like a file; for tests that cut the power. `open` is
    /// asked again after a failed write or sync.
    pub fn with_backend<B: StorageBackend>(
        open: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Result<Self, DiskError> {
        Self::prepare(WriteBehind::new(open).map_err(plain)?, None)
    }

    /// Opens the file without ever writing to it; what has to be repaired is so in memory.
    pub(super) fn open_read_only(path: &Path, lock: File) -> Result<Self, DiskError> {
        let path = path.to_owned();
        let file = WriteBehind::read_only(move || file(OpenOptions::new().read(true).open(&path)?));
        let file = file.map_err(plain)?;
        let database = builder().create_with_backend(file.clone()).map_err(shared)?;
        Ok(Self { database: RwLock::new(Some(Arc::new(database))), file, _lock: Some(lock) })
    }

    /// Reads every page against its checksum; `false` when some do not fit together.
    pub(super) fn check_pages(&mut self) -> Result<bool, DiskError> {
        let database = self.database.get_mut().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_mut().and_then(Arc::get_mut);
        let database = database.ok_or_else(|| shared(StorageError::DatabaseClosed))?;
        database.check_integrity().map_err(shared)
    }

    /// All records in order; where a row is damaged or has no counterpart, what is wrong.
    pub(super) fn audit(&self, sink: Sink<'_, Finding>) -> Result<(), DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let heads = reading.open_table(HEADS).map_err(shared)?;
            let values = reading.open_table(VALUES).map_err(shared)?;
            let mut values = values.range::<Id>(..).map_err(shared)?.peekable();
            for row in heads.range::<Id>(..).map_err(shared)? {
                let (id, row) = row.map_err(shared)?;
                let id = id.value();
                let mut value = None;
                while let Some(row) = values.next_if(|row| {
                    row.as_ref().map_or(true, |(value_id, _)| value_id.value() <= id)
                }) {
                    let (value_id, bytes) = row.map_err(shared)?;
                    if value_id.value() == id {
                        value = Some(Bytes::copy_from_slice(bytes.value()));
                    } else if sink(Finding::orphan(value_id.value())).is_break() {
                        return Ok(());
                    }
                }
                if sink(Finding::of(id, row.value(), value)).is_break() {
                    return Ok(());
                }
            }
            for row in values {
                let (value_id, _) = row.map_err(shared)?;
                if sink(Finding::orphan(value_id.value())).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn prepare(file: WriteBehind, lock: Option<File>) -> Result<Self, DiskError> {
        let database = builder().create_with_backend(file.clone()).map_err(shared)?;
        // What an opening repairs must be on the disk before anything stands on it.
        file.check()?;
        let is_new = match database.begin_read().map_err(shared)?.open_table(META) {
            Ok(_) => false,
            Err(TableError::TableDoesNotExist(_)) => true,
            Err(error) => return Err(shared(error)),
        };
        let disk = Self { database: RwLock::new(Some(Arc::new(database))), file, _lock: lock };
        if is_new {
            disk.commit(&[], Some(Revision(0)))?;
        }
        Ok(disk)
    }

    /// Does something with the database, opened anew when an earlier read has spoilt it.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let database = self.database()?;
        let result = work(&database);
        if result.as_ref().is_err_and(is_spoiling) {
            let mut current = self.database.write().unwrap_or_else(PoisonError::into_inner);
            // A failure of one that has been replaced says nothing of the one that did.
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &database)) {
                *current = None;
            }
        }
        result
    }

    fn database(&self) -> Result<Arc<Database>, DiskError> {
        let current = self.database.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(database) = current {
            return Ok(database);
        }
        let mut current = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = &*current {
            return Ok(Arc::clone(database));
        }
        // One that is still read from writes nothing any more: it is spoilt.
        let new = builder().create_with_backend(self.file.clone()).map_err(shared)?;
        Ok(Arc::clone(current.insert(Arc::new(new))))
    }

    /// One transaction; `Ok` when all of it is as durable as it should be.
    fn write(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut WriteTransaction) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        self.with(|database| {
            let mut writing = database.begin_write().map_err(shared)?;
            writing.set_durability(durability).map_err(shared)?;
            work(&mut writing)?;
            writing.commit().map_err(shared)
        })?;
        self.file.check()
    }
}

impl Disk for RedbDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let meta = reading.open_table(META).map_err(shared)?;
            let floor = meta.get(FLOOR).map_err(shared)?.map_or(0, |floor| floor.value());
            Ok(Revision(floor))
        })
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let heads = reading.open_table(HEADS).map_err(shared)?;
            for row in heads.range(encode(from)..).map_err(shared)? {
                let (id, head) = row.map_err(shared)?;
                if sink(decode_head(id.value(), head.value())?).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn records(&self, from: RecordId, sink: Sink<'_, Record>) -> Result<(), DiskError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(shared)?;
            let heads = reading.open_table(HEADS).map_err(shared)?;
            let values = reading.open_table(VALUES).map_err(shared)?;
            let mut values = values.range(encode(from)..).map_err(shared)?;
            for row in heads.range(encode(from)..).map_err(shared)? {
                let (id, head) = row.map_err(shared)?;
                let head = decode_head(id.value(), head.value())?;
                let value = if head.is_delete {
                    Bytes::new()
                } else {
                    // Both tables are in order, and every put has a row in both.
                    let (value_id, value) =
                        values.next().ok_or_else(|| damaged(head.id))?.map_err(shared)?;
                    if value_id.value() != id.value() {
                        return Err(damaged(head.id));
                    }
                    Bytes::copy_from_slice(value.value())
                };
                if sink(Record { head, value }).is_break() {
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
                let values = reading.open_table(VALUES).map_err(shared)?;
                let value = values.get(encode(id)).map_err(shared)?;
                Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
            })
        };
        // Another read may have spoilt the handle under this one.
        read().or_else(|error| if is_spoiling(&error) { read() } else { Err(error) })
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        self.write(Durability::Immediate, |writing| {
            let mut heads = writing.open_table(HEADS).map_err(shared)?;
            let mut values = writing.open_table(VALUES).map_err(shared)?;
            let mut buffer = Vec::new();
            for Record { head, value } in records {
                let id = encode(head.id);
                encode_head(head, &mut buffer);
                heads.insert(id, &buffer[..]).map_err(shared)?;
                if !head.is_delete {
                    values.insert(id, &value[..]).map_err(shared)?;
                }
            }
            floor.map_or(Ok(()), |floor| set_floor(writing, floor))
        })
    }

    fn forget(&self, ids: &[RecordId]) -> Result<(), DiskError> {
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
        self.file.catch_up()?;
        self.write(Durability::Immediate, |writing| {
            remove(writing, undo)?;
            set_floor(writing, floor)
        })
    }
}

/// What an audit comes by.
pub(super) enum Finding {
    Record(Record),
    /// One line.
    Damage(String),
}

impl Finding {
    fn of(id: Id, row: &[u8], value: Option<Bytes>) -> Self {
        let name = || {
            let RecordId { revision, index } = decode(id);
            format!("record {revision}.{index}")
        };
        match (decode_head(id, row), value) {
            (Err(error), _) => Self::Damage(error.to_string()),
            (Ok(head), None) if !head.is_delete => {
                let key = head.key.escape_ascii();
                Self::Damage(format!("{} ({key}) has no value", name()))
            }
            (Ok(head), Some(_)) if head.is_delete => {
                let key = head.key.escape_ascii();
                Self::Damage(format!("{} ({key}) is a delete and has a value", name()))
            }
            (Ok(head), value) => Self::Record(Record { head, value: value.unwrap_or_default() }),
        }
    }

    fn orphan(id: Id) -> Self {
        let RecordId { revision, index } = decode(id);
        Self::Damage(format!("record {revision}.{index} has a value and no head"))
    }
}

fn file(file: File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(io::Error::other)
}

fn remove(writing: &WriteTransaction, ids: &[RecordId]) -> Result<(), DiskError> {
    let mut heads = writing.open_table(HEADS).map_err(shared)?;
    let mut values = writing.open_table(VALUES).map_err(shared)?;
    for id in ids {
        heads.remove(encode(*id)).map_err(shared)?;
        values.remove(encode(*id)).map_err(shared)?;
    }
    Ok(())
}

fn set_floor(writing: &WriteTransaction, floor: Revision) -> Result<(), DiskError> {
    let mut meta = writing.open_table(META).map_err(shared)?;
    meta.insert(FLOOR, floor.0).map_err(shared)?;
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

fn encode(id: RecordId) -> Id {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&id.revision.0.to_be_bytes());
    bytes[8..].copy_from_slice(&id.index.to_be_bytes());
    bytes
}

fn decode(id: Id) -> RecordId {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = id;
    let revision = Revision(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    RecordId { revision, index: u32::from_be_bytes([i, j, k, l]) }
}

fn encode_head(head: &Head, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.push(if head.is_delete { KIND_DELETE } else { KIND_PUT });
    buffer.extend_from_slice(&head.created.0.to_be_bytes());
    buffer.extend_from_slice(&head.key);
}

fn decode_head(id: Id, row: &[u8]) -> Result<Head, DiskError> {
    let id = decode(id);
    let Some((&[kind, ref created @ ..], key)) = row.split_first_chunk::<HEAD_BYTES_MIN>() else {
        return Err(damaged(id));
    };
    let is_delete = match kind {
        KIND_PUT => false,
        KIND_DELETE => true,
        _ => return Err(damaged(id)),
    };
    let created = Revision(u64::from_be_bytes(*created));
    Ok(Head { id, key: Bytes::copy_from_slice(key), created, is_delete })
}

fn damaged(id: RecordId) -> DiskError {
    let text = format!("record {}.{} is damaged", id.revision, id.index);
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(text))
}

/// Whether the library answers nothing more after this error.
fn is_spoiling(error: &DiskError) -> bool {
    let error = error.downcast_ref::<Error>();
    matches!(error, Some(Error::Io(_) | Error::PreviousIo | Error::DatabaseClosed))
}

fn shared(error: impl Into<Error>) -> DiskError {
    Arc::new(error.into())
}

fn plain(error: io::Error) -> DiskError {
    Arc::new(error)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::conformance::{Fault, PowerDisk};

    /// Opening may leave one value of this size in memory, the last.
    const VALUE_BYTES: usize = CACHE_BYTES_MAX + 1;
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Says that the read has begun, and hears when it may end.
    type Hold = Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>;

    /// One read is held back, and fails when it is let go.
    #[derive(Debug)]
    struct HoldsBack {
        disk: PowerDisk,
        hold: Hold,
    }

    impl StorageBackend for HoldsBack {
        fn len(&self) -> io::Result<u64> {
            self.disk.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let hold = self.hold.lock().expect("a lock").take();
            let Some((begun, go)) = hold else { return self.disk.read(offset, out) };
            begun.send(()).expect("the test waits");
            // The test may have failed.
            let _ = go.recv();
            Err(io::Error::other("late"))
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.disk.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.disk.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.disk.write(offset, data)
        }
    }

    fn record(revision: u64) -> Record {
        let (id, key) = (RecordId::first(Revision(revision)), revision.to_string().into());
        let head = Head { id, key, created: id.revision, is_delete: false };
        Record { head, value: vec![revision as u8; VALUE_BYTES].into() }
    }

    #[test]
    fn a_late_failure_of_a_replaced_handle_leaves_its_successor_alone() {
        let disk = PowerDisk::default();
        let records = [record(1), record(2), record(3)];
        let hold = Hold::default();
        let open = || {
            let (disk, hold) = (disk.clone(), Arc::clone(&hold));
            let backend = move || Ok(HoldsBack { disk: disk.reopen(), hold: Arc::clone(&hold) });
            RedbDisk::with_backend(backend).expect("open")
        };
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
