//! State shared by the store, its watches and its compactor: connections, and the newest known
//! revision and floor of the cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keelson_store::{DiskError, ReadError, Revision, WatchSlots};
use tonic::{Code, Status};

use crate::client::{Client, RANGE, error_line};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::options::EtcdOptions;
use crate::proto::{Header, RangeRequest, RangeResponse};

/// Most values passed on before the task yields to others: the receiver may decode them.
pub(crate) const VALUES_MAX: usize = 64;

/// The key by which servers agree which of them compacts, and through which revision.
/// kube-apiserver uses the same key in the same way, so both can share a cluster.
pub const COMPACT_KEY: &str = "compact_rev_key";

/// An error of etcd or of the connection to it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EtcdError(pub(crate) String);

/// State shared by the store and its watches.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) keys: Keys,
    pub(crate) leases: Leases,
    pub(crate) progress_after: Duration,
    /// The newest revision in a response of etcd. Only grows.
    pub(crate) newest: tokio::sync::watch::Sender<u64>,
    /// Only grows. Never above `newest`.
    floor: AtomicU64,
    pub(crate) watches: WatchSlots,
    /// The error of the last call, if it last_error.
    pub(crate) last_error: Mutex<Option<DiskError>>,
}

impl Shared {
    /// Creates the state with what was read when the store was opened.
    pub(crate) fn new(
        client: Client,
        options: EtcdOptions,
        newest: Revision,
        floor: Revision,
    ) -> Self {
        Self {
            client,
            keys: Keys::new(options.root.into(), options.prefix.into()),
            leases: Leases::new(options.lease_reuse),
            progress_after: options.progress_after,
            newest: tokio::sync::watch::Sender::new(newest.0),
            floor: AtomicU64::new(floor.0),
            watches: WatchSlots::default(),
            last_error: Mutex::new(None),
        }
    }

    /// Reads a range of etcd keys, at an exact revision or the newest. Returns the revision too.
    pub(crate) async fn fetch(
        &self,
        key: Bytes,
        range_end: Bytes,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<(RangeResponse, Revision), ReadError> {
        if let Some(asked) = at {
            let floor = self.floor();
            if asked < floor || asked == Revision(0) {
                return Err(ReadError::Compacted { asked, floor });
            }
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let request = RangeRequest { key, range_end, limit, revision: at.map_or(0, number) };
        let response = self.client.read(RANGE, request).await;
        let response: RangeResponse = self.record_outcome(response).map_err(|error| {
            let asked = at.unwrap_or_default();
            match error.code() {
                Code::OutOfRange if error.message().contains("compacted") => {
                    self.raise_floor(asked.next());
                    ReadError::Compacted { asked, floor: self.floor() }
                }
                Code::OutOfRange => ReadError::Future { asked, newest: self.revision() },
                _ => ReadError::Backend { source: etcd_error(&error) },
            }
        })?;
        let read_at = at.unwrap_or(self.observe(response.header));
        Ok((response, read_at))
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision(*self.newest.borrow())
    }

    pub(crate) fn floor(&self) -> Revision {
        Revision(self.floor.load(Ordering::Acquire))
    }

    pub(crate) fn raise_floor(&self, floor: Revision) {
        self.newest.send_if_modified(|newest| raise(newest, floor));
        self.floor.fetch_max(floor.0, Ordering::AcqRel);
    }

    /// Updates `newest` from the header of a response, and returns its revision.
    pub(crate) fn observe(&self, header: Option<Header>) -> Revision {
        let observed = revision(header.unwrap_or_default().revision);
        self.newest.send_if_modified(|newest| raise(newest, observed));
        observed
    }

    /// Records for `health` whether a call succeeded. A request that etcd rejects counts as
    /// success.
    pub(crate) fn record_outcome<T>(&self, response: Result<T, Status>) -> Result<T, Status> {
        let last_error = match &response {
            Err(error) if !matches!(error.code(), Code::OutOfRange | Code::InvalidArgument) => {
                Some(etcd_error(error))
            }
            _ => None,
        };
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = last_error;
        response
    }
}

fn raise(newest: &mut u64, observed: Revision) -> bool {
    let is_newer = observed.0 > *newest;
    *newest = observed.0.max(*newest);
    is_newer
}

pub(crate) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

pub(crate) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// Parses a value of [`COMPACT_KEY`].
pub(crate) fn parse_revision(value: &[u8]) -> Option<Revision> {
    std::str::from_utf8(value).ok()?.parse().ok().map(Revision)
}

pub(crate) fn etcd_error(error: &Status) -> DiskError {
    Arc::new(EtcdError(error_line(error)))
}
