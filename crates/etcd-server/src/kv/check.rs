//! What a request must satisfy before it is run, in etcd's order and with its errors.

use std::collections::HashSet;

use bytes::Bytes;
use keelson_store::KEY_BYTES_MAX;

use super::interval::Interval;
use crate::error::EtcdError;
use crate::limits::TXN_DEPTH_MAX;
use crate::proto::{
    DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, SortOrder, SortTarget,
    TxnRequest,
};

/// Checks a range.
pub(crate) fn check_range(req: &RangeRequest) -> Result<(), EtcdError> {
    check_key(&req.key)?;
    let is_known = SortOrder::try_from(req.sort_order).is_ok()
        && SortTarget::try_from(req.sort_target).is_ok();
    if is_known { Ok(()) } else { Err(EtcdError::InvalidSortOption) }
}

/// Checks a put.
pub(crate) fn check_put(req: &PutRequest) -> Result<(), EtcdError> {
    check_key(&req.key)?;
    if req.ignore_value && !req.value.is_empty() {
        return Err(EtcdError::ValueProvided);
    }
    if req.ignore_lease && req.lease != 0 {
        return Err(EtcdError::LeaseProvided);
    }
    Ok(())
}

/// Checks a delete.
pub(crate) fn check_delete(req: &DeleteRangeRequest) -> Result<(), EtcdError> {
    check_key(&req.key)
}

/// Checks a transaction with all that are nested in it: their number of operations, their keys, and
/// that no key is changed twice.
pub(crate) fn check_txn(req: &TxnRequest, ops_max: usize) -> Result<(), EtcdError> {
    check_ops(req, ops_max, 0)?;
    Changes::of(&req.success)?;
    Changes::of(&req.failure)?;
    Ok(())
}

fn check_key(key: &[u8]) -> Result<(), EtcdError> {
    match key.len() {
        0 => Err(EtcdError::EmptyKey),
        1..=KEY_BYTES_MAX => Ok(()),
        _ => Err(EtcdError::RequestTooLarge),
    }
}

fn check_ops(req: &TxnRequest, ops_max: usize, depth: usize) -> Result<(), EtcdError> {
    let ops = req.compare.len().max(req.success.len()).max(req.failure.len());
    let Some(left) = ops_max.checked_sub(ops).filter(|_| depth < TXN_DEPTH_MAX) else {
        return Err(EtcdError::TooManyOps);
    };
    req.compare.iter().try_for_each(|compare| check_key(&compare.key))?;
    for op in req.success.iter().chain(&req.failure) {
        match &op.request {
            Some(Request::Range(range)) => check_range(range)?,
            Some(Request::Put(put)) => check_put(put)?,
            Some(Request::DeleteRange(delete)) => check_delete(delete)?,
            Some(Request::Txn(txn)) => check_ops(txn, left, depth + 1)?,
            // etcd's answer to an operation without a request.
            None => return Err(EtcdError::KeyNotFound),
        }
    }
    Ok(())
}

/// The keys that a list of operations may change.
#[derive(Default)]
struct Changes {
    puts: HashSet<Bytes>,
    deletes: Vec<Interval>,
}

impl Changes {
    /// Collects them; fails if a key may be changed twice. The two branches of a nested transaction
    /// exclude each other, so both may change a key.
    fn of(ops: &[RequestOp]) -> Result<Self, EtcdError> {
        let mut changes = Self::default();
        for op in ops {
            if let Some(Request::DeleteRange(delete)) = &op.request {
                changes.deletes.push(Interval::new(&delete.key, &delete.range_end));
            }
        }
        for op in ops {
            if let Some(Request::Txn(txn)) = &op.request {
                let then = Self::of(&txn.success)?;
                let otherwise = Self::of(&txn.failure)?;
                then.puts.iter().try_for_each(|key| changes.check_put(key))?;
                otherwise.puts.iter().try_for_each(|key| changes.check_put(key))?;
                for delete in then.deletes.iter().chain(&otherwise.deletes) {
                    changes.check_delete(delete)?;
                }
                changes.puts.extend(then.puts);
                changes.puts.extend(otherwise.puts);
                changes.deletes.extend(then.deletes);
                changes.deletes.extend(otherwise.deletes);
            }
        }
        for op in ops {
            if let Some(Request::Put(put)) = &op.request {
                changes.check_put(&put.key)?;
                changes.puts.insert(put.key.clone());
            }
        }
        Ok(changes)
    }

    fn check_put(&self, key: &Bytes) -> Result<(), EtcdError> {
        let is_taken =
            self.puts.contains(key) || self.deletes.iter().any(|range| range.contains(key));
        if is_taken { Err(EtcdError::DuplicateKey) } else { Ok(()) }
    }

    /// Deletes may overlap each other: the second one finds nothing.
    fn check_delete(&self, range: &Interval) -> Result<(), EtcdError> {
        let is_taken = self.puts.iter().any(|key| range.contains(key));
        if is_taken { Err(EtcdError::DuplicateKey) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str) -> RequestOp {
        let put = PutRequest { key: key.into(), ..PutRequest::default() };
        RequestOp { request: Some(Request::Put(put)) }
    }

    fn delete(key: &'static str, end: &'static str) -> RequestOp {
        let delete = DeleteRangeRequest { key: key.into(), range_end: end.into(), prev_kv: false };
        RequestOp { request: Some(Request::DeleteRange(delete)) }
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        let txn = TxnRequest { compare: vec![], success, failure };
        RequestOp { request: Some(Request::Txn(txn)) }
    }

    #[test]
    fn no_key_is_changed_twice() {
        let check = |ops: Vec<RequestOp>, is_allowed: bool| {
            let shown = format!("{ops:?}");
            let txn = TxnRequest { success: ops, ..TxnRequest::default() };
            match check_txn(&txn, 128) {
                Ok(()) => assert!(is_allowed, "{shown}"),
                Err(error) => {
                    assert!(!is_allowed, "{shown}");
                    assert!(matches!(error, EtcdError::DuplicateKey), "{error}");
                }
            }
        };
        check(vec![put("a"), put("b")], true);
        check(vec![put("a"), put("a")], false);
        check(vec![put("b"), delete("a", "c")], false);
        check(vec![put("c"), delete("a", "c")], true);
        check(vec![put("b"), delete("a", "\0")], false);
        check(vec![delete("a", ""), delete("a", "c")], true);
        check(vec![nested(vec![put("a")], vec![put("a")])], true);
        check(vec![nested(vec![put("a")], vec![]), put("a")], false);
        check(vec![nested(vec![put("a")], vec![]), nested(vec![delete("a", "")], vec![])], false);
        check(vec![nested(vec![delete("a", "")], vec![]), put("a")], false);
    }

    #[test]
    fn operations_are_counted_with_those_of_nested_transactions() {
        let two = || vec![put("a"), put("b")];
        let txn = TxnRequest { success: two(), ..TxnRequest::default() };
        assert!(check_txn(&txn, 2).is_ok());
        assert!(matches!(check_txn(&txn, 1), Err(EtcdError::TooManyOps)));
        let txn = TxnRequest { success: vec![nested(two(), vec![])], ..TxnRequest::default() };
        assert!(check_txn(&txn, 3).is_ok());
        assert!(matches!(check_txn(&txn, 2), Err(EtcdError::TooManyOps)));
        let deep = (0..TXN_DEPTH_MAX).fold(put("a"), |inner, _| nested(vec![inner], vec![]));
        let txn = TxnRequest { success: vec![deep], ..TxnRequest::default() };
        assert!(matches!(check_txn(&txn, 128), Err(EtcdError::TooManyOps)));
    }

    #[test]
    fn keys_values_and_leases_are_checked() {
        let put = PutRequest { value: "v".into(), ..PutRequest::default() };
        assert!(matches!(check_put(&put), Err(EtcdError::EmptyKey)));
        let put = PutRequest { key: "k".into(), ignore_value: true, ..put };
        assert!(matches!(check_put(&put), Err(EtcdError::ValueProvided)));
        let put = PutRequest { ignore_value: false, ignore_lease: true, lease: 1, ..put };
        assert!(matches!(check_put(&put), Err(EtcdError::LeaseProvided)));
        let range = RangeRequest { key: "k".into(), sort_order: 9, ..RangeRequest::default() };
        assert!(matches!(check_range(&range), Err(EtcdError::InvalidSortOption)));
    }
}
