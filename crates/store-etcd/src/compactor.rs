//! Compaction of a cluster that several servers share: each of them looks once an interval, and the
//! one that is first compacts for all.

use std::sync::Arc;

use bytes::Bytes;
use keelson_store::{Revision, Store, WriteError};

use crate::client::TXN;
use crate::proto::{Compare, PutRequest, RangeRequest, Request, TxnRequest, TxnResponse};
use crate::shared::{COMPACT_KEY, number, revision, stated};
use crate::store::EtcdStore;

/// One server's part in the compaction. Its owner calls [`Compactor::round`] once an interval.
#[derive(Debug)]
pub struct Compactor {
    store: Arc<EtcdStore>,
    /// Writes of the key that this server knows of; whoever adds the next one compacts.
    version: i64,
    /// The cluster's revision in the round before: what is older than an interval.
    before: Option<Revision>,
}

impl Compactor {
    /// Knows nothing yet: the first round only looks.
    #[must_use]
    pub fn new(store: Arc<EtcdStore>) -> Self {
        Self { store, version: 0, before: None }
    }

    /// Compacts through the revision that was the newest in the round before, unless another server
    /// did so since. Answers with how far the history is gone, when that is known.
    pub async fn round(&mut self) -> Result<Option<Revision>, WriteError> {
        let key = Bytes::from_static(COMPACT_KEY.as_bytes());
        let through = self.before;
        let value = through.unwrap_or_default().to_string().into();
        let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let txn = TxnRequest {
            compare: vec![Compare::version(key.clone(), self.version)],
            success: vec![Request::Put(PutRequest { key, value, lease: 0 }).into()],
            failure: vec![Request::Range(read).into()],
        };
        let answer: TxnResponse = self.store.write(TXN, txn).await?;
        self.before = answer.header.map(|header| revision(header.revision));
        if answer.succeeded {
            self.version += 1;
            if let Some(through) = through {
                self.store.compact(through).await?;
            }
            return Ok(through);
        }
        let current = answer.found().next().flatten();
        self.version = current.as_ref().map_or(0, |kv| kv.version);
        let floor = current.as_ref().and_then(|kv| stated(&kv.value));
        // How far another server has compacted can never lie ahead of what was read after it.
        let floor = floor.filter(|floor| number(*floor) > 0 && Some(*floor) <= self.before);
        if let Some(floor) = floor {
            self.store.raise_floor(floor);
        }
        Ok(floor)
    }
}
