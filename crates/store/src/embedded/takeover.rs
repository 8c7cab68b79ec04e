//! Takes over a records file of format 3, which has no checksums: writes a copy of format 4 beside it,
//! which then takes its place. A crash leaves either of them, and the next opening goes on from there.

use std::sync::Arc;

use redb::{Database, ReadableDatabase, WriteTransaction};

use super::copy::Copy;
use super::disk::{Damage, RecordId, damaged};
use super::facts::floor_of_format_3;
use super::files::Files;
use super::library::{plain, shared};
use super::panics::Opened;
use super::rows::{HEADS, Id, PARTS, Values, decode, encode, encode_head, insert_value, read_head};
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// Keys and values that are taken over with one sync.
const STEP_BYTES: u64 = 4 << 20;

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
    let floor = floor_of_format_3(&from)?;
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
