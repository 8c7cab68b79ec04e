//! Tests of the feeds: reloads, followers, wakes, several stores.

use super::*;
use crate::CursorError;
use keelson_records::testing::{PREFIX, stored};
use keelson_store::{Model, Op, Txn, TxnOutcome};

/// Writes an object and returns the revision.
async fn put(store: &Model, key: &str) -> Revision {
    let KeyValue { key, value, .. } = stored(key, &[], 0);
    let txn = Txn { compare: vec![], ops: vec![Op::Put { key, value, lease: None }] };
    match store.txn(txn).await {
        Ok(TxnOutcome::Committed(at)) => at,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cache_that_missed_changes_relists_and_closes_watches() {
    let store = Arc::new(Model::new());
    put(&store, "ns/a").await;
    let prefix = Bytes::from_static(PREFIX.as_bytes());
    let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
    let resource = cache.resource(&prefix).expect("the resource");
    let mut cursor = resource.cursor(cache.revision()).expect("a cursor");
    // The model never blocks, so the feed does not run before this is done.
    let gone = Op::Delete { key: "/registry/ks/ns/a".into() };
    put(&store, "ns/b").await;
    store.txn(Txn { compare: vec![], ops: vec![gone] }).await.expect("delete");
    let last = put(&store, "ns/c").await;
    store.compact(last).await.expect("compact");
    cache.wait_latest().await.expect("wait");
    assert_eq!((cache.revision(), resource.floor()), (last, last));
    let names: Vec<_> =
        cache.snapshot(&resource).range("", "").map(|entry| entry.key().to_owned()).collect();
    assert_eq!(names, ["ns/b", "ns/c"]);
    cursor.changed().await.expect("woken");
    assert_eq!(cursor.take(&mut vec![]), Err(CursorError::Lagged));
    let mut cursor = resource.cursor(last).expect("a new cursor");
    let next = put(&store, "ns/d").await;
    cache.wait(next, WAIT_TIME_MAX).await.expect("the cache follows on");
    let mut changes = vec![];
    cursor.take(&mut changes).expect("changes");
    assert_eq!(changes[0].entry.key(), "ns/d");
}

#[tokio::test]
async fn a_resource_in_another_store_has_the_revisions_of_that_store() {
    let main = Arc::new(Model::new());
    let other = Arc::new(Model::new());
    for _ in 0..3 {
        put(&main, "ns/left-over").await;
    }
    put(&other, "ns/a").await;
    let prefix = Bytes::from_static(PREFIX.as_bytes());
    let sources = vec![
        StoreSource { store: main.clone(), prefixes: vec![Bytes::from_static(b"/registry/os/")] },
        StoreSource { store: other.clone(), prefixes: vec![prefix.clone()] },
    ];
    let cache = Cache::start_over(sources).await.expect("start");
    let resource = cache.resource(&prefix).expect("the resource");
    let names = || -> Vec<String> {
        let snapshot = cache.snapshot(&resource);
        snapshot.range("", "").map(|entry| entry.key().to_owned()).collect()
    };
    assert_eq!(names(), ["ns/a"]);
    let mut follower = cache.follow(None);
    assert_eq!(follower.take().len(), 1);
    let mut cursor = resource.cursor(other.revision()).expect("a cursor");
    let newest = put(&main, "ns/left-over").await;
    let at = put(&other, "ns/b").await;
    cache.wait_latest().await.expect("wait");
    cache.wait_latest_of(&resource).await.expect("wait");
    assert_eq!((cache.revision(), cache.revision_of(&resource)), (newest, at));
    assert!(at < newest);
    assert_eq!(
        (names(), cache.snapshot(&resource).revision),
        (vec!["ns/a".into(), "ns/b".into()], at)
    );
    follower.changed().await;
    cursor.changed().await.expect("woken");
    let mut changes = vec![];
    cursor.take(&mut changes).expect("changes");
    assert_eq!(changes.len(), 1);
    // A revision of the other store is not waited for here, and a compaction there changes nothing
    // here.
    let future = cache.wait_of(&resource, newest, Duration::ZERO).await;
    assert_eq!(future, Err(CacheError::Future { asked: newest, current: at }));
    cache.compact(MAIN, newest);
    assert!(resource.floor() < at);
    cache.compact(1, at);
    assert_eq!(resource.floor(), at);
    cache.close().await;
}

#[tokio::test]
async fn a_follower_gets_changes_and_later_resources() {
    let store = Arc::new(Model::new());
    let prefix = Bytes::from_static(PREFIX.as_bytes());
    let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
    // Not before: another thread applies what is there at the start, and marks it a moment after it
    // is visible.
    put(&store, "ns/a").await;
    cache.wait_latest().await.expect("wait");
    let names = |resources: Vec<Arc<Resource>>| -> Vec<String> {
        let prefixes = resources.iter().map(|resource| resource.prefix());
        prefixes.map(|prefix| String::from_utf8_lossy(prefix).into_owned()).collect()
    };
    let text = String::from_utf8_lossy(&prefix).into_owned();
    let only = [text];
    let none: [String; 0] = [];
    let mut all = cache.follow(None);
    let mut other = cache.follow(Some(BTreeSet::from([Bytes::from_static(b"/r/")])));
    assert_eq!(names(all.take()), only, "what is there counts as changed");
    assert_eq!(names(all.take()), none);
    put(&store, "ns/b").await;
    put(&store, "ns/b").await;
    // Otherwise the second change may come after the first was taken.
    cache.wait_latest().await.expect("wait");
    all.changed().await;
    assert_eq!(names(all.take()), only);
    let KeyValue { value, .. } = stored("ns/a", &[], 0);
    let key = Bytes::from_static(b"/registry/example.com/widgets/ns/a");
    let ops = vec![Op::Put { key, value, lease: None }];
    store.txn(Txn { compare: vec![], ops }).await.expect("a write");
    all.changed().await;
    assert_eq!(names(all.take()), ["/registry/example.com/widgets/"]);
    // Resources whose watches were ended are reported as changed.
    cache.remove(&prefix);
    assert_eq!(names(all.take()), only);
    assert_eq!(names(other.take()), none, "what is not wanted");
}

#[tokio::test(start_paused = true)]
async fn changes_in_quick_succession_wake_cursors_together() {
    let store = Arc::new(Model::new());
    let prefix = Bytes::from_static(PREFIX.as_bytes());
    let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
    let resource = cache.resource(&prefix).expect("the resource");
    let mut cursor = resource.cursor(cache.revision()).expect("a cursor");
    put(&store, "ns/a").await;
    let began = Instant::now();
    cursor.changed().await.expect("a change");
    assert_eq!(began.elapsed(), Duration::ZERO, "the first one is sent at once");
    let mut changes = vec![];
    cursor.take(&mut changes).expect("changes");
    assert_eq!(changes.len(), 1);
    put(&store, "ns/b").await;
    cache.wait_latest().await.expect("wait");
    put(&store, "ns/c").await;
    cursor.changed().await.expect("a change");
    assert!(began.elapsed() >= WAKE_INTERVAL_MIN, "sent {:?} later", began.elapsed());
    cursor.take(&mut changes).expect("changes");
    assert_eq!(changes.len(), 3);
    // The interval grows with the number of watchers.
    let watchers: Vec<_> = (1..300).map(|_| resource.cursor(Revision(0))).collect();
    let woken = Instant::now();
    put(&store, "ns/d").await;
    cursor.changed().await.expect("a change");
    assert!(woken.elapsed() >= WAKE_INTERVAL_PER_CURSOR * 300, "sent {:?} later", woken.elapsed());
    assert!(woken.elapsed() < WAKE_INTERVAL_MAX && watchers.len() == 299);
}
