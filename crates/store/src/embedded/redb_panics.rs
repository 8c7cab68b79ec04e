//! Panics of redb, which panics on some damaged pages as if they were bugs.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redb::Database;

use super::directory::RECORDS_FILE;
use crate::DiskError;

/// redb panicked. `Display` names the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[error(
    "{RECORDS_FILE} is damaged (redb panicked: {0}); `keelson check` says where, `keelson restore` \
     makes a new one of a backup"
)]
pub(super) struct RedbPanicked(String);

/// Calls redb and turns a panic into an error.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
    // redb keeps state that transactions share behind locks, which a panic poisons. The next call
    // then panics too, and is an error again.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let error: DiskError = Arc::new(RedbPanicked(panic_message(&*panic)));
        Err(error)
    })
}

/// Returns the first line of a panic message.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// An open database. Dropping it writes, which may panic like other calls; the panic is logged.
/// After that the next start is slower.
pub(super) struct OpenDatabase(Option<Database>);

impl OpenDatabase {
    pub(super) fn new(database: Database) -> Self {
        Self(Some(database))
    }
}

impl Deref for OpenDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("present until the drop")
    }
}

impl DerefMut for OpenDatabase {
    fn deref_mut(&mut self) -> &mut Database {
        self.0.as_mut().expect("present until the drop")
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        let database = self.0.take();
        if let Err(error) = catch_panic(|| {
            drop(database);
            Ok(())
        }) {
            tracing::error!(%error, "records file was not closed; the next opening reads all of it");
        }
    }
}
