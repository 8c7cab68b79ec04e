//! One error enum per operation. `Display` names the step; the source is left to the chain.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::Revision;

/// What a disk or a remote backend said. Shared, because one failed sync fails many writers.
pub type DiskError = Arc<dyn Error + Send + Sync>;

/// Why a read has no answer.
#[derive(Clone, Debug)]
pub enum ReadError {
    /// The revision asked for was compacted away.
    Compacted {
        /// What was asked for.
        asked: Revision,
        /// The oldest revision that can still be read.
        floor: Revision,
    },
    /// The revision asked for does not exist yet.
    Future {
        /// What was asked for.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The values could not be read.
    Backend {
        /// What the disk or the remote backend said.
        source: DiskError,
    },
    /// The value of this key is not on disk as it was written. Other keys can be read.
    Damaged {
        /// The key.
        key: Bytes,
        /// What is wrong with its record.
        source: DiskError,
    },
}

/// Why a transaction or a compaction did not happen, or may not have.
#[derive(Clone, Debug)]
pub enum WriteError {
    /// A key is empty or longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX). Nothing happened.
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// More than [`TXN_OPS_MAX`](crate::TXN_OPS_MAX) compares or operations. Nothing happened.
    TooManyOps {
        /// How many there were.
        ops: usize,
    },
    /// More than [`TXN_BYTES_MAX`](crate::TXN_BYTES_MAX) in one transaction. Nothing happened.
    TooLarge {
        /// How many there were.
        bytes: usize,
    },
    /// A key stands in the operations twice. Nothing happened.
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// Compaction through a revision that does not exist yet. Nothing happened.
    Future {
        /// What was asked for.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The disk failed this write or its sync. It is taken back when the disk works again; only
    /// when the process ends before that, the next opening may find it done.
    Failed {
        /// What the disk said.
        source: DiskError,
    },
    /// The disk has failed and does not work again yet. Nothing happened.
    Refused {
        /// What the disk said last.
        source: DiskError,
    },
    /// A stored value that the write needs cannot be read. Nothing happened.
    Unreadable {
        /// What the disk said.
        source: DiskError,
    },
    /// The thread that writes is gone. Whether this write is durable shows when the store is
    /// opened again.
    Stopped {
        /// Why.
        source: DiskError,
    },
    /// The store could not be asked, or its answer got lost: the write may have happened.
    Unknown {
        /// What the remote backend said.
        source: DiskError,
    },
    /// A value cannot be brought into the form in which the backend keeps it. Nothing happened.
    Value {
        /// Why not.
        source: DiskError,
    },
    /// The store was closed; nothing happened.
    Closed,
}

/// Why a watch did not start or ended. Load again and watch from there.
#[derive(Clone, Debug)]
pub enum WatchError {
    /// Events after the revision asked for (or reached so far) were compacted away.
    Compacted {
        /// The revision the watch wanted to go on from.
        asked: Revision,
        /// The oldest revision a watch can go on from.
        floor: Revision,
    },
    /// The reader was too slow, and the backend gave up keeping its events.
    Lagged {
        /// Everything up to here was delivered.
        through: Revision,
    },
    /// More than [`WATCHES_MAX`](crate::WATCHES_MAX) watches on this store.
    TooMany,
    /// The history could not be read.
    Backend {
        /// What the disk or the remote backend said.
        source: DiskError,
    },
    /// The store was closed.
    Closed,
}

/// Why writes cannot succeed.
#[derive(Clone, Debug)]
pub enum HealthError {
    /// The disk fails writes or syncs at present.
    Failing {
        /// What it said last.
        source: DiskError,
    },
    /// The remote backend does not answer at present.
    Unreachable {
        /// What it said last.
        source: DiskError,
    },
    /// The thread that writes is gone for good, by a fault of the store.
    Stopped {
        /// What it said last.
        source: DiskError,
    },
    /// The store was closed.
    Closed,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compacted { asked, floor } => {
                write!(f, "revision {asked} was compacted, the oldest is {floor}")
            }
            Self::Future { asked, newest } => {
                write!(f, "revision {asked} is yet to come, the newest is {newest}")
            }
            Self::Backend { .. } => f.write_str("read values"),
            Self::Damaged { key, .. } => {
                write!(f, "the stored value of {} cannot be read", key.escape_ascii())
            }
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyLength { bytes } => write!(f, "a key of {bytes} bytes"),
            Self::TooManyOps { ops } => write!(f, "a transaction of {ops} operations"),
            Self::TooLarge { bytes } => write!(f, "a transaction of {bytes} bytes"),
            Self::DuplicateKey { key } => {
                write!(f, "key {} twice in a transaction", key.escape_ascii())
            }
            Self::Future { asked, newest } => {
                write!(f, "revision {asked} is yet to come, the newest is {newest}")
            }
            Self::Failed { .. } => f.write_str("the disk failed the write"),
            Self::Refused { .. } => f.write_str("the disk takes no writes"),
            Self::Unreadable { .. } => f.write_str("a stored value cannot be read"),
            Self::Stopped { .. } => f.write_str("the log stopped, no write is acknowledged"),
            Self::Unknown { .. } => f.write_str("the write may or may not have happened"),
            Self::Value { .. } => f.write_str("a value cannot be stored"),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compacted { asked, floor } => {
                write!(f, "events after revision {asked} were compacted, the oldest is {floor}")
            }
            Self::Lagged { through } => write!(f, "the reader lags behind revision {through}"),
            Self::TooMany => f.write_str("too many watches"),
            Self::Backend { .. } => f.write_str("read history"),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

impl fmt::Display for HealthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing { .. } => f.write_str("the disk takes no writes"),
            Self::Unreachable { .. } => f.write_str("the storage backend does not answer"),
            Self::Stopped { .. } => f.write_str("the commit thread stopped"),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backend { source } | Self::Damaged { source, .. } => Some(source.as_ref()),
            Self::Compacted { .. } | Self::Future { .. } => None,
        }
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed { source }
            | Self::Refused { source }
            | Self::Unreadable { source }
            | Self::Stopped { source }
            | Self::Unknown { source }
            | Self::Value { source } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backend { source } => Some(source.as_ref()),
            Self::Compacted { .. } | Self::Lagged { .. } | Self::TooMany | Self::Closed => None,
        }
    }
}

impl Error for HealthError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failing { source } | Self::Unreachable { source } | Self::Stopped { source } => {
                Some(source.as_ref())
            }
            Self::Closed => None,
        }
    }
}
