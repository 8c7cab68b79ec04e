//! Takes over a records file of format 3, which has no checksums: writes a copy of format 4 beside it,
//! which then takes its place. A crash leaves either of them, and the next opening goes on from there.

use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase, TableError, WriteTransaction};

use super::checksum;
use super::copy::Copy;
use super::disk::{Damage, RecordId, damaged};
use super::files::Files;
use super::panics::Opened;
use super::redb_disk::{plain, shared};
use super::rows::{
    FLOOR, FLOOR_SUM, FORMAT, HEADS, Id, META, PARTS, Values, decode, encode, encode_head,
    insert_value, read_head,
};
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// The format of the rows that are written.
pub(super) const ROWS_FORMAT: u64 = 4;
/// Keys and values that are taken over with one sync.
const STEP_BYTES: u64 = 4 << 20;

/// What the tables of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    /// There are none yet.
    None,
    /// Those of format 3.
    Old,
    /// Those of this version.
    Known,
}

/// What the tables of a file are; an error when a later version wrote them.
pub(super) fn rows_of(database: &Database) -> Result<Rows, DiskError> {
    let reading = database.begin_read().map_err(shared)?;
    let meta = match reading.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Rows::None),
        Err(error) => return Err(shared(error)),
    };
    match (fact(&meta, FORMAT)?, fact(&meta, FLOOR_SUM)?) {
        (Some(ROWS_FORMAT), Some(_)) => Ok(Rows::Known),
        (None, None) => Ok(Rows::Old),
        (format, _) => {
            Err(plain(std::io::Error::other(format!("the records have the format {format:?}"))))
        }
    }
}

/// The floor, when it is as it was written.
pub(super) fn floor_of(database: &Database) -> Result<Revision, DiskError> {
    let reading = database.begin_read().map_err(shared)?;
    let meta = reading.open_table(META).map_err(shared)?;
    let (floor, sum) = (fact(&meta, FLOOR)?, fact(&meta, FLOOR_SUM)?);
    match floor {
        Some(floor) if sum == Some(checksum::of_floor(floor)) => Ok(Revision(floor)),
        _ => Err(plain(std::io::Error::other("the floor of the history fails its checksum"))),
    }
}

fn fact(meta: &ReadOnlyTable<&str, u64>, name: &str) -> Result<Option<u64>, DiskError> {
    Ok(meta.get(name).map_err(shared)?.map(|fact| fact.value()))
}

/// Writes the floor, and which format the rows have.
pub(super) fn set_floor(writing: &WriteTransaction, floor: Revision) -> Result<(), DiskError> {
    let mut meta = writing.open_table(META).map_err(shared)?;
    for (name, fact) in
        [(FLOOR, floor.0), (FLOOR_SUM, checksum::of_floor(floor.0)), (FORMAT, ROWS_FORMAT)]
    {
        meta.insert(name, fact).map_err(shared)?;
    }
    Ok(())
}

/// Copies a file of format 3 and puts the copy in its place. `before` is done when the copy is whole
/// and durable, and not yet in its place.
pub(super) fn take_over(
    files: &Arc<dyn Files>,
    from: Database,
    before: &dyn Fn() -> std::io::Result<()>,
) -> Result<(Arc<Opened>, WriteBehind), DiskError> {
    let mut from = Opened::new(from);
    // Nothing else says whether the old rows are as they were written.
    if !from.check_integrity().map_err(shared)? {
        return Err(plain(std::io::Error::other(
            "the records of format 3 fail the checksums of their pages",
        )));
    }
    let floor = {
        let reading = from.begin_read().map_err(shared)?;
        let meta = reading.open_table(META).map_err(shared)?;
        Revision(fact(&meta, FLOOR)?.unwrap_or_default())
    };
    let mut copy = Copy::begin(files)?;
    let mut next = Some(RecordId::first(Revision(0)));
    while let Some(start) = next {
        next = copy.step(|writing| add(writing, &from, start))?;
    }
    copy.finish(floor)?;
    if !copy.has_heads_of(&from)? {
        return Err(plain(std::io::Error::other("the copy has not all records")));
    }
    before().map_err(plain)?;
    // Only one of the two may be open by its name.
    drop(from);
    let taken_over = copy.promote()?;
    files.sync_names().map_err(plain)?;
    tracing::info!("took over the records of format 3");
    Ok(taken_over)
}

/// Adds a step's worth of records; their bytes, and where to go on.
fn add(
    writing: &WriteTransaction,
    from: &Database,
    start: RecordId,
) -> Result<(u64, Option<RecordId>), DiskError> {
    let reading = from.begin_read().map_err(shared)?;
    let from_heads = reading.open_table(HEADS).map_err(shared)?;
    let from_parts = reading.open_table(PARTS).map_err(shared)?;
    let mut from_values = Values::new(&from_parts, encode(start))?;
    let mut heads = writing.open_table(HEADS).map_err(shared)?;
    let mut parts = writing.open_table(PARTS).map_err(shared)?;
    let (mut step, mut row_buffer, mut value_buffer) = (0, Vec::new(), Vec::new());
    for row in from_heads.range::<Id>(encode(start)..).map_err(shared)? {
        let (id, row) = row.map_err(shared)?;
        let id = id.value();
        if step >= STEP_BYTES {
            return Ok((step, Some(decode(id))));
        }
        let damage = |what| damaged(Damage { id: decode(id), what });
        let head = read_head(decode(id), row.value())
            .ok_or_else(|| damage("its head has no known form"))?;
        if !head.is_delete {
            let value = from_values.of(id)?.ok_or_else(|| damage(Damage::NO_VALUE))?;
            if value.len() != head.value_bytes as usize {
                return Err(damage(Damage::VALUE_LENGTH));
            }
            insert_value(&mut parts, id, value, &mut value_buffer)?;
        }
        encode_head(&head, &mut row_buffer);
        heads.insert(id, &row_buffer[..]).map_err(shared)?;
        step += head.bytes();
    }
    Ok((step, None))
}
