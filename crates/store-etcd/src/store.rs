//! [`EtcdStore`]: reads, transactions and compaction. Watches are in `watch`.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use keelson_store::{
    BoxFuture, DiskError, HealthError, KeyValue, Op, PAGE_BYTES_MAX, Page, Range, ReadError,
    Revision, Store, Txn, TxnOutcome, Watch, WatchError, WriteError, key_after,
};
use prost::Message;
use tokio::runtime::Handle;
use tonic::{Code, Status};

use crate::client::{COMPACT, Client, RANGE, TXN, is_distrust};
use crate::latest::Latest;
use crate::options::{EtcdOptions, OpenError};
use crate::proto::{
    CompactionRequest, Compare, DeleteRangeRequest, HeaderResponse, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, TxnRequest, TxnResponse,
};
use crate::shared::{COMPACT_KEY, DECODES_MAX, Said, Shared, number, revision, said, stated};
use crate::watch::EtcdWatch;

/// Keys asked for at first; then as many as are likely to hold [`FETCH_BYTES`].
const FETCH_ITEMS_FIRST: usize = 256;
/// Most keys asked for at once.
const FETCH_ITEMS_MAX: usize = 4096;
/// Bytes of values that one answer should hold.
const FETCH_BYTES: usize = 4 << 20;

/// The contract over an etcd cluster.
#[derive(Debug)]
pub struct EtcdStore {
    shared: Arc<Shared>,
    latest: Arc<Latest>,
    runtime: Handle,
}

impl EtcdStore {
    /// Asks each member once for the cluster's revision and how far its history reaches back.
    pub async fn open(options: EtcdOptions) -> Result<Arc<Self>, OpenError> {
        let client = Client::new(&options.servers, &options.tls)?;
        let key = Bytes::from_static(COMPACT_KEY.as_bytes());
        let ask = RangeRequest { key, ..RangeRequest::default() };
        let unreachable = |error: Status| OpenError::Unreachable {
            source: said(&error),
            may_pass: !is_distrust(&error),
        };
        let answer: RangeResponse = client.first(RANGE, ask.clone()).await.map_err(unreachable)?;
        let newest = revision(answer.header.unwrap_or_default().revision);
        let mut floor = newest;
        let compacted = answer.kvs.first().and_then(|kv| stated(&kv.value));
        if let Some(compacted) = compacted.filter(|at| *at > Revision(0) && *at <= newest) {
            let ask = RangeRequest { revision: number(compacted), ..ask };
            match client.read::<_, RangeResponse>(RANGE, ask).await {
                Ok(_) => floor = compacted,
                Err(error) if error.code() == Code::OutOfRange => {}
                Err(error) => return Err(unreachable(error)),
            }
        }
        let shared = Shared::new(client, options, newest, floor);
        let (latest, runtime) = (Arc::default(), Handle::current());
        Ok(Arc::new(Self { shared: Arc::new(shared), latest, runtime }))
    }

    /// Notes that the history before `floor` is gone.
    pub(crate) fn raise_floor(&self, floor: Revision) {
        self.shared.raise_floor(floor);
    }

    /// A call that changes something; not repeated once it may have been sent.
    pub(crate) async fn write<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, WriteError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let answer = self.shared.client.write(path, ask).await;
        self.shared.heard(answer).map_err(|error| WriteError::Unknown { source: said(&error) })
    }

    /// Gives the keys of a range to `take`, in order and all at one revision, until it says no.
    /// Answers with that revision.
    async fn walk(
        &self,
        range: Option<(Bytes, Bytes)>,
        mut at: Option<Revision>,
        mut limit: usize,
        mut take: impl FnMut(KeyValue) -> bool,
    ) -> Result<Revision, ReadError> {
        // An empty range still has to say whether it can be read at that revision.
        let (mut first, last) = range.unwrap_or_else(|| (self.shared.keys.marker(), Bytes::new()));
        loop {
            let (answer, read_at) = self.shared.fetch((first, last.clone()), limit, at).await?;
            at = Some(read_at);
            let bytes: usize = answer.kvs.iter().map(|kv| kv.value.len()).sum();
            let average = bytes / answer.kvs.len().max(1);
            let after = answer.kvs.last().map(|kv| key_after(&kv.key));
            for (number, kv) in answer.kvs.into_iter().enumerate() {
                if number % DECODES_MAX == DECODES_MAX - 1 {
                    tokio::task::yield_now().await;
                }
                if let Some(key) = self.shared.keys.to_contract(&kv.key)
                    && !take(self.known(key, kv))
                {
                    return Ok(read_at);
                }
            }
            let Some(after) = after.filter(|_| answer.more) else { return Ok(read_at) };
            first = after;
            limit = (FETCH_BYTES / average.max(1)).clamp(1, FETCH_ITEMS_MAX);
        }
    }

    async fn page(&self, ask: Range) -> Result<Page, ReadError> {
        let limit = ask.items_max();
        let range = self.shared.keys.range(&ask.start, &ask.end);
        let (mut items, mut more, mut bytes) = (Vec::new(), false, 0);
        let take = |kv: KeyValue| {
            more = items.len() == limit || bytes >= PAGE_BYTES_MAX;
            if !more {
                bytes += kv.value.len();
                items.push(kv);
            }
            !more
        };
        // One more than the page holds says whether there is more.
        let at = self.walk(range, ask.at, FETCH_ITEMS_FIRST.min(limit + 1), take).await?;
        Ok(Page { items, at, more })
    }

    async fn commit(&self, txn: Txn) -> Result<TxnOutcome, WriteError> {
        txn.check()?;
        let keys = &self.shared.keys;
        let compare = txn.compare.iter().map(|compare| {
            Compare::modified(keys.to_cluster(&compare.key), number(compare.modified))
        });
        let current = txn.compare.iter().map(|compare| {
            let key = keys.to_cluster(&compare.key);
            Request::Range(RangeRequest { key, ..RangeRequest::default() }).into()
        });
        let lease = self.lease_of(&txn).await?;
        let success: Result<_, _> = txn.ops.iter().map(|op| self.operation(op, lease)).collect();
        let ask = TxnRequest {
            compare: compare.collect(),
            success: success.map_err(|source| WriteError::Value { source })?,
            failure: current.collect(),
        };
        let answer = self.shared.client.write(TXN, ask).await;
        if lease != 0 && answer.as_ref().is_err_and(|error: &Status| error.code() == Code::NotFound)
        {
            // The lease is gone, with a cluster that was restored for example; the next write gets another.
            self.shared.leases.forget(lease);
        }
        let answer: TxnResponse =
            self.shared.heard(answer).map_err(|error| refused(&txn, &error))?;
        let at = self.shared.saw(answer.header);
        if answer.succeeded {
            return Ok(TxnOutcome::Committed(at));
        }
        for (compare, found) in txn.compare.into_iter().zip(answer.found()) {
            let current = found.map(|kv| self.known(compare.key.clone(), kv));
            if current.as_ref().map_or(Revision(0), |kv| kv.modified) != compare.modified {
                return Ok(TxnOutcome::Conflict { key: compare.key, current });
            }
        }
        let source = Arc::new(Said("a conflict that no compare explains".into()));
        Err(WriteError::Unknown { source })
    }

    /// The lease for the puts of a transaction that ask for one; 0 when none does.
    async fn lease_of(&self, txn: &Txn) -> Result<i64, WriteError> {
        let ttls = txn.ops.iter().filter_map(|op| match op {
            Op::Put { lease, .. } => lease.map(|lease| lease.ttl),
            Op::Delete { .. } => None,
        });
        let Some(ttl) = ttls.max() else { return Ok(0) };
        let client = &self.shared.client;
        let lease = self.shared.leases.get(client, ttl).await;
        lease.map_err(|error| WriteError::Refused { source: said(&error) })
    }

    /// `lease` is for a put that asks for one.
    fn operation(&self, op: &Op, lease: i64) -> Result<RequestOp, DiskError> {
        let key = self.shared.keys.to_cluster(op.key());
        let request = match op {
            Op::Put { value, lease: asked, .. } => {
                let value = self.shared.values.encode(op.key(), value)?;
                let lease = if asked.is_some() { lease } else { 0 };
                Request::Put(PutRequest { key, value, lease })
            }
            Op::Delete { .. } => Request::Delete(DeleteRangeRequest { key }),
        };
        Ok(request.into())
    }

    /// A key and value as the contract has them, under the contract's key.
    fn known(&self, key: Bytes, kv: crate::proto::KeyValue) -> KeyValue {
        let (created, modified) = (revision(kv.create_revision), revision(kv.mod_revision));
        let value = self.shared.values.decode(&key, kv.value);
        KeyValue { key, value, created, modified }
    }
}

impl Store for EtcdStore {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>> {
        Box::pin(async move {
            let cluster_key = self.shared.keys.to_cluster(key);
            let (answer, _) = self.shared.fetch((cluster_key, Bytes::new()), 1, None).await?;
            let found = answer.kvs.into_iter().next();
            Ok(found.map(|kv| self.known(Bytes::copy_from_slice(key), kv)))
        })
    }

    fn range(&self, ask: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(self.page(ask))
    }

    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>> {
        let Range { start, end, .. } = Range::prefix(prefix);
        let range = self.shared.keys.range(&start, &end);
        let take = |kv| {
            sink(kv);
            true
        };
        Box::pin(self.walk(range, at, FETCH_ITEMS_FIRST, take))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>> {
        Box::pin(self.commit(txn))
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        let floor = self.floor();
        if after < floor {
            return Err(WatchError::Compacted { asked: after, floor });
        }
        let place = self.shared.watches.take()?;
        Ok(Box::new(EtcdWatch::start(&self.runtime, &self.shared, prefix, after, place)))
    }

    fn revision(&self) -> Revision {
        self.shared.revision()
    }

    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        Box::pin(async move {
            let answer = self.latest.ask(&self.runtime, &self.shared);
            answer.await.unwrap_or_else(|_| Err(ReadError::Backend { source: ended() }))
        })
    }

    fn floor(&self) -> Revision {
        self.shared.floor()
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            if through <= self.floor() {
                return Ok(());
            }
            let ask = CompactionRequest { revision: number(through) };
            let answer = self.shared.client.write(COMPACT, ask).await;
            match self.shared.heard::<HeaderResponse>(answer) {
                Ok(_) => {}
                Err(error) if error.code() == Code::OutOfRange => {
                    // Too far ahead, or done already by somebody else.
                    if !error.message().contains("compacted") {
                        let newest = self.revision();
                        return Err(WriteError::Future { asked: through, newest });
                    }
                }
                Err(error) => return Err(WriteError::Unknown { source: said(&error) }),
            }
            self.shared.raise_floor(through);
            Ok(())
        })
    }

    fn health(&self) -> Result<(), HealthError> {
        let failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failed.map_or(Ok(()), |source| Err(HealthError::Unreachable { source }))
    }
}

fn ended() -> DiskError {
    Arc::new(Said("the store was dropped".into()))
}

/// What a failed transaction means: etcd's own maximums are those of the contract; what is left may
/// have happened.
fn refused(txn: &Txn, error: &Status) -> WriteError {
    if error.code() == Code::InvalidArgument {
        if error.message().contains("too many operations") {
            return WriteError::TooManyOps { ops: txn.compare.len().max(txn.ops.len()) };
        }
        if error.message().contains("too large") {
            return WriteError::TooLarge { bytes: txn.ops.iter().map(Op::bytes).sum() };
        }
    }
    let source = said(error);
    match error.code() {
        // The lease is not known to the cluster, so that nothing was done.
        Code::NotFound => WriteError::Refused { source },
        _ => WriteError::Unknown { source },
    }
}
