//! Facts about a records file as a whole: the format of its rows, and the floor of the history.

use redb::{
    Database, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError, WriteTransaction,
};

use super::checksum;
use super::library::{plain, shared};
use crate::{DiskError, Revision};

/// Names and values of the facts.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FLOOR: &str = "floor";
const FLOOR_SUM: &str = "floor-checksum";
/// The format of the rows. Format 3 has no such fact.
const FORMAT: &str = "format";

/// The format of the rows that are written.
const ROWS_FORMAT: u64 = 4;

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

/// The floor in a file of format 3, which keeps no checksum of it.
pub(super) fn floor_of_format_3(database: &Database) -> Result<Revision, DiskError> {
    let reading = database.begin_read().map_err(shared)?;
    let meta = reading.open_table(META).map_err(shared)?;
    Ok(Revision(fact(&meta, FLOOR)?.unwrap_or_default()))
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
