//! One error enum per operation. `Display` names the failed step; `source` has the cause.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;

use crate::revision::Revision;

/// The error of a disk or a remote backend. Shared, because one failed sync fails many writers.
pub type DiskError = Arc<dyn Error + Send + Sync>;

/// Why a read failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The requested revision was compacted.
    #[error("revision {asked} was compacted, the oldest is {floor}")]
    Compacted {
        /// The requested revision.
        asked: Revision,
        /// The oldest revision that can still be read.
        floor: Revision,
    },
    /// The requested revision does not exist yet.
    #[error("revision {asked} is yet to come, the newest is {newest}")]
    Future {
        /// The requested revision.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The values could not be read.
    #[error("read values")]
    Backend {
        /// The error of the disk or the remote backend.
        source: DiskError,
    },
    /// The stored value of this key is damaged. Other keys can be read.
    #[error("the stored value of {} cannot be read", key.escape_ascii())]
    Damaged {
        /// The key.
        key: Bytes,
        /// What is wrong with its record.
        source: DiskError,
    },
}

/// Why a transaction or a compaction failed. Each variant states whether it may have been applied.
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
    /// A key occurs in the operations twice. Nothing happened.
    #[error("key {} twice in a transaction", key.escape_ascii())]
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// Compaction through a revision that does not exist yet. Nothing happened.
    #[error("revision {asked} is yet to come, the newest is {newest}")]
    Future {
        /// The requested revision.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The disk failed this write or its sync. The write is undone when the disk works again. If
    /// the process ends before that, the write may be applied after the next start.
    #[error("the disk failed the write")]
    Failed {
        /// The error of the disk.
        source: DiskError,
    },
    /// The disk has failed and does not work again yet. Nothing happened.
    #[error("the disk takes no writes")]
    Refused {
        /// The last error of the disk.
        source: DiskError,
    },
    /// A stored value that the write needs cannot be read. Nothing happened.
    #[error("a stored value cannot be read")]
    Unreadable {
        /// The error of the disk.
        source: DiskError,
    },
    /// The commit thread has stopped. Whether this write is durable is known only when the store
    /// is opened again.
    #[error("the log stopped, no write is acknowledged")]
    Stopped {
        /// Why.
        source: DiskError,
    },
    /// The request to the backend or its response got lost: the write may have been applied.
    #[error("the write may or may not have happened")]
    Unknown {
        /// The error of the remote backend.
        source: DiskError,
    },
    /// A value cannot be converted to the backend's storage format. Nothing happened.
    #[error("a value cannot be stored")]
    Value {
        /// Why not.
        source: DiskError,
    },
    /// The store was closed; nothing happened.
    #[error("the store is closed")]
    Closed,
}

/// Why a watch could not start, or ended. Load the keys again and watch from that revision.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// Events after the requested (or last delivered) revision were compacted.
    #[error("events after revision {asked} were compacted, the oldest is {floor}")]
    Compacted {
        /// The revision after which events were requested.
        asked: Revision,
        /// The oldest revision after which a watch can start.
        floor: Revision,
    },
    /// The reader was too slow, and the backend dropped its events.
    #[error("the reader lags behind revision {through}")]
    Lagged {
        /// All events up to this revision were delivered.
        through: Revision,
    },
    /// Values that could not be decoded can be now: see
    /// [`Transformed::reread`](crate::Transformed::reread).
    #[error("values can be decoded that could not be before")]
    Reread,
    /// More than [`WATCHES_MAX`](crate::WATCHES_MAX) watches on this store.
    #[error("too many watches")]
    TooMany,
    /// The history could not be read.
    #[error("read history")]
    Backend {
        /// The error of the disk or the remote backend.
        source: DiskError,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Why writes cannot succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HealthError {
    /// The disk currently fails writes or syncs.
    #[error("the disk takes no writes")]
    Failing {
        /// The last error.
        source: DiskError,
    },
    /// The remote backend currently does not respond.
    #[error("the storage backend does not answer")]
    Unreachable {
        /// The last error.
        source: DiskError,
    },
    /// The commit thread has stopped for good, because of a bug in the store.
    #[error("the commit thread stopped")]
    Stopped {
        /// The last error.
        source: DiskError,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
