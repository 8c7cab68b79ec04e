//! What a range answers of the keys that it has read: filters, order, limit. The steps and their
//! order are etcd's (`executeRange`).

use std::cmp::Ordering;

use bytes::Bytes;

use crate::proto::{KeyValue, RangeRequest, RangeResponse, SortOrder, SortTarget};

/// Returns how many keys must be read; `None` means all. One more than the limit says whether there
/// are more.
pub(crate) fn keys_needed(req: &RangeRequest) -> Option<usize> {
    let reads_all = req.sort_order != SortOrder::None as i32
        || req.min_mod_revision != 0
        || req.max_mod_revision != 0
        || req.min_create_revision != 0
        || req.max_create_revision != 0;
    if reads_all || req.limit <= 0 {
        return None;
    }
    usize::try_from(req.limit).ok().map(|limit| limit.saturating_add(1))
}

/// Makes the response, without its header, from the keys that were read and the number of keys in
/// the range.
pub(crate) fn select(req: &RangeRequest, mut kvs: Vec<KeyValue>, count: u64) -> RangeResponse {
    let is_within = |min: i64, max: i64, revision: i64| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    kvs.retain(|kv| {
        is_within(req.min_mod_revision, req.max_mod_revision, kv.mod_revision)
            && is_within(req.min_create_revision, req.max_create_revision, kv.create_revision)
    });
    sort(req, &mut kvs);
    let limit = usize::try_from(req.limit).unwrap_or(0);
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if req.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    RangeResponse { header: None, kvs, more, count: i64::try_from(count).unwrap_or(i64::MAX) }
}

/// Sorts the keys, which are in the order of keys.
fn sort(req: &RangeRequest, kvs: &mut [KeyValue]) {
    let target = SortTarget::try_from(req.sort_target).unwrap_or(SortTarget::Key);
    let order = SortOrder::try_from(req.sort_order).unwrap_or(SortOrder::None);
    let by = |a: &KeyValue, b: &KeyValue| -> Ordering {
        match target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        }
    };
    match order {
        SortOrder::Descend => kvs.sort_by(|a, b| by(b, a)),
        // They are in that order already.
        _ if target == SortTarget::Key => {}
        SortOrder::None | SortOrder::Ascend => kvs.sort_by(by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &'static str, created: i64, modified: i64, value: &'static str) -> KeyValue {
        KeyValue {
            key: key.into(),
            create_revision: created,
            mod_revision: modified,
            version: modified - created,
            value: value.into(),
            lease: 0,
        }
    }

    fn keys(req: &RangeRequest) -> (String, bool, i64) {
        let all = vec![kv("a", 2, 9, "x"), kv("b", 3, 5, "z"), kv("c", 4, 8, "y")]
            .into_iter()
            .take(keys_needed(req).unwrap_or(9))
            .collect();
        let response = select(req, all, 3);
        let keys = response.kvs.iter().flat_map(|kv| kv.key.to_vec());
        (String::from_utf8(keys.collect()).expect("text"), response.more, response.count)
    }

    #[test]
    fn ranges_are_sorted_filtered_and_limited_as_in_etcd() {
        let check = |req: RangeRequest, expected: &str, more: bool| {
            assert_eq!(keys(&req), (expected.to_owned(), more, 3), "{req:?}");
        };
        let sorted = |order: SortOrder, target: SortTarget| RangeRequest {
            sort_order: order.into(),
            sort_target: target.into(),
            ..RangeRequest::default()
        };
        check(RangeRequest::default(), "abc", false);
        check(sorted(SortOrder::Descend, SortTarget::Key), "cba", false);
        check(sorted(SortOrder::Ascend, SortTarget::Mod), "bca", false);
        check(sorted(SortOrder::None, SortTarget::Mod), "bca", false);
        check(sorted(SortOrder::Descend, SortTarget::Create), "cba", false);
        check(sorted(SortOrder::Ascend, SortTarget::Version), "bca", false);
        check(sorted(SortOrder::Ascend, SortTarget::Value), "acb", false);
        let limited = RangeRequest { limit: 2, ..RangeRequest::default() };
        check(limited.clone(), "ab", true);
        check(RangeRequest { limit: 1, ..sorted(SortOrder::Ascend, SortTarget::Mod) }, "b", true);
        check(RangeRequest { min_mod_revision: 6, max_mod_revision: 8, ..limited }, "c", false);
        let created = RangeRequest { max_create_revision: 3, ..RangeRequest::default() };
        check(created, "ab", false);
    }

    #[test]
    fn keys_only_leaves_values_out() {
        let req = RangeRequest { keys_only: true, ..RangeRequest::default() };
        let response = select(&req, vec![kv("a", 1, 1, "x")], 1);
        assert_eq!(response.kvs[0].value, "");
    }
}
