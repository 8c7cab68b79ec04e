//! A transaction that a function decides, on the commit thread: it reads the newest state, with
//! what the same group has written before it, and its own writes.
//!
//! The contract's [`Txn`](crate::Txn) compares revisions of single keys. Who has other conditions,
//! or writes what he has just read, would have to read, decide and compare again until no other
//! write comes in between; here nothing comes in between, and many transactions still share a sync.

use bytes::Bytes;

use super::disk::{Head, Record, RecordId};
use super::group::Group;
use super::index::Version;
use super::shared::key_value;
use crate::{KEY_BYTES_MAX, KeyValue, ReadError, Revision};

/// A transaction changes a key a second time, which no transaction may.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("key {} twice in a transaction", key.escape_ascii())]
pub struct ChangedTwice {
    /// The key.
    pub key: Bytes,
}

/// A transaction in the making. See [`Embedded::decide`](super::Embedded::decide).
pub struct Draft<'d, 'g> {
    group: &'d mut Group<'g>,
    /// The number of records of the group before the first of this transaction.
    begin: usize,
    /// The newest revision before this transaction.
    before: Revision,
}

impl Draft<'_, '_> {
    /// Runs the function on a group, which is unchanged if it fails.
    pub(super) fn run<T, E>(
        group: &mut Group<'_>,
        decide: impl FnOnce(&mut Draft<'_, '_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let begin = group.records.len();
        let before = group.newest;
        let result = decide(&mut Draft { group, begin, before });
        if result.is_err() {
            group.truncate(begin, before);
        }
        result
    }

    /// Returns the newest revision that this transaction sees: that before it, or its own once it
    /// has written.
    #[must_use]
    pub fn newest(&self) -> Revision {
        self.group.newest
    }

    /// Returns the oldest revision that can be read.
    #[must_use]
    pub fn floor(&self) -> Revision {
        self.group.shared.floor()
    }

    /// Returns the keys of a range at a revision, in order: `at` is at most [`Draft::newest`] and
    /// at least [`Draft::floor`]. An empty `end` means no end.
    #[must_use]
    pub fn keys(&self, start: &[u8], end: &[u8], at: Revision, keys_max: usize) -> Vec<Bytes> {
        let mut changed: Vec<_> =
            self.changes(at).filter(|head| is_in(start, end, &head.key)).collect();
        // What was deleted here may be among the first keys of the stored state.
        let stored_max = keys_max.saturating_add(changed.len());
        let stored = self.group.shared.keys_at(start, end, at, stored_max);
        let mut keys: Vec<_> = stored.into_iter().map(|(key, _)| key).collect();
        if changed.is_empty() {
            return keys;
        }
        // The newest change of each key, in the order of keys.
        changed.sort_by(|a, b| a.key.cmp(&b.key).then(b.id.cmp(&a.id)));
        changed.dedup_by(|later, first| later.key == first.key);
        keys.retain(|key| changed.binary_search_by(|head| head.key.cmp(key)).is_err());
        keys.extend(changed.iter().filter(|head| !head.is_delete).map(|head| head.key.clone()));
        keys.sort_unstable();
        keys.truncate(keys_max);
        keys
    }

    /// Returns the revisions of creation and of the newest write of a key; reads no value.
    #[must_use]
    pub fn revisions(&self, key: &[u8]) -> Option<(Revision, Revision)> {
        let version = self.group.current(key)?;
        Some((version.created, version.modified()))
    }

    /// Returns a key at a revision, with the limits of [`Draft::keys`].
    pub fn get(&self, key: &[u8], at: Revision) -> Result<Option<KeyValue>, ReadError> {
        if let Some(position) = self.changed(key, at) {
            let Record { head, value } = &self.group.records[position];
            let found = (!head.is_delete)
                .then(|| key_value(head.key.clone(), value.clone(), Version::of(head)));
            return Ok(found);
        }
        let shared = self.group.shared;
        let Some(version) = shared.version_at(key, at) else { return Ok(None) };
        let value = shared.recent_value(key, version.id())?;
        Ok(Some(key_value(Bytes::copy_from_slice(key), value, version)))
    }

    /// Writes a key. Each key may be written or deleted once.
    ///
    /// # Panics
    ///
    /// If the key is empty or longer than [`KEY_BYTES_MAX`], or the value has 4 GiB.
    pub fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), ChangedTwice> {
        assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        let Ok(value_bytes) = u32::try_from(value.len()) else { panic!("a value of 4 GiB") };
        let id = self.next_id(&key)?;
        let created = self.group.current(&key).map_or(id.revision, |version| version.created);
        let head = Head { id, key, created, is_delete: false, value_bytes, expires: None };
        self.group.push(Record { head, value });
        Ok(())
    }

    /// Deletes a key; returns whether it existed. Each key may be written or deleted once.
    pub fn delete(&mut self, key: Bytes) -> Result<bool, ChangedTwice> {
        let Some(current) = self.group.current(&key) else { return Ok(false) };
        let id = self.next_id(&key)?;
        let created = current.created;
        let head = Head { id, key, created, is_delete: true, value_bytes: 0, expires: None };
        self.group.push(Record { head, value: Bytes::new() });
        Ok(true)
    }

    /// Returns the id of the next change, which is of this key.
    fn next_id(&self, key: &[u8]) -> Result<RecordId, ChangedTwice> {
        if self.group.changed(key).is_some_and(|position| position >= self.begin) {
            return Err(ChangedTwice { key: Bytes::copy_from_slice(key) });
        }
        let index = (self.group.records.len() - self.begin) as u32;
        Ok(RecordId { revision: self.before.next(), index })
    }

    /// Returns the changes of the group up to a revision.
    fn changes(&self, at: Revision) -> impl Iterator<Item = &Head> {
        let heads = self.group.records.iter().map(|record| &record.head);
        heads.take_while(move |head| head.id.revision <= at)
    }

    /// Returns the position of the newest change of a key in the group up to a revision.
    fn changed(&self, key: &[u8], at: Revision) -> Option<usize> {
        let newest = self.group.changed(key)?;
        let is_it = |position: &usize| {
            let head = &self.group.records[*position].head;
            head.id.revision <= at && head.key == *key
        };
        (0..=newest).rev().find(is_it)
    }
}

fn is_in(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    key >= start && (end.is_empty() || key < end)
}
