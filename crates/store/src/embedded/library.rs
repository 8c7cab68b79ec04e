//! redb: how it is set up, and its errors.

use std::io;
use std::sync::Arc;

use redb::{Builder, Database, Error};

use crate::DiskError;

/// Pages kept in memory, read and written together. Values are read from here only on a miss of
/// the cache above and of the ring, and a write needs the end of the tables, so little does.
pub(super) const CACHE_BYTES_MAX: usize = 2 << 20;

pub(super) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

/// Whether the library answers nothing more after this error.
pub(super) fn is_spoiling(error: &DiskError) -> bool {
    let error = error.downcast_ref::<Error>();
    matches!(error, Some(Error::Io(_) | Error::PreviousIo | Error::DatabaseClosed))
}

pub(super) fn shared(error: impl Into<Error>) -> DiskError {
    Arc::new(error.into())
}

pub(super) fn plain(error: io::Error) -> DiskError {
    Arc::new(error)
}
