//! The storage contract: its types, and the trait that every backend implements.
//!
//! Boxed futures keep the trait object-safe. One allocation is negligible beside a disk sync or a
//! network round trip.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::limits::{KEY_BYTES_MAX, PAGE_ITEMS_MAX, TXN_BYTES_MAX, TXN_OPS_MAX};
use crate::revision::Revision;
use crate::{HealthError, ReadError, WatchError, WriteError};

/// The future that a [`Store`] returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A live key with its value and the revisions at which it was created and last written.
///
/// `Debug` shows sizes instead of content, because values hold Secrets and logs must not.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value as it was written.
    pub value: Bytes,
    /// Revision of the write that created the key. A delete and a new put give a new one.
    pub created: Revision,
    /// Revision of the newest write.
    pub modified: Revision,
}

/// Compares and operations that are applied atomically, at one revision.
///
/// A key may occur in `ops` once. A transaction without `ops` is a check: it commits at the current
/// revision and uses no new one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Txn {
    /// All of these must hold.
    pub compare: Vec<Compare>,
    /// Applied in order if all compares hold.
    pub ops: Vec<Op>,
}

impl Txn {
    /// Rejects a transaction that exceeds a maximum or writes a key twice. Backends call this
    /// first.
    pub fn check(&self) -> Result<(), WriteError> {
        let ops = self.compare.len().max(self.ops.len());
        if ops > TXN_OPS_MAX {
            return Err(WriteError::TooManyOps { ops });
        }
        let compared = self.compare.iter().map(|compare| &compare.key);
        for key in compared.chain(self.ops.iter().map(Op::key)) {
            if key.is_empty() || key.len() > KEY_BYTES_MAX {
                return Err(WriteError::KeyLength { bytes: key.len() });
            }
        }
        let bytes = self.ops.iter().map(Op::bytes).sum();
        if bytes > TXN_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes });
        }
        if self.ops.len() < 2 {
            return Ok(());
        }
        let mut keys: Vec<_> = self.ops.iter().map(Op::key).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(WriteError::DuplicateKey { key: pair[0].clone() }),
            None => Ok(()),
        }
    }
}

/// The condition that a key was last written at a revision; `Revision(0)` means that it is absent.
#[derive(Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key to compare.
    pub key: Bytes,
    /// Its expected [`KeyValue::modified`].
    pub modified: Revision,
}

/// One change of one key.
#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    /// Write the value, whether the key exists or not.
    Put {
        /// The key to write.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// When the key expires; `None` means never. Each put replaces the lease of the key.
        lease: Option<Lease>,
    },
    /// Delete the key. If it is absent, nothing happens and no event is sent.
    Delete {
        /// The key to delete.
        key: Bytes,
    },
}

impl Op {
    /// Creates a put without a lease.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Returns the key that this operation changes.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// Returns the size of key and value in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
        }
    }
}

/// A point in time, in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

/// How long a key lives. Holds both duration and end, so that no backend needs a clock: etcd, which
/// measures time itself, uses the duration, the other backends use the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The duration of the lease, counted from the write.
    pub ttl: Duration,
    /// The time from which on [`Store::expire`] deletes the key.
    pub expires: Timestamp,
}

impl Lease {
    /// Creates a lease that begins at `now`.
    #[must_use]
    pub fn new(now: Timestamp, ttl: Duration) -> Self {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { ttl, expires: Timestamp(now.0.saturating_add(millis)) }
    }
}

/// The result of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxnOutcome {
    /// Durable and visible at this revision. A transaction that changed nothing (no ops, or only
    /// deletes of absent keys) returns the revision at which it was checked and uses no new one.
    Committed(Revision),
    /// A compare did not hold; nothing happened.
    Conflict {
        /// The first key whose compare failed.
        key: Bytes,
        /// The key as the compare found it, so that a retry needs no further read.
        current: Option<KeyValue>,
    },
}

/// A range of keys to read, and the revision to read at.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// First key.
    pub start: Bytes,
    /// End of the range (exclusive); empty means no end. See [`prefix_end`].
    pub end: Bytes,
    /// Most items in the page; 0 and values above [`PAGE_ITEMS_MAX`] mean [`PAGE_ITEMS_MAX`].
    pub limit: usize,
    /// The exact revision to read at; `None` reads the newest.
    pub at: Option<Revision>,
}

impl Range {
    /// Returns the most items that a page of this range may have.
    #[must_use]
    pub fn items_max(&self) -> usize {
        if self.limit == 0 { PAGE_ITEMS_MAX } else { self.limit.min(PAGE_ITEMS_MAX) }
    }

    /// Creates the range of all keys that start with `prefix`, at the newest revision.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let start = Bytes::copy_from_slice(prefix);
        Self { start, end: prefix_end(prefix), limit: 0, at: None }
    }
}

/// The first keys of a range, ordered by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The live keys at `at`.
    pub items: Vec<KeyValue>,
    /// The revision this was read at. Read the rest of the range at the same revision.
    pub at: Revision,
    /// Whether the range holds more keys after the last item.
    pub more: bool,
}

/// One change of one key, as a watch delivers it.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// The key that changed.
    pub key: Bytes,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// The revision of the change. A key changes at most once in a revision.
    pub revision: Revision,
    /// The revision at which the key was created (for a delete: the deleted key). Equal to
    /// `revision` if this event created it.
    pub created: Revision,
}

/// The next events of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Events of whole revisions, in order; within a revision in the order of the transaction. If
    /// empty, no key under the prefix has changed up to `through`.
    pub events: Vec<Event>,
    /// All events up to and including this revision have been delivered. Grows with each batch.
    pub through: Revision,
}

/// An ordered map with one growing revision. The crate's documentation states the guarantees; the
/// `conformance` suite checks them.
pub trait Store: Send + Sync + 'static {
    /// Returns the newest value of one key, or `None` if it does not exist.
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>>;

    /// Returns one page of a range of keys, at an exact revision or at the newest.
    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page, ReadError>>;

    /// Passes every live key under `prefix` at one revision to `sink`, in any order, and returns
    /// that revision. Used at start, because it builds no pages. After an error the sink may have
    /// got some of the keys. The sink must not use the store.
    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>>;

    /// Applies a transaction atomically. It is durable and visible when the future resolves.
    ///
    /// Dropping the future does not cancel the transaction. Each variant of the error states
    /// whether the transaction may have been applied.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>>;

    /// Watches keys under `prefix` for events with a revision above `after`. A future revision is
    /// waited for. Fails at once if the history after `after` was compacted.
    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError>;

    /// Returns the newest durable and visible revision known to this process. Costs an atomic load.
    fn revision(&self) -> Revision;

    /// Returns a revision at least as new as every write acknowledged before the call, also by
    /// another process if the store is shared.
    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        let newest = self.revision();
        Box::pin(async move { Ok(newest) })
    }

    /// Returns the oldest revision at which reads, and after which watches, still work.
    fn floor(&self) -> Revision;

    /// Removes what is not needed to read at `through` or later, and raises the floor to `through`.
    /// Does nothing if the floor is there already. A future revision is an error.
    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>>;

    /// Deletes the keys whose lease has expired at `now`, in separate transactions between other
    /// writes, and returns their number. The owner of the store calls this periodically. A backend
    /// that expires leases itself does nothing.
    fn expire(&self, _now: Timestamp) -> BoxFuture<'_, Result<usize, WriteError>> {
        Box::pin(async { Ok(0) })
    }

    /// Whether the backend has the newest value of a key in a form that a write of the same value
    /// would replace, for example encrypted with an old key. Reads the value.
    fn is_stale<'a>(&'a self, _key: &'a [u8]) -> BoxFuture<'a, Result<bool, ReadError>> {
        Box::pin(async { Ok(false) })
    }

    /// Returns the bytes of the file of the store; `None`: it has none, or cannot tell. May ask a
    /// server.
    fn size(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async { None })
    }

    /// Returns an error while writes cannot succeed. Reads work in any case.
    fn health(&self) -> Result<(), HealthError>;
}

/// A watch in progress. Dropping it ends it.
pub trait Watch: Send {
    /// Waits for the next batch. Cancel-safe: a dropped future loses no event. An error is final:
    /// load the keys again and open a new watch.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>>;
}

/// Returns the key right after this one, where the next page begins.
#[must_use]
pub fn key_after(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// Returns the first key after all keys that start with `prefix`; empty if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|byte| *byte != 0xff) else { return Bytes::new() };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, created, modified } = self;
        let key = key.escape_ascii();
        write!(f, "{key} ({} bytes, created {created}, modified {modified})", value.len())
    }
}

impl fmt::Debug for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key.escape_ascii(), self.modified)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value, .. } => {
                write!(f, "put {} ({} bytes)", key.escape_ascii(), value.len())
            }
            Self::Delete { key } => write!(f, "delete {}", key.escape_ascii()),
        }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start.escape_ascii();
        let end = self.end.escape_ascii();
        write!(f, "[{start}, {end}) limit {}", self.limit)?;
        self.at.map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.escape_ascii();
        let revision = self.revision;
        let created = self.created;
        match &self.value {
            Some(value) => {
                write!(f, "{revision}: {key} ({} bytes, created {created})", value.len())
            }
            None => write!(f, "{revision}: {key} deleted (created {created})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_key_of_the_same_length_or_shorter() {
        for (prefix, end) in [("a", "b"), ("pods/", "pods0"), ("", "")] {
            assert_eq!(prefix_end(prefix.as_bytes()), end, "{prefix}");
        }
        assert_eq!(prefix_end(b"a\xff\xff"), "b");
        assert_eq!(prefix_end(b"\xff\xff"), "");
    }

    #[test]
    fn debug_shows_no_value() {
        let kv = KeyValue {
            key: "secrets/a".into(),
            value: "hunter2".into(),
            created: Revision(1),
            modified: Revision(2),
        };
        assert_eq!(format!("{kv:?}"), "secrets/a (7 bytes, created 1, modified 2)");
    }
}
