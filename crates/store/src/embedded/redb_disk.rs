//! The disk proper: records in one redb file.
//!
//! Heads and values stand in two tables, so that opening reads no value. The layout is described,
//! with its version, in `docs/storage.md`.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::{
    Builder, Database, Durability, ReadableDatabase, StorageBackend, TableDefinition, TableError,
    WriteTransaction,
};

use super::disk::{Disk, Head, Record, RecordId, Sink};
use crate::{DiskError, Revision};

/// Record name to kind, revision of creation and key.
const HEADS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("heads");
/// Record name to value; deletes have no row.
const VALUES: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("values");
/// Facts about the whole.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FLOOR: &str = "floor";

/// Pages kept in memory, read and written together. Values are read from here only on a miss of
/// the cache above and of the ring, so a few megabytes do.
const CACHE_BYTES_MAX: usize = 4 << 20;

const KIND_PUT: u8 = 0;
const KIND_DELETE: u8 = 1;
/// Kind and revision of creation.
const HEAD_BYTES_MIN: usize = 9;

/// Revision and index, big-endian, so that bytes order as records do.
type Id = [u8; 12];

/// Records in a redb file.
pub struct RedbDisk {
    database: Database,
    /// Held for as long as the file is open; dropped after it.
    _lock: Option<File>,
}

impl RedbDisk {
    /// Opens or makes the file. `lock` is held until the disk is dropped.
    pub(super) fn open(path: &Path, lock: File) -> Result<Self, DiskError> {
        let database = builder().create(path).map_err(shared)?;
        Self::prepare(database, Some(lock))
    }

    /// Opens or makes it in something that is like a file; for tests that cut the power.
    pub fn with_backend(backend: impl StorageBackend) -> Result<Self, DiskError> {
        Self::prepare(builder().create_with_backend(backend).map_err(shared)?, None)
    }

    fn prepare(database: Database, lock: Option<File>) -> Result<Self, DiskError> {
        let disk = Self { database, _lock: lock };
        let reading = disk.database.begin_read().map_err(shared)?;
        match reading.open_table(META) {
            Ok(_) => Ok(disk),
            Err(TableError::TableDoesNotExist(_)) => {
                disk.commit(&[], Some(Revision(0)))?;
                Ok(disk)
            }
            Err(error) => Err(shared(error)),
        }
    }

    fn begin_write(&self, durability: Durability) -> Result<WriteTransaction, DiskError> {
        let mut writing = self.database.begin_write().map_err(shared)?;
        writing.set_durability(durability).map_err(shared)?;
        Ok(writing)
    }
}

impl Disk for RedbDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        let reading = self.database.begin_read().map_err(shared)?;
        let meta = reading.open_table(META).map_err(shared)?;
        let floor = meta.get(FLOOR).map_err(shared)?.map_or(0, |floor| floor.value());
        Ok(Revision(floor))
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        let reading = self.database.begin_read().map_err(shared)?;
        let heads = reading.open_table(HEADS).map_err(shared)?;
        for row in heads.range(encode(from)..).map_err(shared)? {
            let (id, head) = row.map_err(shared)?;
            if sink(decode_head(id.value(), head.value())?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn records(&self, from: RecordId, sink: Sink<'_, Record>) -> Result<(), DiskError> {
        let reading = self.database.begin_read().map_err(shared)?;
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
            if let ControlFlow::Break(()) = sink(Record { head, value }) {
                break;
            }
        }
        Ok(())
    }

    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError> {
        let reading = self.database.begin_read().map_err(shared)?;
        let values = reading.open_table(VALUES).map_err(shared)?;
        let value = values.get(encode(id)).map_err(shared)?;
        Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        let writing = self.begin_write(Durability::Immediate)?;
        {
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
        }
        if let Some(floor) = floor {
            let mut meta = writing.open_table(META).map_err(shared)?;
            meta.insert(FLOOR, floor.0).map_err(shared)?;
        }
        writing.commit().map_err(shared)
    }

    fn forget(&self, ids: &[RecordId]) -> Result<(), DiskError> {
        let writing = self.begin_write(Durability::None)?;
        {
            let mut heads = writing.open_table(HEADS).map_err(shared)?;
            let mut values = writing.open_table(VALUES).map_err(shared)?;
            for id in ids {
                heads.remove(encode(*id)).map_err(shared)?;
                values.remove(encode(*id)).map_err(shared)?;
            }
        }
        writing.commit().map_err(shared)
    }

    fn settle(&self) -> Result<(), DiskError> {
        // A commit with quick repair costs twice another, and spares the next opening after a
        // crash a walk over the whole file.
        let mut writing = self.begin_write(Durability::Immediate)?;
        writing.set_quick_repair(true);
        writing.commit().map_err(shared)
    }
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

fn shared(error: impl std::error::Error + Send + Sync + 'static) -> DiskError {
    Arc::new(error)
}
