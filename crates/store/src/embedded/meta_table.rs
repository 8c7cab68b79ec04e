//! The `meta` table of a records file: the format of its rows, and the floor of the history.

use redb::{
    Database, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError, WriteTransaction,
};

use super::checksum;
use super::redb_setup::{io_error, redb_error};
use crate::{DiskError, Revision};

/// Maps names to numbers.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FLOOR: &str = "floor";
const FLOOR_SUM: &str = "floor-checksum";
/// The format of the rows. Files of format 3 lack it.
const FORMAT: &str = "format";

/// The format that this version writes.
const ROWS_FORMAT: u64 = 4;

/// The format of the tables of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowsFormat {
    /// The file has no tables yet.
    Empty,
    /// Format 3, without checksums.
    V3,
    /// The format of this version.
    Current,
}

/// Reads the format of a file. Fails if a later version wrote it.
pub(super) fn read_format_of(database: &Database) -> Result<RowsFormat, DiskError> {
    let reading = database.begin_read().map_err(redb_error)?;
    let meta = match reading.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(RowsFormat::Empty),
        Err(error) => return Err(redb_error(error)),
    };
    match (read(&meta, FORMAT)?, read(&meta, FLOOR_SUM)?) {
        (Some(ROWS_FORMAT), Some(_)) => Ok(RowsFormat::Current),
        (None, None) => Ok(RowsFormat::V3),
        (format, _) => {
            Err(io_error(std::io::Error::other(format!("the records have the format {format:?}"))))
        }
    }
}

/// Reads the floor and verifies its checksum.
pub(super) fn floor_of(database: &Database) -> Result<Revision, DiskError> {
    let reading = database.begin_read().map_err(redb_error)?;
    let meta = reading.open_table(META).map_err(redb_error)?;
    let floor = read(&meta, FLOOR)?;
    let sum = read(&meta, FLOOR_SUM)?;
    match floor {
        Some(floor) if sum == Some(checksum::of_floor(floor)) => Ok(Revision(floor)),
        _ => Err(io_error(std::io::Error::other("the floor of the history fails its checksum"))),
    }
}

/// Reads the floor of a file of format 3, which has no checksum of it.
pub(super) fn floor_of_format_3(database: &Database) -> Result<Revision, DiskError> {
    let reading = database.begin_read().map_err(redb_error)?;
    let meta = reading.open_table(META).map_err(redb_error)?;
    Ok(Revision(read(&meta, FLOOR)?.unwrap_or_default()))
}

fn read(meta: &ReadOnlyTable<&str, u64>, name: &str) -> Result<Option<u64>, DiskError> {
    Ok(meta.get(name).map_err(redb_error)?.map(|value| value.value()))
}

/// Writes the floor, its checksum and the format.
pub(super) fn set_floor(writing: &WriteTransaction, floor: Revision) -> Result<(), DiskError> {
    let mut meta = writing.open_table(META).map_err(redb_error)?;
    for (name, value) in
        [(FLOOR, floor.0), (FLOOR_SUM, checksum::of_floor(floor.0)), (FORMAT, ROWS_FORMAT)]
    {
        meta.insert(name, value).map_err(redb_error)?;
    }
    Ok(())
}
