//! Settings of redb, and conversion of its errors.

use std::io;
use std::sync::Arc;

use redb::{Builder, Database, Error};

use crate::DiskError;

/// Size of redb's page cache. Small, because values are read from it only if they are neither in
/// the cache crate nor in the ring, and writes touch only the end of the tables.
pub(super) const CACHE_BYTES_MAX: usize = 512 << 10;

pub(super) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

/// Returns whether redb fails every later call on the database after this error.
pub(super) fn closes_database(error: &DiskError) -> bool {
    let error = error.downcast_ref::<Error>();
    matches!(error, Some(Error::Io(_) | Error::PreviousIo | Error::DatabaseClosed))
}

pub(super) fn redb_error(error: impl Into<Error>) -> DiskError {
    Arc::new(error.into())
}

pub(super) fn io_error(error: io::Error) -> DiskError {
    Arc::new(error)
}
