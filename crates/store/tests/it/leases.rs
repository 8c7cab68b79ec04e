//! Keys that expire: the case of the suite, restarts, many at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keelson_store::conformance::{commit, leases, list, put};
use keelson_store::{
    Embedded, EmbeddedOptions, Lease, Model, Op, Range, Store, Timestamp, Txn, TxnOutcome,
};
use tempfile::TempDir;

/// Lets a second pass with each call.
async fn check(store: &dyn Store) {
    let mut now = Timestamp(1_000_000);
    let pass = async || {
        now.0 += 1000;
        store.expire(now).await.expect("expire");
        now
    };
    leases(store, pass).await;
}

fn leased(key: String, expires: u64) -> Op {
    let lease = Some(Lease { ttl: Duration::from_secs(1), expires: Timestamp(expires) });
    Op::Put { key: key.into(), value: "v".into(), lease }
}

async fn put_leased(store: &dyn Store, key: &str, expires: u64) {
    let ops = vec![leased(key.to_owned(), expires)];
    commit(store, Txn { compare: vec![], ops }).await;
}

#[tokio::test]
async fn every_store_expires_keys() {
    check(&Model::new()).await;
    check(&*Embedded::in_memory()).await;
    let dir = TempDir::new().unwrap();
    check(&*Embedded::open(EmbeddedOptions::new(dir.path())).unwrap()).await;
}

#[tokio::test]
async fn a_restart_keeps_the_time_that_is_left() {
    let dir = TempDir::new().unwrap();
    let open = || Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    let store = open();
    put_leased(&*store, "early", 5000).await;
    put_leased(&*store, "late", 9000).await;
    put_leased(&*store, "freed", 5000).await;
    put(&*store, "freed", "v").await;
    drop(store);
    let store = open();
    assert_eq!(store.expire(Timestamp(4999)).await.unwrap(), 0);
    assert_eq!(store.expire(Timestamp(5000)).await.unwrap(), 1);
    assert_eq!(list(&*store, "", None).await, ["freed=v", "late=v"]);
    drop(store);
    let store = open();
    assert_eq!(store.expire(Timestamp(8999)).await.unwrap(), 0);
    assert_eq!(store.expire(Timestamp(9000)).await.unwrap(), 1);
    assert_eq!(list(&*store, "", None).await, ["freed=v"]);
}

#[tokio::test]
async fn keys_without_a_lease_can_be_given_one() {
    let store = Embedded::in_memory();
    put(&*store, "events/a", "v").await;
    put(&*store, "eventsb", "v").await;
    put_leased(&*store, "events/c", 9000).await;
    store.lease_others(Bytes::from_static(b"events/"), Timestamp(5000)).await.unwrap();
    assert_eq!(store.expire(Timestamp(5000)).await.unwrap(), 1);
    assert_eq!(list(&*store, "", None).await, ["events/c=v", "eventsb=v"]);
}

#[tokio::test]
async fn writers_go_on_while_many_keys_expire() {
    const KEYS: usize = 20_000;
    let store = Embedded::in_memory();
    for first in (0..KEYS).step_by(1000) {
        let ops = (first..first + 1000).map(|n| leased(format!("e/{n:06}"), 1000)).collect();
        commit(&*store, Txn { compare: vec![], ops }).await;
    }
    let before = store.revision();
    let expiring = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.expire(Timestamp(1000)).await.unwrap() }
    });
    let mut between = 0;
    let mut seen = 0;
    while !expiring.is_finished() {
        let txn = Txn { compare: vec![], ops: vec![Op::put("writer", "v")] };
        assert!(matches!(store.txn(txn).await, Ok(TxnOutcome::Committed(_))));
        let left = store.range(Range { limit: 1, ..Range::prefix(b"e/") }).await.unwrap();
        between += usize::from(!left.items.is_empty());
        seen += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(expiring.await.unwrap(), KEYS);
    assert_eq!(list(&*store, "e/", None).await, [""; 0]);
    // Writes ran between the transactions that delete keys.
    let stretches = store.revision().0 - before.0 - seen;
    assert!(stretches > 20 && between > 3, "{stretches} stretches, {between} writes between them");
}
