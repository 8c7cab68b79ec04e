//! What a request must satisfy before it is run, in etcd's order and with its errors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use keelson_store::KEY_BYTES_MAX;

use super::interval::Interval;
use crate::error::EtcdError;
use crate::limits::{TXN_DEPTH_MAX, TXN_OPS_TOTAL_MAX};
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
    let mut total = 0;
    check_ops(req, ops_max, 0, &mut total)?;
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

/// `ops_max` bounds the longest way through nested transactions, as in etcd. `total` counts the
/// operations and compares of all of them, which etcd does not bound.
fn check_ops(
    req: &TxnRequest,
    ops_max: usize,
    depth: usize,
    total: &mut usize,
) -> Result<(), EtcdError> {
    let ops = req.compare.len().max(req.success.len()).max(req.failure.len());
    *total += req.compare.len() + req.success.len() + req.failure.len();
    let Some(left) = ops_max.checked_sub(ops).filter(|_| depth < TXN_DEPTH_MAX) else {
        return Err(EtcdError::TooManyOps);
    };
    if *total > TXN_OPS_TOTAL_MAX {
        return Err(EtcdError::TooManyOps);
    }
    req.compare.iter().try_for_each(|compare| check_key(&compare.key))?;
    for op in req.success.iter().chain(&req.failure) {
        match &op.request {
            Some(Request::Range(range)) => check_range(range)?,
            Some(Request::Put(put)) => check_put(put)?,
            Some(Request::DeleteRange(delete)) => check_delete(delete)?,
            Some(Request::Txn(txn)) => check_ops(txn, left, depth + 1, total)?,
            // etcd's answer to an operation without a request.
            None => return Err(EtcdError::KeyNotFound),
        }
    }
    Ok(())
}

/// The keys that a list of operations may change.
#[derive(Default)]
struct Changes {
    puts: BTreeSet<Bytes>,
    deletes: Intervals,
}

impl Changes {
    /// Collects them; fails if a key may be changed twice. The two branches of a nested transaction
    /// exclude each other, so both may change a key. Deletes may overlap each other: the second one
    /// finds nothing.
    fn of(ops: &[RequestOp]) -> Result<Self, EtcdError> {
        let mut changes = Self::default();
        for op in ops {
            if let Some(Request::DeleteRange(delete)) = &op.request {
                changes.deletes.insert(Interval::new(&delete.key, &delete.range_end));
            }
        }
        for op in ops {
            if let Some(Request::Txn(txn)) = &op.request {
                let then = Self::of(&txn.success)?;
                let otherwise = Self::of(&txn.failure)?;
                if changes.meets(&then) || changes.meets(&otherwise) {
                    return Err(EtcdError::DuplicateKey);
                }
                changes.add(then);
                changes.add(otherwise);
            }
        }
        for op in ops {
            if let Some(Request::Put(put)) = &op.request {
                let is_new = !changes.deletes.contains(&put.key);
                if !(is_new && changes.puts.insert(put.key.clone())) {
                    return Err(EtcdError::DuplicateKey);
                }
            }
        }
        Ok(changes)
    }

    /// Whether one puts a key that the other changes. The cost grows with the shorter of two lists.
    fn meets(&self, other: &Self) -> bool {
        let is_shorter = self.puts.len() <= other.puts.len();
        let (few, many) =
            if is_shorter { (&self.puts, &other.puts) } else { (&other.puts, &self.puts) };
        few.iter().any(|key| many.contains(key))
            || self.deletes.meet(&other.puts)
            || other.deletes.meet(&self.puts)
    }

    /// Takes the changes of another list, the shorter into the longer.
    fn add(&mut self, mut other: Self) {
        if self.puts.len() < other.puts.len() {
            std::mem::swap(&mut self.puts, &mut other.puts);
        }
        self.puts.extend(other.puts);
        self.deletes.add(other.deletes);
    }
}

/// Ranges of keys, of which no two overlap: by the start, the end; none is empty.
#[derive(Default)]
struct Intervals(BTreeMap<Bytes, Bytes>);

impl Intervals {
    /// Adds a range; joins those that it overlaps.
    fn insert(&mut self, Interval { mut start, mut end }: Interval) {
        if !end.is_empty() && end <= start {
            return;
        }
        if let Some((before, ends)) = self.0.range::<Bytes, _>(..=&start).next_back()
            && (ends.is_empty() || *ends >= start)
        {
            start = before.clone();
        }
        while let Some((next, ends)) = self.0.range::<Bytes, _>(&start..).next()
            && (end.is_empty() || *next <= end)
        {
            if !end.is_empty() && (ends.is_empty() || *ends > end) {
                end = ends.clone();
            }
            let next = next.clone();
            self.0.remove(&next);
        }
        self.0.insert(start, end);
    }

    fn add(&mut self, mut other: Self) {
        if self.0.len() < other.0.len() {
            std::mem::swap(self, &mut other);
        }
        other.0.into_iter().for_each(|(start, end)| self.insert(Interval { start, end }));
    }

    fn contains(&self, key: &Bytes) -> bool {
        let before = self.0.range::<Bytes, _>(..=key).next_back();
        before.is_some_and(|(_, end)| end.is_empty() || key < end)
    }

    /// Whether one of the keys is in a range.
    fn meet(&self, keys: &BTreeSet<Bytes>) -> bool {
        if keys.len() <= self.0.len() {
            return keys.iter().any(|key| self.contains(key));
        }
        self.0.iter().any(|(start, end)| {
            let first = keys.range::<Bytes, _>(start..).next();
            first.is_some_and(|key| end.is_empty() || key < end)
        })
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
        check(vec![delete("d", "f"), delete("a", "e"), put("f")], true);
        check(vec![delete("d", "f"), delete("a", "e"), put("e")], false);
        check(vec![delete("d", "\0"), delete("a", "e"), put("z")], false);
        check(vec![delete("f", "a"), put("c")], true);
        let many = || vec![put("a"), put("c"), delete("e", "g")];
        check(vec![nested(many(), vec![put("b")]), nested(vec![put("d")], many())], false);
        check(vec![nested(many(), vec![]), nested(vec![put("b"), put("g")], vec![])], true);
        check(vec![nested(many(), vec![]), nested(vec![put("f")], vec![])], false);
    }

    /// Ranges that are joined contain exactly the keys of the single ones.
    #[test]
    fn joined_ranges_contain_the_same_keys() {
        let key = |byte: u8| Bytes::copy_from_slice(&[byte]);
        let mut random = 7_u64;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        for _ in 0..500 {
            let mut single = Vec::new();
            let mut joined = Intervals::default();
            for _ in 0..6 {
                let end = match next(8) {
                    0 => Bytes::new(),
                    _ => key(next(40) as u8 + 1),
                };
                let interval = Interval { start: key(next(40) as u8 + 1), end };
                joined.insert(interval.clone());
                single.push(interval);
            }
            for byte in 0..50 {
                let expected = single.iter().any(|one| one.contains(&[byte]));
                assert_eq!(joined.contains(&key(byte)), expected, "{byte} in {single:?}");
                let has = joined.meet(&BTreeSet::from([key(byte)]));
                assert_eq!(has, expected, "{byte} in {single:?}");
            }
            let ends: Vec<_> = joined.0.iter().collect();
            let are_apart =
                |pair: &[(&Bytes, &Bytes)]| !pair[0].1.is_empty() && pair[0].1 < pair[1].0;
            assert!(ends.windows(2).all(are_apart), "{ends:?}");
        }
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
        // Each way through it is short, all of it is not.
        let wide = |count: usize| vec![nested(two(), vec![]); count];
        let txn = TxnRequest { success: wide(TXN_OPS_TOTAL_MAX / 3), ..TxnRequest::default() };
        assert!(matches!(check_txn(&txn, TXN_OPS_TOTAL_MAX), Err(EtcdError::DuplicateKey)));
        let txn = TxnRequest { success: wide(TXN_OPS_TOTAL_MAX / 2), ..TxnRequest::default() };
        assert!(matches!(check_txn(&txn, TXN_OPS_TOTAL_MAX), Err(EtcdError::TooManyOps)));
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
