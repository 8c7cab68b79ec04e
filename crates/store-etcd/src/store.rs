//! [`EtcdStore`]: reads, transactions and compaction. Watches are in module `watch`.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keelson_store::{
    BoxFuture, DiskError, HealthError, KeyValue, Op, PAGE_BYTES_MAX, Page, Range, ReadError,
    Revision, Store, Txn, TxnOutcome, Watch, WatchError, WriteError, key_after,
};
use prost::Message;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::calls::Calls;
use crate::client::{COMPACT, Client, RANGE, STATUS, TXN, is_certificate_error};
use crate::latest::Latest;
use crate::options::{EtcdOptions, OpenError};
use crate::proto::{
    CompactionRequest, Compare, DeleteRangeRequest, HeaderResponse, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};
use crate::shared::{
    COMPACT_KEY, EtcdError, Shared, VALUES_MAX, etcd_error, number, parse_revision, revision,
};
use crate::watch::EtcdWatch;

/// Limit of the first range request; later ones are sized to return about [`FETCH_BYTES`].
const FETCH_ITEMS_FIRST: usize = 256;
/// Largest limit of a range request.
const FETCH_ITEMS_MAX: usize = 32_768;
/// Bytes of values that one response should have. For each request etcd counts all keys up to the
/// end of the range, so that many small ones cost the square of their number.
const FETCH_BYTES: usize = 8 << 20;

/// Longest time in which etcd must say how large its database is.
const SIZE_TIME_MAX: Duration = Duration::from_secs(1);

/// A [`Store`] over an etcd cluster.
#[derive(Debug)]
pub struct EtcdStore {
    shared: Arc<Shared>,
    latest: Arc<Latest>,
    runtime: Handle,
}

impl EtcdStore {
    /// Opens a store. Tries each member once to read the cluster's revision and compacted revision.
    pub async fn open(options: EtcdOptions) -> Result<Arc<Self>, OpenError> {
        let client = Client::new(&options.servers, &options.tls, options.dialer.as_ref())?;
        let key = Bytes::from_static(COMPACT_KEY.as_bytes());
        let request = RangeRequest { key, ..RangeRequest::default() };
        let unreachable = |error: Status| OpenError::Unreachable {
            source: etcd_error(&error),
            is_retryable: !is_certificate_error(&error),
        };
        let response: RangeResponse =
            client.try_each(RANGE, request.clone()).await.map_err(unreachable)?;
        let newest = revision(response.header.unwrap_or_default().revision);
        let mut floor = newest;
        let compacted = response.kvs.first().and_then(|kv| parse_revision(&kv.value));
        if let Some(compacted) = compacted.filter(|at| *at > Revision(0) && *at <= newest) {
            let request = RangeRequest { revision: number(compacted), ..request };
            match client.read::<_, RangeResponse>(RANGE, request).await {
                Ok(_) => floor = compacted,
                Err(error) if error.code() == Code::OutOfRange => {}
                Err(error) => return Err(unreachable(error)),
            }
        }
        let shared = Shared::new(client, options, newest, floor);
        let latest = Arc::default();
        let runtime = Handle::current();
        Ok(Arc::new(Self { shared: Arc::new(shared), latest, runtime }))
    }

    /// Returns the metrics of the calls to etcd.
    pub fn calls(&self) -> Arc<Calls> {
        self.shared.client.calls.clone()
    }

    /// Records that the history before `floor` was compacted.
    pub(crate) fn raise_floor(&self, floor: Revision) {
        self.shared.raise_floor(floor);
    }

    /// Makes a call that writes. It is not retried once it may have been sent.
    pub(crate) async fn write<Q, A>(&self, path: &'static str, request: Q) -> Result<A, WriteError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let response = self.shared.client.write(path, request).await;
        self.shared
            .record_outcome(response)
            .map_err(|error| WriteError::Unknown { source: etcd_error(&error) })
    }

    /// Passes the keys of a range to `take`, in order and all at one revision, until it returns
    /// `false`. Returns that revision.
    async fn scan(
        &self,
        range: Option<(Bytes, Bytes)>,
        mut at: Option<Revision>,
        mut limit: usize,
        mut take: impl FnMut(KeyValue) -> bool,
    ) -> Result<Revision, ReadError> {
        // An empty range still needs a request, to check that the revision can be read.
        let (mut first, last) =
            range.unwrap_or_else(|| (self.shared.keys.progress_key(), Bytes::new()));
        loop {
            let (response, read_at) = self.shared.fetch(first, last.clone(), limit, at).await?;
            at = Some(read_at);
            let bytes: usize = response.kvs.iter().map(|kv| kv.value.len()).sum();
            let average = bytes / response.kvs.len().max(1);
            let after = response.kvs.last().map(|kv| key_after(&kv.key));
            for (number, kv) in response.kvs.into_iter().enumerate() {
                if number % VALUES_MAX == VALUES_MAX - 1 {
                    tokio::task::yield_now().await;
                }
                if let Some(key) = self.shared.keys.to_store(&kv.key)
                    && !take(to_key_value(key, kv))
                {
                    return Ok(read_at);
                }
            }
            let Some(after) = after.filter(|_| response.more) else { return Ok(read_at) };
            first = after;
            limit = (FETCH_BYTES / average.max(1)).clamp(1, FETCH_ITEMS_MAX);
        }
    }

    async fn page(&self, query: Range) -> Result<Page, ReadError> {
        let limit = query.items_max();
        let range = self.shared.keys.range(&query.start, &query.end);
        let mut items = Vec::new();
        let mut more = false;
        let mut bytes = 0;
        let take = |kv: KeyValue| {
            more = items.len() == limit || bytes >= PAGE_BYTES_MAX;
            if !more {
                bytes += kv.value.len();
                items.push(kv);
            }
            !more
        };
        // Fetching one key more than the page holds shows whether there are more.
        let at = self.scan(range, query.at, FETCH_ITEMS_FIRST.min(limit + 1), take).await?;
        Ok(Page { items, at, more })
    }

    async fn commit(&self, txn: Txn) -> Result<TxnOutcome, WriteError> {
        txn.check()?;
        let keys = &self.shared.keys;
        let compare = txn
            .compare
            .iter()
            .map(|compare| Compare::modified(keys.to_etcd(&compare.key), number(compare.modified)));
        let current = txn.compare.iter().map(|compare| {
            let key = keys.to_etcd(&compare.key);
            Request::Range(RangeRequest { key, ..RangeRequest::default() }).into()
        });
        let lease = self.acquire_lease(&txn).await?;
        let request = TxnRequest {
            compare: compare.collect(),
            success: txn.ops.iter().map(|op| self.operation(op, lease)).collect(),
            failure: current.collect(),
        };
        let response = self.shared.client.write(TXN, request).await;
        if lease != 0
            && response.as_ref().is_err_and(|error: &Status| error.code() == Code::NotFound)
        {
            // The cluster does not have the lease, for example after a restore. The next write gets
            // another.
            self.shared.leases.remove(lease);
        }
        let response: TxnResponse =
            self.shared.record_outcome(response).map_err(|error| txn_error(&txn, &error))?;
        let at = self.shared.observe(response.header);
        if response.succeeded {
            return Ok(TxnOutcome::Committed(at));
        }
        for (compare, found) in txn.compare.into_iter().zip(response.kvs()) {
            let current = found.map(|kv| to_key_value(compare.key.clone(), kv));
            if current.as_ref().map_or(Revision(0), |kv| kv.modified) != compare.modified {
                return Ok(TxnOutcome::Conflict { key: compare.key, current });
            }
        }
        let source = Arc::new(EtcdError("a conflict that no compare explains".into()));
        Err(WriteError::Unknown { source })
    }

    /// Returns the lease for the puts of a transaction that need one; 0 if none does.
    async fn acquire_lease(&self, txn: &Txn) -> Result<i64, WriteError> {
        let ttls = txn.ops.iter().filter_map(|op| match op {
            Op::Put { lease, .. } => lease.map(|lease| lease.ttl),
            Op::Delete { .. } => None,
        });
        let Some(ttl) = ttls.max() else { return Ok(0) };
        let client = &self.shared.client;
        let lease = self.shared.leases.get(client, ttl).await;
        lease.map_err(|error| WriteError::Refused { source: etcd_error(&error) })
    }

    /// Converts an operation. `lease` is used by puts that have a lease.
    fn operation(&self, op: &Op, lease: i64) -> RequestOp {
        let key = self.shared.keys.to_etcd(op.key());
        let request = match op {
            Op::Put { value, lease: requested, .. } => {
                let lease = if requested.is_some() { lease } else { 0 };
                Request::Put(PutRequest { key, value: value.clone(), lease })
            }
            Op::Delete { .. } => Request::Delete(DeleteRangeRequest { key }),
        };
        request.into()
    }
}

/// Converts a key and value of etcd. `key` is its store key.
fn to_key_value(key: Bytes, kv: crate::proto::KeyValue) -> KeyValue {
    let created = revision(kv.create_revision);
    let modified = revision(kv.mod_revision);
    KeyValue { key, value: kv.value, created, modified }
}

impl Store for EtcdStore {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>> {
        Box::pin(async move {
            let cluster_key = self.shared.keys.to_etcd(key);
            let (response, _) = self.shared.fetch(cluster_key, Bytes::new(), 1, None).await?;
            let found = response.kvs.into_iter().next();
            Ok(found.map(|kv| to_key_value(Bytes::copy_from_slice(key), kv)))
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(self.page(range))
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
        Box::pin(self.scan(range, at, FETCH_ITEMS_FIRST, take))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>> {
        Box::pin(self.commit(txn))
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        let floor = self.floor();
        if after < floor {
            return Err(WatchError::Compacted { asked: after, floor });
        }
        let slot = self.shared.watches.acquire()?;
        Ok(Box::new(EtcdWatch::start(&self.runtime, &self.shared, prefix, after, slot)))
    }

    fn revision(&self) -> Revision {
        self.shared.revision()
    }

    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        Box::pin(async move {
            let response = self.latest.read(&self.runtime, &self.shared);
            response.await.unwrap_or_else(|_| Err(ReadError::Backend { source: ended() }))
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
            let request = CompactionRequest { revision: number(through) };
            let response = self.shared.client.write(COMPACT, request).await;
            match self.shared.record_outcome::<HeaderResponse>(response) {
                Ok(_) => {}
                Err(error) if error.code() == Code::OutOfRange => {
                    // Either a future revision, or already compacted by another server.
                    if !error.message().contains("compacted") {
                        let newest = self.revision();
                        return Err(WriteError::Future { asked: through, newest });
                    }
                }
                Err(error) => return Err(WriteError::Unknown { source: etcd_error(&error) }),
            }
            self.shared.raise_floor(through);
            Ok(())
        })
    }

    fn size(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async {
            let asked = self.shared.client.read(STATUS, StatusRequest {});
            let status: Result<StatusResponse, _> = timeout(SIZE_TIME_MAX, asked).await.ok()?;
            u64::try_from(status.ok()?.db_size).ok()
        })
    }

    fn health(&self) -> Result<(), HealthError> {
        let last_error =
            self.shared.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last_error.map_or(Ok(()), |source| Err(HealthError::Unreachable { source }))
    }
}

fn ended() -> DiskError {
    Arc::new(EtcdError("the store was dropped".into()))
}

/// Maps the error of a transaction. Unless etcd rejected it, it may have been applied.
fn txn_error(txn: &Txn, error: &Status) -> WriteError {
    if error.code() == Code::InvalidArgument {
        if error.message().contains("too many operations") {
            return WriteError::TooManyOps { ops: txn.compare.len().max(txn.ops.len()) };
        }
        if error.message().contains("too large") {
            return WriteError::TooLarge { bytes: txn.ops.iter().map(Op::bytes).sum() };
        }
    }
    let source = etcd_error(error);
    match error.code() {
        // The cluster does not have the lease, so nothing was applied.
        Code::NotFound => WriteError::Refused { source },
        _ => WriteError::Unknown { source },
    }
}
