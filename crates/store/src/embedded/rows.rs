//! Encoding of records as rows of the tables of the file. `docs/storage.md` describes the format.

use std::iter::Peekable;

use bytes::Bytes;
use redb::{AccessGuard, Range, ReadableTable, Table, TableDefinition};

use super::checksum::{self, SUM_BYTES};
use super::disk::{Damage, Head, Record, RecordId};
use super::redb_setup::redb_error;
use crate::{DiskError, Revision, Timestamp};

/// Maps a record id to kind, revision of creation, length of the value, key and checksum.
pub(super) const HEADS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("heads");
/// Maps a record id and a part number to that part of the value and its checksum. Deletes have no
/// row.
pub(super) const PARTS: TableDefinition<'_, PartId, &[u8]> = TableDefinition::new("parts");
const KIND_DELETE: u8 = 1;
const KIND_PUT: u8 = 2;
const KIND_PUT_WITH_LEASE: u8 = 3;

/// Bytes of the smallest page.
const PAGE_BYTES: usize = 4096;
/// Bytes of a page that has one part, without the part: page header, key and end offset.
const PAGE_EXTRA: usize = 4 + ROW_EXTRA;
const ROW_EXTRA: usize = 14 + 4;
/// Largest part of a value that is divided evenly. Four of them fill the smallest page.
const EVEN_PART_BYTES: usize = (PAGE_BYTES - 4) / 4 - ROW_EXTRA;
/// Percentage of its pages that a value must fill to be stored undivided, which is less work.
const FILL_MIN: usize = 65;
/// Ratio of the largest page for one part to the smallest page.
const PAGE_TIMES_MAX: usize = 16;

/// Revision and index, big-endian, so that the order of bytes is the order of records.
pub(super) type Id = [u8; 12];
/// [`Id`] and the number of the part (2 bytes, big-endian).
pub(super) type PartId = [u8; 14];

/// One item of an audit of the file.
pub(in crate::embedded) enum AuditItem {
    Record(Record),
    Damage {
        damage: Damage,
        /// The key, if the head is intact.
        key: Option<Bytes>,
    },
}

impl AuditItem {
    /// Checks a row of the heads table. `stored` is the concatenation of the parts of the value.
    pub(super) fn of(id: Id, row: &[u8], stored: Option<&[u8]>) -> Self {
        let head = match decode_head(id, row) {
            Ok(head) => head,
            Err(damage) => return Self::Damage { damage, key: None },
        };
        let value = match stored {
            Some(_) if head.is_delete => {
                Err(Damage { id: head.id, what: "it is a delete and has a value" })
            }
            None if head.is_delete => Ok(Bytes::new()),
            stored => value_of(&head, stored),
        };
        match value {
            Ok(value) => Self::Record(Record { head, value }),
            Err(damage) => Self::Damage { damage, key: Some(head.key) },
        }
    }

    pub(super) fn orphan(id: Id) -> Self {
        let damage = Damage { id: decode(id), what: "it has a value and no head" };
        Self::Damage { damage, key: None }
    }
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
    buffer.push(match head {
        Head { is_delete: true, .. } => KIND_DELETE,
        Head { expires: None, .. } => KIND_PUT,
        Head { expires: Some(_), .. } => KIND_PUT_WITH_LEASE,
    });
    buffer.extend_from_slice(&head.created.0.to_be_bytes());
    if !head.is_delete {
        buffer.extend_from_slice(&head.value_bytes.to_be_bytes());
        if let Some(Timestamp(expires)) = head.expires {
            buffer.extend_from_slice(&expires.to_be_bytes());
        }
    }
    buffer.extend_from_slice(&head.key);
    buffer.extend_from_slice(&checksum::of_head(&encode(head.id), buffer));
}

/// Decodes a row of the heads table and verifies its checksum.
pub(super) fn decode_head(id: Id, row: &[u8]) -> Result<Head, Damage> {
    let damage = || Damage { id: decode(id), what: Damage::HEAD_SUM };
    let (row, sum) = row.split_last_chunk().ok_or_else(damage)?;
    if checksum::of_head(&id, row) != *sum {
        return Err(damage());
    }
    read_head(decode(id), row).ok_or_else(damage)
}

/// Decodes a row without a checksum, as in format 3. Returns `None` if it is malformed.
pub(super) fn read_head(id: RecordId, row: &[u8]) -> Option<Head> {
    let (kind, row) = row.split_first()?;
    let (created, row) = row.split_first_chunk()?;
    let created = Revision(u64::from_be_bytes(*created));
    let is_delete = *kind == KIND_DELETE;
    let (value_bytes, row) = match *kind {
        KIND_PUT | KIND_PUT_WITH_LEASE => {
            let (bytes, row) = row.split_first_chunk()?;
            (u32::from_be_bytes(*bytes), row)
        }
        KIND_DELETE => (0, row),
        _ => return None,
    };
    let (expires, key) = match *kind {
        KIND_PUT_WITH_LEASE => {
            let (expires, key) = row.split_first_chunk()?;
            (Some(Timestamp(u64::from_be_bytes(*expires))), key)
        }
        _ => (None, row),
    };
    let key = Bytes::copy_from_slice(key);
    Some(Head { id, key, created, is_delete, value_bytes, expires })
}

/// Decodes the value of a put from its joined parts and verifies checksum and length.
pub(super) fn value_of(head: &Head, stored: Option<&[u8]>) -> Result<Bytes, Damage> {
    let damage = |what| Damage { id: head.id, what };
    let value = decode_value(head.id, stored.ok_or_else(|| damage(Damage::NO_VALUE))?)?;
    if value.len() != head.value_bytes as usize {
        return Err(damage(Damage::VALUE_LENGTH));
    }
    Ok(Bytes::copy_from_slice(value))
}

/// Decodes a value from its joined parts and verifies its checksum.
pub(super) fn decode_value(id: RecordId, stored: &[u8]) -> Result<&[u8], Damage> {
    let damage = || Damage { id, what: Damage::VALUE_SUM };
    let (value, sum) = stored.split_last_chunk().ok_or_else(damage)?;
    if checksum::of_value(&encode(id), value) == *sum { Ok(value) } else { Err(damage()) }
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

/// Writes a value and its checksum in parts that fill pages. redb's page sizes are powers of two,
/// so a row of 2 KB would take a whole page of 4 KB. `buffer` is reused between calls.
pub(super) fn insert_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    value: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<(), DiskError> {
    buffer.clear();
    buffer.extend_from_slice(value);
    buffer.extend_from_slice(&checksum::of_value(&id, value));
    insert_stored(table, id, buffer)
}

/// Writes an encoded value in parts.
pub(super) fn insert_stored(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    stored: &[u8],
) -> Result<(), DiskError> {
    let mut rest = stored;
    for (number, length) in (0..).zip(part_lengths(stored.len())) {
        let (part, after) = rest.split_at(length);
        table.insert(encode_part(id, number), part).map_err(redb_error)?;
        rest = after;
    }
    Ok(())
}

/// Removes all parts of a value of `bytes` bytes.
pub(super) fn remove_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    bytes: u32,
) -> Result<(), DiskError> {
    for (number, _) in (0..).zip(part_lengths(bytes as usize + SUM_BYTES)) {
        table.remove(encode_part(id, number)).map_err(redb_error)?;
    }
    Ok(())
}

/// Removes all parts of a record whose value has an unknown length.
pub(super) fn remove_parts(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
) -> Result<(), DiskError> {
    let all = encode_part(id, 0)..=encode_part(id, u16::MAX);
    table.retain_in(all, |_, _| false).map_err(redb_error)
}

/// Returns the lengths of the parts of a value; at least one.
fn part_lengths(bytes: usize) -> impl Iterator<Item = usize> {
    let mut rest = bytes;
    let mut even = None;
    let mut is_first = true;
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

/// Returns the length of the next part if `rest` bytes are left, or `None` to divide them evenly.
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

/// Reads the parts of values in the order of records.
pub(super) struct ValueReader<'a> {
    table: &'a dyn Parts,
    rows: Peekable<Range<'a, PartId, &'static [u8]>>,
    /// The part of the last record read, if it has only one, as most have.
    part: Option<AccessGuard<'a, &'static [u8]>>,
    /// The joined parts, if it has more than one.
    buffer: Vec<u8>,
}

/// The table of parts, in a read or a write transaction.
pub(super) trait Parts {
    /// Returns the parts of a record and of all records after it.
    fn parts_from(&self, id: Id) -> Result<Range<'_, PartId, &'static [u8]>, DiskError>;
}

impl<T: ReadableTable<PartId, &'static [u8]>> Parts for T {
    fn parts_from(&self, id: Id) -> Result<Range<'_, PartId, &'static [u8]>, DiskError> {
        self.range(encode_part(id, 0)..).map_err(redb_error)
    }
}

impl<'a> ValueReader<'a> {
    /// Creates a reader that begins at a record.
    pub(super) fn new(table: &'a dyn Parts, from: Id) -> Result<Self, DiskError> {
        let rows = table.parts_from(from)?.peekable();
        Ok(Self { table, rows, part: None, buffer: Vec::new() })
    }

    /// Returns the joined parts of a record, or `None` if it has none. Call it in the order of
    /// records.
    pub(super) fn read(&mut self, id: Id) -> Result<Option<&[u8]>, DiskError> {
        while self.skip_before(id)?.is_some() {}
        if self.peek()? != Some(id) {
            // The parts are missing, or hidden behind a part with a damaged id.
            self.rows = self.table.parts_from(id)?.peekable();
            if self.peek()? != Some(id) {
                return Ok(None);
            }
        }
        self.collect(id)?;
        Ok(Some(self.part.as_ref().map_or(&self.buffer, |part| part.value())))
    }

    /// Skips the next record if it is before `id`, and returns its id.
    pub(super) fn skip_before(&mut self, id: Id) -> Result<Option<Id>, DiskError> {
        let Some(first) = self.peek()?.filter(|first| *first < id) else { return Ok(None) };
        self.collect(first)?;
        Ok(Some(first))
    }

    /// Skips the next record and returns its id.
    pub(super) fn skip(&mut self) -> Result<Option<Id>, DiskError> {
        let Some(first) = self.peek()? else { return Ok(None) };
        self.collect(first)?;
        Ok(Some(first))
    }

    /// Returns the record id of the next part.
    fn peek(&mut self) -> Result<Option<Id>, DiskError> {
        match self.rows.peek() {
            None => Ok(None),
            Some(Ok((id, _))) => Ok(Some(record_of(id.value()))),
            Some(Err(_)) => match self.rows.next() {
                Some(Err(error)) => Err(redb_error(error)),
                _ => Ok(None),
            },
        }
    }

    /// Reads the parts of the next record, which is `id`.
    fn collect(&mut self, id: Id) -> Result<(), DiskError> {
        self.part = self.next_part()?;
        if self.peek()? != Some(id) {
            return Ok(());
        }
        self.buffer.clear();
        while let Some(part) = self.part.take() {
            self.buffer.extend_from_slice(part.value());
            if self.peek()? == Some(id) {
                self.part = self.next_part()?;
            }
        }
        Ok(())
    }

    fn next_part(&mut self) -> Result<Option<AccessGuard<'a, &'static [u8]>>, DiskError> {
        Ok(self.rows.next().transpose().map_err(redb_error)?.map(|(_, part)| part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_pages_and_add_up_to_the_value() {
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
