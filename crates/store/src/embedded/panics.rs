//! Panics of the library that reads the records file: it takes damaged pages for mistakes of its own.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redb::Database;

use super::directory::RECORDS_FILE;
use crate::DiskError;

/// The library panicked. `Display` names the file and what can be done.
#[derive(Debug, thiserror::Error)]
#[error(
    "{RECORDS_FILE} is damaged (redb panicked: {0}); `keelson check` says where, `keelson restore` \
     makes a new one of a backup"
)]
pub(super) struct Panicked(String);

/// Does some work of the library; its panic is an error.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
    // What the library shares between transactions it keeps behind locks, which a panic poisons: then
    // the next call panics too, and that is an error again.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let error: DiskError = Arc::new(Panicked(line_of(&*panic)));
        Err(error)
    })
}

/// The first line of what a panic said.
pub(crate) fn line_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// An open database. Closing it writes, and so may panic as everything else; that costs no more than
/// the next opening being slower.
pub(super) struct Opened(Option<Database>);

impl Opened {
    pub(super) fn new(database: Database) -> Self {
        Self(Some(database))
    }
}

impl Deref for Opened {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("it is taken out when it is dropped")
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Database {
        self.0.as_mut().expect("it is taken out when it is dropped")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let database = self.0.take();
        if let Err(error) = caught(|| {
            drop(database);
            Ok(())
        }) {
            tracing::error!(%error, "records file was not closed; the next opening reads all of it");
        }
    }
}
