//! `etcdserverpb.KV`.

use std::sync::Arc;

use keelson_store::{Page, Store};
use prost::Message;
use tokio::sync::OwnedSemaphorePermit;

use crate::engine::Engine;
use crate::error::EtcdError;
use crate::kv::{Interval, check_delete, check_put, check_range, check_txn, keys_needed, select};
use crate::limits::RANGE_BYTES_MAX;
use crate::proto::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, HeaderResponse, KeyValue,
    PutRequest, PutResponse, RangeRequest, RangeResponse, Request, RequestOp, ResponseHeader,
    TxnRequest, TxnResponse,
};
use crate::record::{decode_kv, to_etcd};

impl Engine {
    pub(crate) async fn range(
        self: Arc<Self>,
        req: RangeRequest,
    ) -> Result<RangeResponse, EtcdError> {
        Ok(self.range_with_permit(req).await?.0)
    }

    /// Also returns the permit of a long range. It bounds the responses that are in memory, so it
    /// is held until there is another bound for this one.
    pub(crate) async fn range_with_permit(
        self: Arc<Self>,
        req: RangeRequest,
    ) -> Result<(RangeResponse, Option<OwnedSemaphorePermit>), EtcdError> {
        check_range(&req)?;
        let interval = Interval::new(&req.key, &req.range_end);
        let at = self.revision_to_read(req.revision)?;
        if req.count_only {
            let (count, at) = self.store.count(interval.range(0, at)).await?;
            let mut response = select(&req, Vec::new(), count);
            response.header = Some(self.header_for(&req, to_etcd(at)));
            return Ok((response, None));
        }
        let needed = keys_needed(&req).unwrap_or(usize::MAX);
        let first = self.store.range(interval.range(needed, at)).await?;
        let revision = first.at;
        let is_whole = !first.more;
        let (kvs, permit) = self.read_pages(&interval, first, needed).await?;
        let count = match is_whole {
            true => kvs.len() as u64,
            false => self.store.count(interval.range(0, Some(revision))).await?.0,
        };
        let mut response = select(&req, kvs, count);
        response.header = Some(self.header_for(&req, to_etcd(revision)));
        Ok((response, permit))
    }

    /// The header of a read of the past has the newest revision, as in etcd.
    fn header_for(&self, req: &RangeRequest, read_at: i64) -> ResponseHeader {
        self.header(if req.revision > 0 { self.revision() } else { read_at })
    }

    /// Reads on after the first page, until there are as many keys as needed. Long ranges get a
    /// permit.
    async fn read_pages(
        &self,
        interval: &Interval,
        first: Page,
        needed: usize,
    ) -> Result<(Vec<KeyValue>, Option<OwnedSemaphorePermit>), EtcdError> {
        let at = first.at;
        let mut more = first.more;
        let mut bytes = 0;
        let mut kvs = Vec::with_capacity(first.items.len());
        let mut add = |items: Vec<keelson_store::KeyValue>, kvs: &mut Vec<KeyValue>| {
            for kv in items {
                bytes += kv.key.len() + kv.value.len();
                kvs.push(decode_kv(kv)?);
            }
            if bytes > RANGE_BYTES_MAX {
                return Err(EtcdError::ResponseTooLarge(RANGE_BYTES_MAX));
            }
            Ok(())
        };
        add(first.items, &mut kvs)?;
        if !more || kvs.len() >= needed {
            return Ok((kvs, None));
        }
        let permit =
            Arc::clone(&self.long_ranges).acquire_owned().await.map_err(|_| EtcdError::Stopped)?;
        while more && kvs.len() < needed {
            let Some(last) = kvs.last() else { break };
            let start = keelson_store::key_after(&last.key);
            let rest = Interval { start, end: interval.end.clone() };
            let page = self.store.range(rest.range(needed - kvs.len(), Some(at))).await?;
            more = page.more;
            add(page.items, &mut kvs)?;
            tokio::task::yield_now().await;
        }
        Ok((kvs, Some(permit)))
    }

    pub(crate) async fn put(self: Arc<Self>, req: PutRequest) -> Result<PutResponse, EtcdError> {
        check_put(&req)?;
        let bytes = self.check_size(&req)?;
        self.check_space(bytes).await?;
        let (mut response, revision) =
            self.write(bytes, move |evaluation| evaluation.put(&req)).await?;
        response.header = Some(self.header(revision));
        Ok(response)
    }

    pub(crate) async fn delete_range(
        self: Arc<Self>,
        req: DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, EtcdError> {
        check_delete(&req)?;
        let bytes = self.check_size(&req)?;
        let (mut response, revision) =
            self.write(bytes, move |evaluation| evaluation.delete(&req)).await?;
        response.header = Some(self.header(revision));
        Ok(response)
    }

    pub(crate) async fn txn(self: Arc<Self>, req: TxnRequest) -> Result<TxnResponse, EtcdError> {
        check_txn(&req, self.options.txn_ops_max)?;
        let bytes = self.check_size(&req)?;
        if has_puts(&req) {
            self.check_space(bytes).await?;
        }
        let (mut response, revision) =
            self.write(bytes, move |evaluation| evaluation.txn(&req)).await?;
        response.header = Some(self.header(revision));
        Ok(response)
    }

    pub(crate) async fn compact_range(
        self: Arc<Self>,
        req: CompactionRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        self.compact(req.revision).await?;
        Ok(HeaderResponse { header: Some(self.header(self.revision())) })
    }

    /// Returns the size of a request, unless it is too large.
    fn check_size(&self, req: &impl Message) -> Result<usize, EtcdError> {
        let bytes = req.encoded_len();
        if bytes > self.options.request_bytes_max {
            return Err(EtcdError::RequestTooLarge);
        }
        Ok(bytes)
    }
}

fn has_puts(req: &TxnRequest) -> bool {
    req.success.iter().chain(&req.failure).any(|RequestOp { request }| match request {
        Some(Request::Put(_)) => true,
        Some(Request::Txn(txn)) => has_puts(txn),
        Some(Request::Range(_) | Request::DeleteRange(_)) | None => false,
    })
}
