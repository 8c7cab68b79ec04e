//! [`Known`]: what a loop made of stored objects. Of thousands, only those that have changed are
//! read again.

use keelson_meta::Str;
use keelson_records::Entry;
use keelson_registry::{InformerEvent, Snapshot};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was made of the objects of a kind, by their keys, at their revisions.
#[derive(Debug)]
pub struct Known<T>(Mutex<HashMap<Str, (u64, T)>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known(Mutex::default())
    }
}

impl<T: Clone> Known<T> {
    fn all(&self) -> MutexGuard<'_, HashMap<Str, (u64, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets objects that are gone. `event` is one of their kind.
    pub fn observe(&self, event: &InformerEvent) {
        match event {
            InformerEvent::Deleted { entry, .. } => drop(self.all().remove(entry.key())),
            InformerEvent::Listed(..) => self.all().clear(),
            InformerEvent::Put { .. } | InformerEvent::Withdrawn(_) => {}
        }
    }

    /// Returns what was made of an object, or makes it.
    pub fn get<E>(&self, entry: &Entry, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let revision = entry.modified().0;
        if let Some((known, made)) = self.all().get(entry.key())
            && *known == revision
        {
            return Ok(made.clone());
        }
        let made = make()?;
        self.all().insert(entry.key().into(), (revision, made.clone()));
        Ok(made)
    }

    /// Forgets objects that were deleted while something was made of them. `stored` are all of the
    /// kind; costs nothing while no more are known.
    pub fn prune(&self, stored: &Snapshot) {
        let mut all = self.all();
        if all.len() > stored.len() {
            let keys: HashSet<&str> = stored.range("", "").map(Entry::key).collect();
            all.retain(|key, _| keys.contains(key.as_str()));
        }
    }
}
