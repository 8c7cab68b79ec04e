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
/// Parts of values that are divided evenly, at most. Four of them fill the smallest page.
const EVEN_PART_BYTES: usize = (PAGE_BYTES - 4) / 4 - ROW_EXTRA;
/// Hundredths of its pages that a value must fill to stay whole: parts are more work than one row.
const FILL_MIN: usize = 65;
/// Times that the largest page with one part in it is larger than the smallest.
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

fn encode_part(id: Id, number: u16) -> PartId {
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
    let mut rest = value;
    for (number, length) in (0..).zip(part_lengths(value.len())) {
        let (part, after) = rest.split_at(length);
        table.insert(encode_part(id, number), part).map_err(shared)?;
        rest = after;
    }
    Ok(())
}

/// Removes all parts of a value of this length.
pub(super) fn remove_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    bytes: u32,
) -> Result<(), DiskError> {
    for (number, _) in (0..).zip(part_lengths(bytes as usize)) {
        table.remove(encode_part(id, number)).map_err(shared)?;
    }
    Ok(())
}

/// How long the parts of a value are; at least one.
fn part_lengths(bytes: usize) -> impl Iterator<Item = usize> {
    let (mut rest, mut even, mut is_first) = (bytes, None, true);
    std::iter::from_fn(move || {
        if rest == 0 && !is_first {
            return None;
        }
        is_first = false;
        let length = match even {
            Some(even) => rest.min(even),
            None => page_part(rest).unwrap_or_else(|| {
                let length = rest.div_ceil(rest.div_ceil(EVEN_PART_BYTES));
                *even.insert(length)
            }),
        };
        rest -= length;
        Some(length)
    })
}

/// How long the next part is when so many bytes are left; `None` when these are best divided evenly.
fn page_part(rest: usize) -> Option<usize> {
    let of_page = |times: usize| times * PAGE_BYTES - PAGE_EXTRA;
    let mut times = 1;
    while times < PAGE_TIMES_MAX && of_page(times) < rest {
        times *= 2;
    }
    if of_page(times) < rest {
        return Some(of_page(times));
    }
    // As many rows of this length as fit.
    let rows = (times * PAGE_BYTES - 4) / (rest + ROW_EXTRA);
    if rows * rest * 100 >= FILL_MIN * times * PAGE_BYTES || rest <= EVEN_PART_BYTES {
        return Some(rest);
    }
    (times > 2).then(|| of_page(times / 2))
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
        let parts = |bytes| part_lengths(bytes).collect::<Vec<_>>();
        assert_eq!(parts(0), [0]);
        assert_eq!(parts(300), [300]);
        assert_eq!(parts(1024), [1024]);
        assert_eq!(parts(1400), [1400]);
        assert_eq!(parts(2028), [2028]);
        assert_eq!(parts(2048), [683, 683, 682]);
        assert_eq!(parts(3700), [3700]);
        assert_eq!(parts(4096), [820, 820, 820, 820, 816]);
        assert_eq!(parts(6000), [6000]);
        assert_eq!(parts(9000), [8170, 830]);
        assert_eq!(parts(65_514), [65_514]);
        assert_eq!(parts(100_000), [65_514, 32_746, 1740]);
    }

    #[test]
    fn parts_fill_most_of_their_pages() {
        for bytes in 500..200_000 {
            assert_eq!(part_lengths(bytes).sum::<usize>(), bytes);
            let pages: f64 = part_lengths(bytes)
                .map(|part| {
                    let page = (part + PAGE_EXTRA).next_power_of_two().max(PAGE_BYTES);
                    page as f64 / ((page - 4) / (part + ROW_EXTRA)) as f64
                })
                .sum();
            let fill = bytes as f64 / pages;
            assert!(fill > 0.64, "{bytes} bytes fill {fill} of {pages}");
        }
    }
}
