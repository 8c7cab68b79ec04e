//! Upgrades a records file of format 3, which has no checksums: writes a copy of format 4, which
//! then replaces it. A crash leaves one of the two files, and the next start continues from there.

use std::sync::Arc;

use redb::{Database, ReadableDatabase, WriteTransaction};

use super::copy::FileCopy;
use super::disk::{Damage, RecordId, damage_error};
use super::files::Files;
use super::meta_table::floor_of_format_3;
use super::redb_panics::OpenDatabase;
use super::redb_setup::{io_error, redb_error};
use super::rows::{
    Divider, HEADS, Id, PARTS, ValueReader, decode, encode, encode_head, insert_value, read_head,
};
use super::write_behind::WriteBehind;
use crate::{DiskError, Revision};

/// Bytes of keys and values converted with one sync.
const STEP_BYTES: u64 = 4 << 20;

/// Converts a file of format 3 and replaces it. `before_replace` is called when the copy is
/// complete and durable, right before it replaces the file.
pub(super) fn upgrade(
    files: &Arc<dyn Files>,
    from: Database,
    before_replace: &dyn Fn() -> std::io::Result<()>,
) -> Result<(Arc<OpenDatabase>, WriteBehind), DiskError> {
    let mut from = OpenDatabase::new(from);
    // Old rows have no checksums, so only redb's page checksums can detect damage.
    if !from.check_integrity().map_err(redb_error)? {
        return Err(io_error(std::io::Error::other(
            "the records of format 3 fail the checksums of their pages",
        )));
    }
    let floor = floor_of_format_3(&from)?;
    let mut copy = FileCopy::begin(files)?;
    let mut next = Some(RecordId::first(Revision(0)));
    while let Some(start) = next {
        next = copy.step(|txn, divider| add(txn, divider, &from, start))?;
    }
    copy.finish(floor)?;
    if !copy.has_all_heads(&from)? {
        return Err(io_error(std::io::Error::other("the copy has not all records")));
    }
    before_replace().map_err(io_error)?;
    // The old file must be closed before it is replaced.
    drop(from);
    let upgraded = copy.promote()?;
    files.sync_directory().map_err(io_error)?;
    tracing::info!("records upgraded from format 3");
    Ok(upgraded)
}

/// Converts up to [`STEP_BYTES`] of records. Returns their size and where to continue.
fn add(
    txn: &WriteTransaction,
    divider: &mut Divider,
    from: &Database,
    start: RecordId,
) -> Result<(u64, Option<RecordId>), DiskError> {
    let from_txn = from.begin_read().map_err(redb_error)?;
    let from_heads = from_txn.open_table(HEADS).map_err(redb_error)?;
    let from_parts = from_txn.open_table(PARTS).map_err(redb_error)?;
    let mut from_values = ValueReader::new(&from_parts, encode(start))?;
    let mut heads = txn.open_table(HEADS).map_err(redb_error)?;
    let mut parts = txn.open_table(PARTS).map_err(redb_error)?;
    let mut step = 0;
    let mut row_buffer = Vec::new();
    let mut value_buffer = Vec::new();
    for row in from_heads.range::<Id>(encode(start)..).map_err(redb_error)? {
        let (id, row) = row.map_err(redb_error)?;
        let id = id.value();
        if step >= STEP_BYTES {
            return Ok((step, Some(decode(id))));
        }
        let damage = |what| damage_error(Damage { id: decode(id), what });
        let head = read_head(decode(id), row.value())
            .ok_or_else(|| damage("its head has no known form"))?;
        if !head.is_delete {
            let value = from_values.read(id)?.ok_or_else(|| damage(Damage::NO_VALUE))?;
            if value.len() != head.value_bytes as usize {
                return Err(damage(Damage::VALUE_LENGTH));
            }
            insert_value(&mut parts, divider, id, value, &mut value_buffer)?;
        }
        encode_head(&head, &mut row_buffer);
        heads.insert(id, &row_buffer[..]).map_err(redb_error)?;
        step += head.bytes();
    }
    Ok((step, None))
}
