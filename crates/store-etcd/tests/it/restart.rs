//! Restarts of etcd under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use keelson_store::{
    Compare, Event, Op, Range, Revision, Store, Txn, TxnOutcome, Watch, WriteError,
};
use keelson_store_etcd::testing::EtcdProcess;
use keelson_store_etcd::{EtcdOptions, EtcdStore};
use keelson_testkit::prerequisites::{self, peer_or_installed};

use crate::{etcd, open};

const WRITERS: usize = 8;
const RESTARTS: usize = 4;
/// Acknowledged writes between two restarts.
const WRITES_BETWEEN: usize = 150;

/// Counts a key up until told to stop; answers with the acknowledged values and their revisions.
async fn count(store: Arc<EtcdStore>, key: String, stop: Arc<AtomicBool>) -> Vec<(u64, Revision)> {
    let key = Bytes::from(key);
    let mut acknowledged = Vec::new();
    let mut modified = Revision(0);
    let mut value = 0;
    while !stop.load(Ordering::Relaxed) {
        let put = Op::Put { key: key.clone(), value: (value + 1).to_string().into(), lease: None };
        let compare = vec![Compare { key: key.clone(), modified }];
        match store.txn(Txn { compare, ops: vec![put] }).await {
            Ok(TxnOutcome::Committed(at)) => {
                (value, modified) = (value + 1, at);
                acknowledged.push((value, at));
            }
            // A write with an unknown outcome had happened.
            Ok(TxnOutcome::Conflict { current, .. }) => {
                let current = current.expect("nobody deletes");
                value = std::str::from_utf8(&current.value).unwrap().parse().unwrap();
                modified = current.modified;
            }
            Err(WriteError::Unknown { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
    acknowledged
}

/// Takes so many events as there should be between two restarts.
async fn take(watch: &mut dyn Watch, events: &mut Vec<Event>) {
    let until = events.len() + WRITES_BETWEEN;
    while events.len() < until {
        events.extend(watch.next().await.expect("the watch goes on").events);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_under_load_lose_no_write_and_double_no_event() {
    let Some(etcd) = etcd().await else { return };
    check(vec![etcd]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_members_and_leaders_lose_no_write_and_double_no_event() {
    let started = EtcdProcess::start_cluster(&peer_or_installed("etcd"), 3).await;
    let Some(members) = prerequisites::etcd(started) else { return };
    check(members).await;
}

/// Kills one member after the other, among them the leader, while writers write and a watch
/// watches.
async fn check(mut members: Vec<EtcdProcess>) {
    let urls = members.iter().map(EtcdProcess::url).collect();
    let options =
        EtcdOptions { root: String::new(), prefix: "/load/".into(), ..EtcdOptions::new(urls) };
    let store = EtcdStore::open(options).await.expect("open");
    let start = store.revision();
    let mut watch = store.watch(Bytes::new(), start).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(count(store.clone(), format!("k{n}"), stop.clone())))
        .collect();
    let mut events = Vec::new();
    for round in 0..RESTARTS {
        take(&mut *watch, &mut events).await;
        let size = members.len();
        members[round % size].kill();
        if size > 1 {
            // The others are enough.
            take(&mut *watch, &mut events).await;
        }
        members[round % size].restart().await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    for (n, writer) in writers.into_iter().enumerate() {
        for (value, at) in writer.await.unwrap() {
            acknowledged.insert((format!("k{n}"), value), at);
        }
    }
    let until = store.latest().await.unwrap();
    let mut through = Revision(0);
    while through < until {
        let batch = watch.next().await.expect("the watch goes on");
        through = batch.through;
        events.extend(batch.events);
    }
    assert!(events.is_sorted_by(|a, b| a.revision < b.revision), "one event each revision");
    let seen: BTreeMap<_, _> = events
        .iter()
        .map(|event| {
            let value = std::str::from_utf8(event.value.as_ref().unwrap()).unwrap();
            let key = std::str::from_utf8(&event.key).unwrap();
            ((key.to_owned(), value.parse::<u64>().unwrap()), event.revision)
        })
        .collect();
    assert_eq!(seen.len(), events.len(), "each value was written once");
    let lost: Vec<_> =
        acknowledged.iter().filter(|(write, at)| seen.get(*write) != Some(*at)).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");
    let page = store.range(Range::prefix(b"")).await.unwrap();
    assert_eq!(page.items.len(), WRITERS);
    assert!(acknowledged.len() >= RESTARTS * WRITES_BETWEEN / 2, "{}", acknowledged.len());
}

#[tokio::test]
async fn a_store_without_its_etcd_says_so_and_recovers() {
    let Some(mut etcd) = etcd().await else { return };
    let store = open(&etcd, "health").await;
    assert!(store.health().is_ok());
    let mut watch = store.watch(Bytes::new(), store.revision()).unwrap();
    etcd.kill();
    let put = Op::Put { key: "a".into(), value: "1".into(), lease: None };
    let txn = Txn { compare: vec![], ops: vec![put] };
    let error = store.txn(txn.clone()).await.unwrap_err();
    assert!(matches!(error, WriteError::Unknown { .. }), "{error}");
    assert!(store.health().is_err());
    etcd.restart().await;
    let TxnOutcome::Committed(at) = store.txn(txn).await.unwrap() else { panic!("a conflict") };
    assert!(store.health().is_ok());
    let batch = watch.next().await.unwrap();
    assert_eq!((batch.events.len(), batch.through), (1, at));
}
