//! Several stores, and other programs, on one cluster.

use std::time::Duration;

use bytes::Bytes;
use keelson_store::conformance::{delete, drain, put};
use keelson_store::{Op, Range, ReadError, Revision, Store, Txn, WatchError, WriteError};
use keelson_store_etcd::Compactor;

use crate::{etcd, open, open_impatient};

const IMPATIENT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_write_through_one_store_is_read_and_watched_through_another() {
    let Some(etcd) = etcd().await else { return };
    let one = open(&etcd, "same").await;
    let other = open(&etcd, "same").await;
    let mut watch = other.watch(Bytes::new(), other.revision()).unwrap();
    let at = put(&*one, "a", "1").await;
    assert_eq!(other.latest().await.unwrap(), at);
    assert_eq!(other.get(b"a").await.unwrap().unwrap().modified, at);
    let events = drain(&mut *watch, at).await;
    assert_eq!((events.len(), &events[0].key[..]), (1, &b"a"[..]));
}

#[tokio::test]
async fn a_watch_keeps_up_with_writes_outside_of_its_folder() {
    let Some(etcd) = etcd().await else { return };
    let foreign = open(&etcd, "foreign").await;
    let own = open_impatient(&etcd, "own", IMPATIENT).await;
    let mut watch = own.watch(Bytes::new(), own.revision()).unwrap();
    for _ in 0..5 {
        let at = put(&*foreign, "a", "1").await;
        assert!(own.latest().await.unwrap() >= at);
        assert_eq!(drain(&mut *watch, at).await, []);
    }
    let page = own.range(Range::prefix(b"")).await.unwrap();
    assert_eq!(page.items, []);
}

#[tokio::test]
async fn one_of_several_compactors_compacts_and_the_others_learn_of_it() {
    let Some(etcd) = etcd().await else { return };
    let one = open(&etcd, "same").await;
    let other = open(&etcd, "same").await;
    let old = put(&*one, "a", "1").await;
    put(&*one, "a", "2").await;
    let mut first = Compactor::new(one.clone());
    let mut second = Compactor::new(other.clone());
    assert_eq!(first.run_once().await.unwrap(), None);
    assert_eq!(second.run_once().await.unwrap(), None);
    let through = first.run_once().await.unwrap().unwrap();
    assert!(through > old);
    assert_eq!(second.run_once().await.unwrap(), Some(through));
    for store in [&one, &other] {
        assert_eq!(store.floor(), through);
        let ask = Range { at: Some(old), ..Range::prefix(b"") };
        let error = store.range(ask).await.unwrap_err();
        assert!(matches!(error, ReadError::Compacted { .. }), "{error}");
    }
    let third = open_impatient(&etcd, "same", IMPATIENT).await;
    assert_eq!(third.floor(), through);
    assert_eq!(drain(&mut *third.watch(Bytes::new(), through).unwrap(), through.next()).await, []);
}

#[tokio::test]
async fn a_watch_that_compaction_has_passed_ends() {
    let Some(etcd) = etcd().await else { return };
    let one = open(&etcd, "same").await;
    let other = open(&etcd, "same").await;
    let start = put(&*one, "a", "1").await;
    put(&*one, "b", "1").await;
    let last = delete(&*one, "b").await;
    other.compact(last).await.unwrap();
    // This store has not heard of the compaction: the watch learns it from etcd.
    assert!(one.floor() <= start);
    let error = one.watch(Bytes::new(), start).unwrap().next().await.unwrap_err();
    let WatchError::Compacted { asked, floor } = error else { panic!("{error}") };
    assert_eq!((asked, floor), (start, last));
}

#[tokio::test]
async fn pages_of_many_keys_are_whole_and_at_one_revision() {
    let Some(etcd) = etcd().await else { return };
    let store = open(&etcd, "pages").await;
    for n in 0..700 {
        put(&*store, &format!("{n:04}"), "v").await;
    }
    let page = store.range(Range { limit: 650, ..Range::prefix(b"") }).await.unwrap();
    assert_eq!((page.items.len(), page.more, page.at), (650, true, store.revision()));
    let mut loaded = 0;
    let at = store.load(b"", None, &mut |_| loaded += 1).await.unwrap();
    assert_eq!((loaded, at), (700, store.revision()));
    let old = Range { at: Some(Revision(0)), ..Range::prefix(b"") };
    assert!(store.range(old).await.is_err(), "there is no revision 0 in etcd");
}

#[tokio::test]
async fn what_is_over_a_maximum_of_etcd_is_refused_by_name() {
    let Some(etcd) = etcd().await else { return };
    let store = open(&etcd, "large").await;
    let before = store.revision();
    let put = Op::Put { key: "a".into(), value: vec![0; 1_600_000].into(), lease: None };
    let error = store.txn(Txn { compare: vec![], ops: vec![put] }).await.unwrap_err();
    assert!(matches!(error, WriteError::TooLarge { bytes: 1_600_001 }), "{error}");
    assert!(store.health().is_ok(), "that etcd refuses is an answer");
    assert_eq!(store.latest().await.unwrap(), before);
}
