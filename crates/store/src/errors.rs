//! One error enum per operation. `Display` names the step; the source is left to the chain.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;

use crate::revision::Revision;

/// What a disk or a remote backend said. Shared, because one failed sync fails many writers.
pub type DiskError = Arc<dyn Error + Send + Sync>;

/// Why a read has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The revision asked for was compacted away.
    #[error("revision {asked} was compacted, the oldest is {floor}")]
    Compacted {
        /// What was asked for.
        asked: Revision,
        /// The oldest revision that can still be read.
        floor: Revision,
    },
    /// The revision asked for does not exist yet.
    #[error("revision {asked} is yet to come, the newest is {newest}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The values could not be read.
    #[error("read values")]
    Backend {
        /// What the disk or the remote backend said.
        source: DiskError,
    },
    /// The value of this key is not on disk as it was written. Other keys can be read.
    #[error("the stored value of {} cannot be read", key.escape_ascii())]
    Damaged {
        /// The key.
        key: Bytes,
        /// What is wrong with its record.
        source: DiskError,
    },
}

/// Why a transaction or a compaction did not happen, or may not have.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// A key is empty or longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX). Nothing happened.
    #[error("a key of {bytes} bytes")]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// More than [`TXN_OPS_MAX`](crate::TXN_OPS_MAX) compares or operations. Nothing happened.
    #[error("a transaction of {ops} operations")]
    TooManyOps {
        /// How many there were.
        ops: usize,
    },
    /// More than [`TXN_BYTES_MAX`](crate::TXN_BYTES_MAX) in one transaction. Nothing happened.
    #[error("a transaction of {bytes} bytes")]
    TooLarge {
        /// How many there were.
        bytes: usize,
    },
    /// A key stands in the operations twice. Nothing happened.
    #[error("key {} twice in a transaction", key.escape_ascii())]
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// Compaction through a revision that does not exist yet. Nothing happened.
    #[error("revision {asked} is yet to come, the newest is {newest}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The disk failed this write or its sync. It is taken back when the disk works again; only
    /// when the process ends before that, the next opening may find it done.
    #[error("the disk failed the write")]
    Failed {
        /// What the disk said.
        source: DiskError,
    },
    /// The disk has failed and does not work again yet. Nothing happened.
    #[error("the disk takes no writes")]
    Refused {
        /// What the disk said last.
        source: DiskError,
    },
    /// A stored value that the write needs cannot be read. Nothing happened.
    #[error("a stored value cannot be read")]
    Unreadable {
        /// What the disk said.
        source: DiskError,
    },
    /// The thread that writes is gone. Whether this write is durable shows when the store is
    /// opened again.
    #[error("the log stopped, no write is acknowledged")]
    Stopped {
        /// Why.
        source: DiskError,
    },
    /// The store could not be asked, or its answer got lost: the write may have happened.
    #[error("the write may or may not have happened")]
    Unknown {
        /// What the remote backend said.
        source: DiskError,
    },
    /// A value cannot be brought into the form in which the backend keeps it. Nothing happened.
    #[error("a value cannot be stored")]
    Value {
        /// Why not.
        source: DiskError,
    },
    /// The store was closed; nothing happened.
    #[error("the store is closed")]
    Closed,
}

/// Why a watch did not start or ended. Load again and watch from there.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// Events after the revision asked for (or reached so far) were compacted away.
    #[error("events after revision {asked} were compacted, the oldest is {floor}")]
    Compacted {
        /// The revision the watch wanted to go on from.
        asked: Revision,
        /// The oldest revision a watch can go on from.
        floor: Revision,
    },
    /// The reader was too slow, and the backend gave up keeping its events.
    #[error("the reader lags behind revision {through}")]
    Lagged {
        /// Everything up to here was delivered.
        through: Revision,
    },
    /// More than [`WATCHES_MAX`](crate::WATCHES_MAX) watches on this store.
    #[error("too many watches")]
    TooMany,
    /// The history could not be read.
    #[error("read history")]
    Backend {
        /// What the disk or the remote backend said.
        source: DiskError,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Why writes cannot succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HealthError {
    /// The disk fails writes or syncs at present.
    #[error("the disk takes no writes")]
    Failing {
        /// What it said last.
        source: DiskError,
    },
    /// The remote backend does not answer at present.
    #[error("the storage backend does not answer")]
    Unreachable {
        /// What it said last.
        source: DiskError,
    },
    /// The thread that writes is gone for good, by a fault of the store.
    #[error("the commit thread stopped")]
    Stopped {
        /// What it said last.
        source: DiskError,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
