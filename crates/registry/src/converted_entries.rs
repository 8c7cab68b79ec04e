//! [`ConvertedEntries`]: a cache of objects that conversion webhooks have converted.

use keelson_meta::{Failure, Str};
use keelson_records::Entry;
use keelson_store::Revision;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;

/// Maximum size of the converted objects that are kept for one kind.
const CONVERTED_BYTES_MAX: usize = 16 << 20;

pub(crate) type Shared = Arc<OnceCell<Result<Entry, Failure>>>;
type EntryKey = (Str, Box<str>, Revision);

/// Converted objects of one kind, for lists and watches. The cache is emptied when it is full.
#[derive(Default)]
pub(crate) struct ConvertedEntries(Mutex<Known>);

#[derive(Default)]
struct Known {
    entries: HashMap<EntryKey, Shared>,
    bytes: usize,
}

impl fmt::Debug for ConvertedEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} converted entries", self.known().entries.len())
    }
}

impl ConvertedEntries {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(version: &Str, entry: &Entry) -> EntryKey {
        (version.clone(), entry.key().into(), entry.modified())
    }

    pub(crate) fn get(&self, version: &Str, entry: &Entry) -> Option<Entry> {
        let shared = self.known().entries.get(&Self::key(version, entry))?.clone();
        shared.get()?.as_ref().ok().cloned()
    }

    pub(crate) fn insert(&self, version: &Str, entry: Entry) {
        let key = Self::key(version, &entry);
        let mut known = self.known();
        known.count(entry.size());
        known.entries.insert(key, Arc::new(OnceCell::new_with(Some(Ok(entry)))));
    }

    /// Returns the cell of an entry, so that concurrent callers wait for one conversion.
    pub(crate) fn shared(&self, version: &Str, entry: &Entry) -> Shared {
        let mut known = self.known();
        let key = Self::key(version, entry);
        if let Some(shared) = known.entries.get(&key) {
            return shared.clone();
        }
        known.count(entry.key().len());
        known.entries.entry(key).or_default().clone()
    }

    /// Counts the size of an object that was converted in a cell of [`ConvertedEntries::shared`]. A
    /// webhook may make a small object large.
    pub(crate) fn count(&self, converted: &Result<Entry, Failure>) {
        if let Ok(entry) = converted {
            self.known().count(entry.size());
        }
    }

    pub(crate) fn forget(&self, version: &Str, entry: &Entry) {
        self.known().entries.remove(&Self::key(version, entry));
    }
}

impl Known {
    fn count(&mut self, bytes: usize) {
        if self.bytes + bytes > CONVERTED_BYTES_MAX {
            *self = Known::default();
        }
        self.bytes += bytes;
    }
}
