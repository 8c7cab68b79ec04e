//! Encoding of records as rows of the tables of the file. `docs/storage.md` describes the format.

use std::iter::Peekable;

use bytes::Bytes;
use redb::{AccessGuard, Range, ReadableTable, Table, TableDefinition};

use super::checksum::{self, SUM_BYTES};
use super::disk::{Damage, Head, Record, RecordId};
use super::redb_setup::redb_error;
use crate::{DiskError, Revision, TXN_BYTES_MAX, Timestamp};

/// Maps a record id to kind, revision of creation, length of the value, key and checksum.
pub(super) const HEADS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("heads");
/// Maps a record id and a part number to that part of the value and its checksum. Deletes have no
/// row.
pub(super) const PARTS: TableDefinition<'_, PartId, &[u8]> = TableDefinition::new("parts");
const KIND_DELETE: u8 = 1;
const KIND_PUT: u8 = 2;
const KIND_PUT_WITH_LEASE: u8 = 3;

/// Bytes of the smallest page, the only one that has more than one part.
const PAGE_BYTES: usize = 4096;
/// Bytes of a page that has one part, without the part: page header, key and end offset.
const PAGE_EXTRA: usize = 4 + ROW_EXTRA;
const ROW_EXTRA: usize = 14 + 4;
/// Percentage of its pages that a value must fill to be stored undivided, which is less work.
const FILL_MIN: usize = 90;
/// Largest value that is never divided: four of them fill the smallest page.
const UNDIVIDED_BYTES_MAX: usize = (PAGE_BYTES - 4) / 4 - ROW_EXTRA;
/// Smallest part that is written for the sake of filling a page.
const FILLER_BYTES_MIN: usize = 256;
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
            stored => value_of(&head, stored).map(Bytes::copy_from_slice),
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
fn value_of<'s>(head: &Head, stored: Option<&'s [u8]>) -> Result<&'s [u8], Damage> {
    let damage = |what| Damage { id: head.id, what };
    let value = decode_value(head.id, stored.ok_or_else(|| damage(Damage::NO_VALUE))?)?;
    if value.len() != head.value_bytes as usize {
        return Err(damage(Damage::VALUE_LENGTH));
    }
    Ok(value)
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

/// Writes a value and its checksum in parts that fill pages. `buffer` is reused between calls.
pub(super) fn insert_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    divider: &mut Divider,
    id: Id,
    value: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<(), DiskError> {
    buffer.clear();
    buffer.extend_from_slice(value);
    buffer.extend_from_slice(&checksum::of_value(&id, value));
    insert_stored(table, divider, id, buffer)
}

/// Writes an encoded value in parts.
pub(super) fn insert_stored(
    table: &mut Table<'_, PartId, &'static [u8]>,
    divider: &mut Divider,
    id: Id,
    stored: &[u8],
) -> Result<(), DiskError> {
    let mut rest = stored;
    for number in 0.. {
        let (part, after) = rest.split_at(divider.next_part(rest.len()));
        table.insert(encode_part(id, number), part).map_err(redb_error)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Removes all parts of a value of `bytes` bytes, however it was divided.
pub(super) fn remove_value(
    table: &mut Table<'_, PartId, &'static [u8]>,
    id: Id,
    bytes: u32,
) -> Result<(), DiskError> {
    let mut rest = bytes as usize + SUM_BYTES;
    let mut number = 0;
    while rest > 0 {
        let Some(part) = table.remove(encode_part(id, number)).map_err(redb_error)? else {
            // Parts are missing, and others may follow.
            return remove_parts(table, id);
        };
        rest = rest.saturating_sub(part.value().len());
        number += 1;
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

/// Divides values into parts. redb's page sizes are powers of two, and only the smallest page has
/// more than one row: a value of 2 KB would take a page of 4 KB, and one of 5 KB a page of 8 KB.
///
/// redb adds a row that is after all others to the last page if it fits there, and otherwise begins
/// a new page. So the first part of a value that does not fill its own pages fills the last page.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Divider {
    /// Bytes that are free in the last page. Parts are written in any case; if this is wrong, pages
    /// are less full until the next part that begins a page.
    free: usize,
}

impl Divider {
    /// Returns the length of the next part of a value of which `rest` bytes are left. It is 0 only
    /// if `rest` is.
    fn next_part(&mut self, rest: usize) -> usize {
        let of_page = |times: usize| times * PAGE_BYTES - PAGE_EXTRA;
        if rest + ROW_EXTRA <= self.free {
            self.free -= rest + ROW_EXTRA;
            return rest;
        }
        let mut times = 1;
        while times < PAGE_TIMES_MAX && of_page(times) < rest {
            times *= 2;
        }
        if of_page(times) >= rest {
            // As many rows of this length as a page would have.
            let rows = if times == 1 { (PAGE_BYTES - 4) / (rest + ROW_EXTRA) } else { 1 };
            let is_full = rows * rest * 100 >= FILL_MIN * times * PAGE_BYTES;
            if is_full || rest <= UNDIVIDED_BYTES_MAX {
                self.begin_page(times, rest);
                return rest;
            }
            times /= 2;
        }
        if self.free >= FILLER_BYTES_MIN + ROW_EXTRA {
            return std::mem::take(&mut self.free) - ROW_EXTRA;
        }
        let length = if times == 0 { rest } else { of_page(times) };
        self.begin_page(times.max(1), length);
        length
    }

    /// A part begins a page of `times` times the smallest.
    fn begin_page(&mut self, times: usize, part: usize) {
        self.free = if times == 1 { PAGE_BYTES - PAGE_EXTRA - part } else { 0 };
    }
}

/// Reads the parts of values in the order of records.
pub(super) struct ValueReader<'a> {
    table: &'a dyn Parts,
    rows: Peekable<Range<'a, PartId, &'static [u8]>>,
    /// The part of the last record read, if it has only one, as most have.
    part: Option<AccessGuard<'a, &'static [u8]>>,
    /// The joined parts, if it has more than one.
    buffer: Vec<u8>,
    /// Room for them that is made at once.
    room: usize,
    /// Number of parts of the records that were read.
    parts_read: u64,
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
        Ok(Self { table, rows, part: None, buffer: Vec::new(), room: 0, parts_read: 0 })
    }

    /// Reads the value of a put. Parts are copied once, also when they are joined.
    pub(super) fn value(&mut self, head: &Head) -> Result<Result<Bytes, Damage>, DiskError> {
        self.room = (head.value_bytes as usize + SUM_BYTES).min(TXN_BYTES_MAX);
        let length = match value_of(head, self.read(encode(head.id))?) {
            Ok(value) => value.len(),
            Err(damage) => return Ok(Err(damage)),
        };
        if let Some(part) = &self.part {
            return Ok(Ok(Bytes::copy_from_slice(&part.value()[..length])));
        }
        let mut joined = std::mem::take(&mut self.buffer);
        joined.truncate(length);
        Ok(Ok(joined.into()))
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
        self.parts_read += self.collect(id)?;
        Ok(Some(self.part.as_ref().map_or(&self.buffer, |part| part.value())))
    }

    /// Returns the number of parts of the records that were read.
    pub(super) fn parts_read(&self) -> u64 {
        self.parts_read
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

    /// Reads the parts of the next record, which is `id`, and returns their number.
    fn collect(&mut self, id: Id) -> Result<u64, DiskError> {
        self.part = self.next_part()?;
        let mut count = 1;
        if self.peek()? != Some(id) {
            return Ok(count);
        }
        self.buffer.clear();
        self.buffer.reserve_exact(self.room);
        while let Some(part) = self.part.take() {
            self.buffer.extend_from_slice(part.value());
            if self.peek()? == Some(id) {
                self.part = self.next_part()?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn next_part(&mut self) -> Result<Option<AccessGuard<'a, &'static [u8]>>, DiskError> {
        Ok(self.rows.next().transpose().map_err(redb_error)?.map(|(_, part)| part))
    }
}

#[cfg(test)]
mod tests {
    use redb::ReadableTableMetadata;
    use redb::backends::InMemoryBackend;

    use super::super::redb_setup::builder;
    use super::*;

    fn parts(divider: &mut Divider, bytes: usize) -> Vec<usize> {
        let mut rest = bytes;
        let mut parts = vec![];
        while rest > 0 || parts.is_empty() {
            parts.push(divider.next_part(rest));
            rest -= parts[parts.len() - 1];
        }
        parts
    }

    #[test]
    fn parts_fill_pages_and_add_up_to_the_value() {
        let alone = |bytes| parts(&mut Divider::default(), bytes);
        assert_eq!(alone(0), [0]);
        assert_eq!(alone(300), [300]);
        assert_eq!(alone(1400), [1400]);
        assert_eq!(alone(2048), [2048]);
        assert_eq!(alone(3700), [3700]);
        assert_eq!(alone(4074), [4074]);
        assert_eq!(alone(4096), [4074, 22]);
        assert_eq!(alone(6000), [4074, 1926]);
        assert_eq!(alone(7400), [7400]);
        assert_eq!(alone(9000), [8170, 830]);
        assert_eq!(alone(65_514), [65_514]);
        assert_eq!(alone(100_000), [65_514, 32_746, 1740]);
        // What does not fill pages alone first fills the last page.
        let mut divider = Divider::default();
        assert_eq!(parts(&mut divider, 2048), [2048]);
        assert_eq!(parts(&mut divider, 2048), [2008, 40]);
        assert_eq!(parts(&mut divider, 5000), [4016, 984]);
        assert_eq!(parts(&mut divider, 300), [300]);
        assert_eq!(parts(&mut divider, 9000), [2754, 4074, 2172]);
        assert_eq!(parts(&mut divider, 3700), [3700]);
        assert_eq!(parts(&mut divider, 4096), [356, 3740]);
        assert_eq!(parts(&mut divider, 4075), [316, 3759]);
    }

    #[test]
    fn a_value_is_removed_however_it_was_divided() {
        let database = builder().create_with_backend(InMemoryBackend::new()).expect("it opens");
        let txn = database.begin_write().expect("it opens");
        let mut parts = txn.open_table(PARTS).expect("a table");
        let [id, other] = [7, 8].map(|n| encode(RecordId::first(Revision(n))));
        parts.insert(encode_part(other, 0), &[0; 3004][..]).expect("it is written");
        // The last one lacks a part.
        for lengths in [&[3004][..], &[4, 3000], &[1002, 1001, 1001], &[1002, 0, 1001]] {
            for (number, length) in (0..).zip(lengths).filter(|(_, length)| **length > 0) {
                let part = &[0; 3004][..*length];
                parts.insert(encode_part(id, number), part).expect("it is written");
            }
            remove_value(&mut parts, id, 3000).expect("it is removed");
            assert_eq!(parts.len().expect("it is read"), 1, "{lengths:?}");
        }
    }

    /// Adds parts as redb adds rows, and returns the bytes of all pages.
    fn stored_bytes(parts: impl Iterator<Item = usize>) -> usize {
        let mut bytes = 0;
        let mut free = 0;
        for part in parts {
            if part + ROW_EXTRA <= free {
                free -= part + ROW_EXTRA;
                continue;
            }
            let page = (part + PAGE_EXTRA).next_power_of_two().max(PAGE_BYTES);
            bytes += page;
            free = if page == PAGE_BYTES { page - PAGE_EXTRA - part } else { 0 };
        }
        bytes
    }

    #[test]
    fn values_fill_most_of_their_pages() {
        for bytes in (500..12_000).chain((12_000..200_000).step_by(97)) {
            let mut divider = Divider::default();
            let parts: Vec<_> = (0..60).flat_map(|_| parts(&mut divider, bytes)).collect();
            assert_eq!(parts.iter().sum::<usize>(), 60 * bytes);
            let fill = (60 * bytes) as f64 / stored_bytes(parts.into_iter()) as f64;
            assert!(fill > 0.75, "{bytes} bytes fill {fill} of their pages");
        }
    }

    /// What is a little larger takes up a little more.
    #[test]
    fn values_of_any_length_take_up_little_more_than_shorter_ones() {
        let of = |bytes| {
            let mut divider = Divider::default();
            stored_bytes((0..200).flat_map(|_| parts(&mut divider, bytes)))
        };
        for bytes in 1400..8000 {
            let smaller = of(bytes);
            let larger = of(bytes + bytes / 40);
            assert!(larger * 100 <= smaller * 115, "{bytes}: {smaller} and {larger}");
        }
    }
}
