//! The contract: the words, and the trait every backend implements.
//!
//! Boxed futures keep the trait object-safe; one allocation beside a disk sync or a network round
//! trip does not show in a profile.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::limits::{KEY_BYTES_MAX, PAGE_ITEMS_MAX, TXN_BYTES_MAX, TXN_OPS_MAX};
use crate::revision::Revision;
use crate::{HealthError, ReadError, WatchError, WriteError};

/// The future a [`Store`] hands out.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A live key: its value, when this incarnation was created, and when it was last written.
///
/// `Debug` shows sizes instead of content: values hold Secrets, and logs must not.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value as it was written.
    pub value: Bytes,
    /// Revision of the write that made the key exist; a delete and a new put give a new one.
    pub created: Revision,
    /// Revision of the newest write.
    pub modified: Revision,
}

/// Compares and operations that happen together or not at all, at one revision.
///
/// A key may stand in `ops` once. Without `ops` a transaction is a check: it commits at the present
/// revision and takes none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Txn {
    /// All of these must hold.
    pub compare: Vec<Compare>,
    /// Done in order, when they do.
    pub ops: Vec<Op>,
}

impl Txn {
    /// Refuses what is over a maximum or writes a key twice. Backends call this first.
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

/// "The newest write of this key was at this revision"; `Revision(0)` says the key is absent.
#[derive(Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key to look at.
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
        /// When the key is deleted again; `None`: never. Each put states it anew.
        lease: Option<Lease>,
    },
    /// Remove the key. When it is absent, nothing happens and no event is sent.
    Delete {
        /// The key to remove.
        key: Bytes,
    },
}

impl Op {
    /// A put without a lease.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// The key this changes.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// Bytes of key and value.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
        }
    }
}

/// A moment, as milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

/// How long a key lives. Says it twice, so that no backend needs a clock: one that keeps time itself
/// (etcd) takes the duration, the others the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// From now on.
    pub ttl: Duration,
    /// From this moment on [`Store::expire`] deletes the key.
    pub expires: Timestamp,
}

impl Lease {
    /// One that begins now.
    #[must_use]
    pub fn new(now: Timestamp, ttl: Duration) -> Self {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { ttl, expires: Timestamp(now.0.saturating_add(millis)) }
    }
}

/// What became of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxnOutcome {
    /// Durable and visible at this revision. A transaction that changed nothing (no ops, or only
    /// deletes of absent keys) answers with the revision it was checked at and takes none.
    Committed(Revision),
    /// A compare did not hold; nothing happened.
    Conflict {
        /// The first key whose compare failed.
        key: Bytes,
        /// The key as the compare saw it, so that a retry needs no further read.
        current: Option<KeyValue>,
    },
}

/// Which keys to read, and when.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// First key.
    pub start: Bytes,
    /// First key no longer in the range; empty means no end. See [`prefix_end`].
    pub end: Bytes,
    /// Most items in the page; 0 means [`PAGE_ITEMS_MAX`], and more is as much.
    pub limit: usize,
    /// The exact revision to read at; `None` reads the newest.
    pub at: Option<Revision>,
}

impl Range {
    /// Most items in the page that answers this.
    #[must_use]
    pub fn items_max(&self) -> usize {
        if self.limit == 0 { PAGE_ITEMS_MAX } else { self.limit.min(PAGE_ITEMS_MAX) }
    }

    /// All keys that start with `prefix`, at the newest revision, one page at a time.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let start = Bytes::copy_from_slice(prefix);
        Self { start, end: prefix_end(prefix), limit: 0, at: None }
    }
}

/// Some of the keys of a range, ordered by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The live keys at `at`.
    pub items: Vec<KeyValue>,
    /// The revision this was read at; ask for the rest at exactly this one.
    pub at: Revision,
    /// Whether the range holds more keys after the last item.
    pub more: bool,
}

/// One change, as a watch sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// The key that changed.
    pub key: Bytes,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// The revision of the change. A key changes at most once in a revision.
    pub revision: Revision,
    /// When this incarnation of the key was created (also for a delete: the deleted one);
    /// equal to `revision` when this event created it.
    pub created: Revision,
}

/// The next stretch of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Whole revisions, in order; within a revision in the order of the transaction. May be empty:
    /// then the batch only says that nothing of interest happened up to `through`.
    pub events: Vec<Event>,
    /// Everything up to and including this revision has been delivered. Grows from batch to batch.
    pub through: Revision,
}

/// An ordered map with one growing revision. The rules stand in the crate's documentation and are
/// checked by the `conformance` suite.
pub trait Store: Send + Sync + 'static {
    /// The newest value of one key, if it exists.
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>>;

    /// One page of a range of keys, at an exact revision or at the newest.
    fn range(&self, ask: Range) -> BoxFuture<'_, Result<Page, ReadError>>;

    /// Gives every live key under `prefix` at one revision to `sink`, in any order, and answers
    /// with that revision. The fast path at start: no page is ever built. On an error the sink may
    /// have seen some of the keys. The sink must not use the store.
    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>>;

    /// Compares and writes, atomically. When the answer is there, it is durable and visible.
    ///
    /// Dropping the future does not take the transaction back. What became of it after an error
    /// stands with the error.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>>;

    /// Events of keys under `prefix` with a revision above `after`. A revision that is yet to come
    /// just waits. The error comes at once when the history is gone.
    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError>;

    /// The newest durable and visible revision that this process knows of. Costs an atomic load.
    fn revision(&self) -> Revision;

    /// A revision at least as new as every write that anyone was told of before the call, also
    /// through another process where the store is shared.
    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        let newest = self.revision();
        Box::pin(async move { Ok(newest) })
    }

    /// Reads at, and watches after, this revision and later ones still work.
    fn floor(&self) -> Revision;

    /// Forgets what is not needed to read at `through` or later, and raises the floor to it. Does
    /// nothing when the floor is there already. A revision that is yet to come is an error.
    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>>;

    /// Deletes the keys whose lease has ended by `now`, in transactions of their own between those of
    /// others, and tells how many. Asked again and again by whoever runs the store. A backend that
    /// ends leases by itself does nothing.
    fn expire(&self, _now: Timestamp) -> BoxFuture<'_, Result<usize, WriteError>> {
        Box::pin(async { Ok(0) })
    }

    /// Whether writes can succeed at present. Reads go on in any case.
    fn health(&self) -> Result<(), HealthError>;
}

/// A watch in progress. Dropping it ends it.
pub trait Watch: Send {
    /// Waits until `through` can grow. Cancel-safe: a dropped future loses no event. An error is
    /// final: start over from a fresh load.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>>;
}

/// The key right after this one: where the next page begins.
#[must_use]
pub fn key_after(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// The first key after all keys that start with `prefix`; empty when there is none.
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
        let (start, end) = (self.start.escape_ascii(), self.end.escape_ascii());
        write!(f, "[{start}, {end}) limit {}", self.limit)?;
        self.at.map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, revision, created) = (self.key.escape_ascii(), self.revision, self.created);
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
