//! Puts, deletes and transactions, evaluated on a draft of the store. The order is etcd's: the
//! compares of all nested transactions are decided at the revision before, then everything is
//! checked, then it is done.

use bytes::Bytes;
use keelson_store::{ChangedTwice, Draft, Revision};

use super::compare::all_hold;
use super::interval::Interval;
use super::reading::Reading;
use super::select::{keys_needed, select};
use crate::error::EtcdError;
use crate::leases::Leases;
use crate::proto::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    Request, RequestOp, Response, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use crate::record::{self, from_etcd, to_etcd};

/// A change of a key as leases see it: 0 is none, as of a deleted key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseChange {
    pub key: Bytes,
    pub lease: i64,
}

/// Evaluates the requests of one transaction.
pub(crate) struct Evaluation<'a, 'd, 'g> {
    draft: &'a mut Draft<'d, 'g>,
    leases: &'a Leases,
    /// The oldest revision of etcd that may be read.
    compacted: i64,
    reading: Reading,
    changes: Vec<LeaseChange>,
}

impl<'a, 'd, 'g> Evaluation<'a, 'd, 'g> {
    pub(crate) fn new(draft: &'a mut Draft<'d, 'g>, leases: &'a Leases, compacted: i64) -> Self {
        Self { draft, leases, compacted, reading: Reading::default(), changes: Vec::new() }
    }

    /// Returns what to tell the leases once the transaction is durable.
    pub(crate) fn into_changes(self) -> Vec<LeaseChange> {
        self.changes
    }

    /// Returns the revision after what was done so far.
    pub(crate) fn revision(&self) -> i64 {
        to_etcd(self.draft.newest())
    }

    pub(crate) fn put(&mut self, req: &PutRequest) -> Result<PutResponse, EtcdError> {
        self.check_put(req)?;
        self.do_put(req)
    }

    pub(crate) fn delete(
        &mut self,
        req: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, EtcdError> {
        let interval = Interval::new(&req.key, &req.range_end);
        let at = self.draft.newest();
        let keys = self.keys(&interval, at)?;
        let mut response = DeleteRangeResponse::default();
        for key in keys {
            if req.prev_kv {
                response.prev_kvs.extend(self.reading.get(self.draft, &key, at)?);
            }
            if self.draft.delete(key.clone()).map_err(changed_twice)? {
                response.deleted += 1;
                self.changes.push(LeaseChange { key, lease: 0 });
            }
        }
        response.header = Some(self.inner_header());
        Ok(response)
    }

    /// Deletes a key if its newest write has this lease.
    pub(crate) fn delete_attached(&mut self, key: Bytes, lease: i64) -> Result<(), EtcdError> {
        // Not counted as read: a lease that has too many keys could never end.
        let current =
            self.draft.get(&key, self.draft.newest())?.map(record::decode_kv).transpose()?;
        if current.is_some_and(|kv| kv.lease == lease) {
            self.draft.delete(key.clone()).map_err(changed_twice)?;
            self.changes.push(LeaseChange { key, lease: 0 });
        }
        Ok(())
    }

    pub(crate) fn txn(&mut self, req: &TxnRequest) -> Result<TxnResponse, EtcdError> {
        let before = self.draft.newest();
        let path = self.decide(req, before)?;
        self.check(&path)?;
        self.run(&path)
    }

    /// Decides the compares of a transaction and of those nested in the branch that it takes.
    fn decide<'r>(&mut self, req: &'r TxnRequest, at: Revision) -> Result<Branch<'r>, EtcdError> {
        let succeeded = all_hold(self.draft, &req.compare, at, &mut self.reading)?;
        let ops = if succeeded { &req.success } else { &req.failure };
        let mut steps = Vec::with_capacity(ops.len());
        for RequestOp { request } in ops {
            steps.push(match request {
                Some(Request::Range(range)) => Step::Range(range),
                Some(Request::Put(put)) => Step::Put(put),
                Some(Request::DeleteRange(delete)) => Step::Delete(delete),
                Some(Request::Txn(txn)) => Step::Txn(self.decide(txn, at)?),
                None => return Err(EtcdError::KeyNotFound),
            });
        }
        Ok(Branch { succeeded, steps })
    }

    /// Checks everything that the branch does, before any of it is done.
    fn check(&mut self, branch: &Branch<'_>) -> Result<(), EtcdError> {
        for step in &branch.steps {
            match step {
                Step::Range(range) => self.check_revision(range.revision)?,
                Step::Put(put) => self.check_put(put)?,
                Step::Delete(_) => {}
                Step::Txn(branch) => self.check(branch)?,
            }
        }
        Ok(())
    }

    fn run(&mut self, branch: &Branch<'_>) -> Result<TxnResponse, EtcdError> {
        let mut responses = Vec::with_capacity(branch.steps.len());
        for step in &branch.steps {
            let response = match step {
                Step::Range(range) => Response::Range(self.range(range)?),
                Step::Put(put) => Response::Put(self.do_put(put)?),
                Step::Delete(delete) => Response::DeleteRange(self.delete(delete)?),
                Step::Txn(branch) => Response::Txn(self.run(branch)?),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        let header = Some(ResponseHeader::default());
        Ok(TxnResponse { header, succeeded: branch.succeeded, responses })
    }

    fn check_put(&mut self, req: &PutRequest) -> Result<(), EtcdError> {
        let needs_key = req.ignore_value || req.ignore_lease;
        if needs_key && self.draft.revisions(&req.key).is_none() {
            return Err(EtcdError::KeyNotFound);
        }
        if req.lease != 0 && !self.leases.is_live(req.lease) {
            return Err(EtcdError::LeaseNotFound);
        }
        Ok(())
    }

    fn do_put(&mut self, req: &PutRequest) -> Result<PutResponse, EtcdError> {
        let before = self.reading.get(self.draft, &req.key, self.draft.newest())?;
        let version = before.as_ref().map_or(0, |kv| kv.version) + 1;
        let mut value = &req.value;
        let mut lease = req.lease;
        if req.ignore_value || req.ignore_lease {
            let before = before.as_ref().ok_or(EtcdError::KeyNotFound)?;
            value = if req.ignore_value { &before.value } else { value };
            lease = if req.ignore_lease { before.lease } else { lease };
        }
        // A copy, because the key of the request keeps the memory of the whole request.
        let key = Bytes::copy_from_slice(&req.key);
        let stored = record::encode(version, lease, value);
        self.draft.put(key.clone(), stored).map_err(changed_twice)?;
        self.changes.push(LeaseChange { key, lease });
        let prev_kv = before.filter(|_| req.prev_kv);
        Ok(PutResponse { header: Some(self.inner_header()), prev_kv })
    }

    fn range(&mut self, req: &RangeRequest) -> Result<RangeResponse, EtcdError> {
        let at = if req.revision > 0 { from_etcd(req.revision) } else { self.draft.newest() };
        let interval = Interval::new(&req.key, &req.range_end);
        let keys = self.keys(&interval, at)?;
        let count = keys.len() as u64;
        let needed = if req.count_only { 0 } else { keys_needed(req).unwrap_or(usize::MAX) };
        let mut kvs = Vec::new();
        for key in keys.iter().take(needed) {
            kvs.extend(self.reading.get(self.draft, key, at)?);
        }
        let mut response = select(req, kvs, count);
        response.header = Some(self.inner_header());
        Ok(response)
    }

    fn keys(&mut self, interval: &Interval, at: Revision) -> Result<Vec<Bytes>, EtcdError> {
        if interval.is_single() && at == self.draft.newest() {
            let exists = self.draft.revisions(&interval.start).is_some();
            // A copy, because the key of the request keeps the memory of the whole request.
            let key = || Bytes::copy_from_slice(&interval.start);
            return Ok(exists.then(key).into_iter().collect());
        }
        self.reading.keys(self.draft, interval, at, self.changes.len())
    }

    fn check_revision(&self, revision: i64) -> Result<(), EtcdError> {
        if revision <= 0 {
            return Ok(());
        }
        if revision > self.revision() {
            return Err(EtcdError::FutureRevision);
        }
        if revision < self.compacted || from_etcd(revision) < self.draft.floor() {
            return Err(EtcdError::Compacted);
        }
        Ok(())
    }

    /// The headers of the parts of a transaction have a revision only.
    fn inner_header(&self) -> ResponseHeader {
        ResponseHeader { revision: self.revision(), ..ResponseHeader::default() }
    }
}

/// The branch that a transaction takes.
struct Branch<'r> {
    succeeded: bool,
    steps: Vec<Step<'r>>,
}

enum Step<'r> {
    Range(&'r RangeRequest),
    Put(&'r PutRequest),
    Delete(&'r DeleteRangeRequest),
    Txn(Branch<'r>),
}

fn changed_twice(_: ChangedTwice) -> EtcdError {
    EtcdError::DuplicateKey
}
