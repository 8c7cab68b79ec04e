//! What the store, its watches and its compaction have in common: the connections, and what is known of the
//! cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keelson_store::{DiskError, ReadError, Revision, WatchPlaces};
use tonic::{Code, Status};

use crate::client::{Client, RANGE, line};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::options::EtcdOptions;
use crate::proto::{Header, RangeRequest, RangeResponse};
use crate::values::OwnValues;

/// Values that are decoded before other tasks of the thread get their turn.
pub(crate) const DECODES_MAX: usize = 64;

/// The key by which servers agree on who compacts, and on how far. kube-apiserver uses the same one
/// in the same way, so that both can stand beside each other.
pub const COMPACT_KEY: &str = "compact_rev_key";

/// What etcd or the connection to it said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Said(pub(crate) String);

/// What the store and its watches have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) keys: Keys,
    pub(crate) values: OwnValues,
    pub(crate) leases: Leases,
    pub(crate) progress_after: Duration,
    /// The newest revision that etcd has named. Only grows.
    pub(crate) newest: tokio::sync::watch::Sender<u64>,
    /// Only grows. Never above `newest`.
    floor: AtomicU64,
    pub(crate) watches: WatchPlaces,
    /// What etcd said last, when that was no answer.
    pub(crate) failed: Mutex<Option<DiskError>>,
}

impl Shared {
    /// What is known of a cluster at first.
    pub(crate) fn new(
        client: Client,
        options: EtcdOptions,
        newest: Revision,
        floor: Revision,
    ) -> Self {
        Self {
            client,
            keys: Keys::new(options.root.into(), options.prefix.into()),
            values: OwnValues::new(options.values),
            leases: Leases::default(),
            progress_after: options.progress_after,
            newest: tokio::sync::watch::Sender::new(newest.0),
            floor: AtomicU64::new(floor.0),
            watches: WatchPlaces::default(),
            failed: Mutex::new(None),
        }
    }

    /// Keys of a range in the cluster, at an exact revision or the newest.
    pub(crate) async fn fetch(
        &self,
        (key, range_end): (Bytes, Bytes),
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
        let ask = RangeRequest { key, range_end, limit, revision: at.map_or(0, number) };
        let answer = self.client.read(RANGE, ask).await;
        let answer: RangeResponse = self.heard(answer).map_err(|error| {
            let asked = at.unwrap_or_default();
            match error.code() {
                Code::OutOfRange if error.message().contains("compacted") => {
                    self.raise_floor(asked.next());
                    ReadError::Compacted { asked, floor: self.floor() }
                }
                Code::OutOfRange => ReadError::Future { asked, newest: self.revision() },
                _ => ReadError::Backend { source: said(&error) },
            }
        })?;
        let read_at = at.unwrap_or(self.saw(answer.header));
        Ok((answer, read_at))
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

    /// Notes the revision that an answer names.
    pub(crate) fn saw(&self, header: Option<Header>) -> Revision {
        let seen = revision(header.unwrap_or_default().revision);
        self.newest.send_if_modified(|newest| raise(newest, seen));
        seen
    }

    /// Notes whether etcd answered; that it refused is an answer too.
    pub(crate) fn heard<T>(&self, answer: Result<T, Status>) -> Result<T, Status> {
        let failed = match &answer {
            Err(error) if !matches!(error.code(), Code::OutOfRange | Code::InvalidArgument) => {
                Some(said(error))
            }
            _ => None,
        };
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        answer
    }
}

fn raise(newest: &mut u64, seen: Revision) -> bool {
    let is_newer = seen.0 > *newest;
    *newest = seen.0.max(*newest);
    is_newer
}

pub(crate) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

pub(crate) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The revision that a value of [`COMPACT_KEY`] states.
pub(crate) fn stated(value: &[u8]) -> Option<Revision> {
    std::str::from_utf8(value).ok()?.parse().ok().map(Revision)
}

pub(crate) fn said(error: &Status) -> DiskError {
    Arc::new(Said(line(error)))
}
