//! How records stand in the tables of the file; described, with its version, in `docs/storage.md`.

use std::sync::Arc;

use bytes::Bytes;
use redb::TableDefinition;

use super::disk::{Head, Record, RecordId};
use crate::{DiskError, Revision};

/// Record name to kind, revision of creation, length of the value and key.
pub(super) const HEADS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("heads");
/// Record name to value; deletes have no row.
pub(super) const VALUES: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("values");
/// Facts about the whole.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const FLOOR: &str = "floor";

/// A put of format 1: without the length of its value.
const KIND_PUT_1: u8 = 0;
const KIND_DELETE: u8 = 1;
const KIND_PUT: u8 = 2;

/// Revision and index, big-endian, so that bytes order as records do.
pub(super) type Id = [u8; 12];

/// What an audit comes by.
pub(in crate::embedded) enum Finding {
    Record(Record),
    /// One line.
    Damage(String),
}

impl Finding {
    pub(super) fn of(id: Id, row: &[u8], value: Option<Bytes>) -> Self {
        let head = match decode_head(id, row) {
            Ok(head) => head,
            Err(error) => return Self::Damage(error.to_string()),
        };
        let found = value.as_ref().map_or(0, Bytes::len);
        let bytes = head.value_bytes as usize;
        let wrong = if head.is_delete && value.is_some() {
            "is a delete and has a value".to_owned()
        } else if !head.is_delete && value.is_none() {
            "has no value".to_owned()
        } else if found != bytes && row.first() != Some(&KIND_PUT_1) {
            format!("has a value of {found} bytes, not of {bytes}")
        } else {
            return Self::Record(Record { head, value: value.unwrap_or_default() });
        };
        Self::Damage(format!("{} ({}) {wrong}", name(id), head.key.escape_ascii()))
    }

    pub(super) fn orphan(id: Id) -> Self {
        Self::Damage(format!("{} has a value and no head", name(id)))
    }
}

fn name(id: Id) -> String {
    let RecordId { revision, index } = decode(id);
    format!("record {revision}.{index}")
}

pub(super) fn encode(id: RecordId) -> Id {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&id.revision.0.to_be_bytes());
    bytes[8..].copy_from_slice(&id.index.to_be_bytes());
    bytes
}

pub(super) fn decode(id: Id) -> RecordId {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = id;
    let revision = Revision(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    RecordId { revision, index: u32::from_be_bytes([i, j, k, l]) }
}

pub(super) fn encode_head(head: &Head, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.push(if head.is_delete { KIND_DELETE } else { KIND_PUT });
    buffer.extend_from_slice(&head.created.0.to_be_bytes());
    if !head.is_delete {
        buffer.extend_from_slice(&head.value_bytes.to_be_bytes());
    }
    buffer.extend_from_slice(&head.key);
}

pub(super) fn decode_head(id: Id, row: &[u8]) -> Result<Head, DiskError> {
    let id = decode(id);
    let (kind, row) = row.split_first().ok_or_else(|| damaged(id))?;
    let (created, row) = row.split_first_chunk().ok_or_else(|| damaged(id))?;
    let (value_bytes, key) = match *kind {
        KIND_PUT => {
            let (bytes, key) = row.split_first_chunk().ok_or_else(|| damaged(id))?;
            (u32::from_be_bytes(*bytes), key)
        }
        KIND_PUT_1 | KIND_DELETE => (0, row),
        _ => return Err(damaged(id)),
    };
    let (created, is_delete) = (Revision(u64::from_be_bytes(*created)), *kind == KIND_DELETE);
    Ok(Head { id, key: Bytes::copy_from_slice(key), created, is_delete, value_bytes })
}

pub(super) fn damaged(id: RecordId) -> DiskError {
    let text = format!("record {}.{} is damaged", id.revision, id.index);
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(text))
}
