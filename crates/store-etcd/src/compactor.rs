//! Compaction of a cluster that several servers share: in each interval the first server compacts.

use std::sync::Arc;

use bytes::Bytes;
use keelson_store::{Revision, Store, WriteError};

use crate::client::TXN;
use crate::proto::{Compare, PutRequest, RangeRequest, Request, TxnRequest, TxnResponse};
use crate::shared::{COMPACT_KEY, number, parse_revision, revision};
use crate::store::EtcdStore;

/// Compacts on behalf of one server. Its owner calls [`Compactor::run_once`] once per interval.
#[derive(Debug)]
pub struct Compactor {
    store: Arc<EtcdStore>,
    /// The version of [`COMPACT_KEY`] that this server last read. The server that writes the next
    /// version compacts.
    version: i64,
    /// The cluster's revision in the previous run: everything up to it is older than an interval.
    previous: Option<Revision>,
}

impl Compactor {
    /// Creates a compactor. Its first run compacts nothing.
    #[must_use]
    pub fn new(store: Arc<EtcdStore>) -> Self {
        Self { store, version: 0, previous: None }
    }

    /// Compacts through the revision that was newest in the previous run, unless another server has
    /// compacted since. Returns the compacted revision, if it is known.
    pub async fn run_once(&mut self) -> Result<Option<Revision>, WriteError> {
        let key = Bytes::from_static(COMPACT_KEY.as_bytes());
        let through = self.previous;
        let value = through.unwrap_or_default().to_string().into();
        let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let txn = TxnRequest {
            compare: vec![Compare::version(key.clone(), self.version)],
            success: vec![Request::Put(PutRequest { key, value, lease: 0 }).into()],
            failure: vec![Request::Range(read).into()],
        };
        let response: TxnResponse = self.store.write(TXN, txn).await?;
        self.previous = response.header.map(|header| revision(header.revision));
        if response.succeeded {
            self.version += 1;
            if let Some(through) = through {
                self.store.compact(through).await?;
            }
            return Ok(through);
        }
        let current = response.kvs().next().flatten();
        self.version = current.as_ref().map_or(0, |kv| kv.version);
        let floor = current.as_ref().and_then(|kv| parse_revision(&kv.value));
        // Ignore an invalid value: another server cannot have compacted beyond the revision just
        // read.
        let floor = floor.filter(|floor| number(*floor) > 0 && Some(*floor) <= self.previous);
        if let Some(floor) = floor {
            self.store.raise_floor(floor);
        }
        Ok(floor)
    }
}
