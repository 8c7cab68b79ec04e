//! Keys that expire. A separate case, because each backend lets time pass in its own way.

use bytes::Bytes;

use super::{commit, compare, delete_op, drain, put, show_event};
use crate::{KeyValue, Lease, Op, Revision, Store, Timestamp, Txn, TxnOutcome};

/// Seconds of the short leases. etcd does not support much shorter ones.
const SHORT: u64 = 3;
const LONG: u64 = 10_000;
/// Most calls of `pass` until a key must have expired.
const PASSES_MAX: usize = 600;

fn put_leased(key: &str, value: &str, now: Timestamp, seconds: u64) -> Op {
    let lease = Some(Lease::new(now, std::time::Duration::from_secs(seconds)));
    Op::Put { key: key.to_owned().into(), value: value.to_owned().into(), lease }
}

async fn write(store: &dyn Store, ops: Vec<Op>) -> Revision {
    commit(store, Txn { compare: vec![], ops }).await
}

async fn live(store: &dyn Store, key: &str) -> Option<KeyValue> {
    store.get(key.as_bytes()).await.expect("get")
}

/// Checks that a store deletes expired keys, at revisions of their own, and no others. `pass` lets
/// some time pass, calls [`Store::expire`], and returns the current time.
pub async fn leases(store: &dyn Store, mut pass: impl AsyncFnMut() -> Timestamp) {
    let now = pass().await;
    let first = ["short", "renewed", "freed", "deleted", "made-anew"];
    write(store, first.map(|key| put_leased(key, "1", now, SHORT)).into()).await;
    write(store, vec![put_leased("long", "1", now, LONG)]).await;
    let start = put(store, "without", "1").await;
    let created = live(store, "short").await.expect("it is there").created;
    let mut watch = store.watch(Bytes::new(), start).expect("watch");
    // Each write replaces the lease.
    put(store, "freed", "2").await;
    write(store, vec![delete_op("deleted")]).await;
    write(store, vec![delete_op("made-anew")]).await;
    put(store, "made-anew", "2").await;
    let now = pass().await;
    let last = write(store, vec![put_leased("renewed", "2", now, LONG)]).await;
    let before = drain(&mut *watch, last).await.len();
    assert_eq!(before, 5, "nothing expires before its time");

    let mut passes = 0;
    while live(store, "short").await.is_some() {
        assert!(passes < PASSES_MAX, "the key does not expire");
        passes += 1;
        pass().await;
    }
    for _ in 0..5 {
        pass().await;
    }
    for key in ["renewed", "freed", "made-anew", "long", "without"] {
        assert!(live(store, key).await.is_some(), "{key} is gone");
    }
    let end = put(store, "end", "1").await;
    let events = drain(&mut *watch, end).await;
    let shown: Vec<_> = events.iter().map(show_event).collect();
    assert_eq!(shown, ["-short", "+end=1"]);
    assert_eq!(events[0].created, created);
    assert!(events[0].revision > last && events[0].revision < end, "{:?}", events[0]);
    // An expired key is as absent as a deleted one.
    let again =
        Txn { compare: vec![compare("short", Revision(0))], ops: vec![Op::put("short", "2")] };
    assert!(matches!(store.txn(again).await, Ok(TxnOutcome::Committed(_))));
}
