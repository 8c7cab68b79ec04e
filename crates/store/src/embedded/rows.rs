//! How records stand in the tables of the file; described, with its version, in `docs/storage.md`.

use std::iter::Peekable;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Range, ReadableTable, Table, TableDefinition};

use super::disk::{Head, Record, RecordId};
use super::redb_disk::shared;
use crate::{DiskError, Revision};

/// Record name to kind, revision of creation, length of the value and key.
pub(super) const HEADS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("heads");
/// Record name and number of the part to that part of the value; deletes have no row.
pub(super) const PARTS: TableDefinition<'_, PartId, &[u8]> = TableDefinition::new("parts");
/// Facts about the whole.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const FLOOR: &str = "floor";

const KIND_DELETE: u8 = 1;
const KIND_PUT: u8 = 2;

/// Bytes of the smallest page.
const PAGE_BYTES: usize = 4096;
/// What a page has beside the one part in it: its head, the key, and where the part ends.
const PAGE_EXTRA: usize = 4 + ROW_EXTRA;
const ROW_EXTRA: usize = 14 + 4;
/// Parts of a page that several share, at most. The shorter they are, the fuller the page and the
/// more there is to do.
const SHARED_PART_BYTES: usize = (PAGE_BYTES - 4) / 4 - ROW_EXTRA;
/// A page with one part in it is so many times as large as the smallest, or a power of two times as
/// much up to the second. What is left of such a value may have a page for itself, so it is large.
const PAGE_TIMES_MIN: usize = 4;
const PAGE_TIMES_MAX: usize = 16;

/// Revision and index, big-endian, so that bytes order as records do.
pub(super) type Id = [u8; 12];
/// The same, and the number of the part (2 bytes, big-endian).
pub(super) type PartId = [u8; 14];

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
        } else if found != bytes {
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
        KIND_DELETE => (0, row),
        _ => return Err(damaged(id)),
    };
    let (created, is_delete) = (Revision(u64::from_be_bytes(*created)), *kind == KIND_DELETE);
    Ok(Head { id, key: Bytes::copy_from_slice(key), created, is_delete, value_bytes })
}

pub(super) fn encode_part(id: Id, number: u16) -> PartId {
    let mut bytes = [0; 14];
    bytes[..12].copy_from_slice(&id);
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn record_of(part: PartId) -> Id {
    let [id @ .., _, _] = part;
    id
}

/// Writes a value in parts that fill pages: the library gives each page a power of two, so that of
/// values of 2 KB each would take one of 4 KB. An empty value has one part.
pub(super) fn insert_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    value: &[u8],
) -> Result<(), DiskError> {
    let (mut rest, mut number) = (value, 0);
    loop {
        let (part, after) = rest.split_at(part_bytes(rest.len()));
        table.insert(encode_part(id, number), part).map_err(shared)?;
        if after.is_empty() {
            return Ok(());
        }
        (rest, number) = (after, number + 1);
    }
}

/// Removes all parts of a value of this length.
pub(super) fn remove_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    bytes: u32,
) -> Result<(), DiskError> {
    let (mut rest, mut number) = (bytes as usize, 0);
    loop {
        table.remove(encode_part(id, number)).map_err(shared)?;
        rest -= part_bytes(rest);
        if rest == 0 {
            return Ok(());
        }
        number += 1;
    }
}

/// How long the next part is when so many bytes are left.
fn part_bytes(rest: usize) -> usize {
    let of_page = |times: usize| times * PAGE_BYTES - PAGE_EXTRA;
    if rest < of_page(PAGE_TIMES_MIN) {
        return rest.div_ceil(rest.div_ceil(SHARED_PART_BYTES).max(1));
    }
    let mut times = PAGE_TIMES_MIN;
    while times < PAGE_TIMES_MAX && of_page(2 * times) <= rest {
        times *= 2;
    }
    of_page(times)
}

/// Values in the order of records, put together from their parts.
pub(super) struct Values<'a> {
    parts: Peekable<Range<'a, PartId, &'static [u8]>>,
    buffer: Vec<u8>,
}

impl<'a> Values<'a> {
    /// From a record on.
    pub(super) fn new(
        table: &'a impl ReadableTable<PartId, &'static [u8]>,
        from: Id,
    ) -> Result<Self, DiskError> {
        let parts = table.range(encode_part(from, 0)..).map_err(shared)?.peekable();
        Ok(Self { parts, buffer: Vec::new() })
    }
}

impl Iterator for Values<'_> {
    type Item = Result<(Id, Bytes), DiskError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, part) = match self.parts.next()? {
            Ok((first, part)) => (record_of(first.value()), part),
            Err(error) => return Some(Err(shared(error))),
        };
        self.buffer.clear();
        self.buffer.extend_from_slice(part.value());
        while let Some(row) = self
            .parts
            .next_if(|row| row.as_ref().map_or(true, |(id, _)| record_of(id.value()) == first))
        {
            match row {
                Ok((_, part)) => self.buffer.extend_from_slice(part.value()),
                Err(error) => return Some(Err(shared(error))),
            }
        }
        Some(Ok((first, Bytes::copy_from_slice(&self.buffer))))
    }
}

pub(super) fn damaged(id: RecordId) -> DiskError {
    let text = format!("record {}.{} is damaged", id.revision, id.index);
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_pages_and_make_up_the_value() {
        let parts = |mut rest: usize| {
            let mut parts = vec![];
            while rest > 0 {
                parts.push(part_bytes(rest));
                assert!(parts.last() <= Some(&rest) && part_bytes(rest) > 0);
                rest -= part_bytes(rest);
            }
            parts
        };
        assert_eq!(part_bytes(0), 0);
        assert_eq!(parts(1005), [1005]);
        assert_eq!(parts(2048), [683, 683, 682]);
        assert_eq!(parts(4096), [820, 819, 819, 819, 819]);
        assert_eq!((parts(16_361).len(), parts(16_361)[0]), (17, 963));
        assert_eq!(parts(16_362), [16_362]);
        assert_eq!(parts(100_000), [65_514, 32_746, 870, 870]);
    }
}
