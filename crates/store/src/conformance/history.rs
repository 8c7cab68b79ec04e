//! Watches and compaction.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::{Case, commit, delete, delete_op, drain, list, put, put_op, show_event};
use crate::{
    BATCH_EVENTS_MAX, Range, ReadError, Revision, Store, Txn, Watch, WatchError, WriteError,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("a_watch_gives_each_event_once_in_order", a_watch_gives_each_event_once_in_order),
        Case::new("a_watch_waits_for_the_future", a_watch_waits_for_the_future),
        Case::new("a_watch_resumes_from_the_past", a_watch_resumes_from_the_past),
        Case::new("a_dropped_next_loses_nothing", a_dropped_next_loses_nothing),
        Case::new("a_transaction_is_never_split", a_transaction_is_never_split),
        Case::new("compaction_keeps_what_lives", compaction_keeps_what_lives),
        Case::new("compaction_cuts_reads_and_watches", compaction_cuts_reads_and_watches),
        Case::new("a_slow_watch_is_cut", a_slow_watch_is_cut),
        Case::new("compacting_the_future_is_refused", compacting_the_future_is_refused),
        Case::new("revisions_grow_over_compaction", revisions_grow_over_compaction),
    ]
}

fn describe(events: &[crate::Event]) -> Vec<String> {
    events.iter().map(show_event).collect()
}

fn watch(store: &dyn Store, prefix: &str, after: Revision) -> Box<dyn Watch> {
    store.watch(Bytes::copy_from_slice(prefix.as_bytes()), after).expect("watch")
}

async fn a_watch_gives_each_event_once_in_order(store: Arc<dyn Store>) {
    let start = put(&*store, "p/a", "0").await;
    let mut watch = watch(&*store, "p/", start);
    put(&*store, "p/a", "1").await;
    put(&*store, "q/a", "1").await;
    let ops = vec![put_op("p/c", "1"), put_op("p/b", "1"), delete_op("p/a"), delete_op("p/x")];
    commit(&*store, Txn { compare: vec![], ops }).await;
    let until = put(&*store, "p/a", "2").await;
    let events = drain(&mut *watch, until).await;
    assert_eq!(describe(&events), ["p/a=1", "+p/c=1", "+p/b=1", "-p/a", "+p/a=2"]);
    assert_eq!((events[0].created, events[3].created), (start, start));
    assert_eq!(events[1].revision, events[3].revision);
    let until = put(&*store, "q/b", "1").await;
    assert_eq!(describe(&drain(&mut *watch, until).await), [""; 0]);
}

async fn a_watch_waits_for_the_future(store: Arc<dyn Store>) {
    let newest = put(&*store, "a", "0").await;
    let mut watch = watch(&*store, "", Revision(newest.0 + 2));
    for n in 1..=3 {
        assert!(is_pending(&mut *watch).await, "before write {n}");
        put(&*store, "a", &n.to_string()).await;
    }
    let events = drain(&mut *watch, store.revision()).await;
    assert_eq!(describe(&events), ["a=3"]);
}

async fn a_watch_resumes_from_the_past(store: Arc<dyn Store>) {
    let mut revisions = vec![put(&*store, "p/a", "0").await];
    for n in 1..50 {
        revisions.push(put(&*store, &format!("p/{}", n % 3), &n.to_string()).await);
    }
    for from in [0, 7, 31, 48, 49] {
        let mut watch = watch(&*store, "p/", revisions[from]);
        let until = put(&*store, "other", "").await;
        assert_eq!(drain(&mut *watch, until).await.len(), 49 - from, "from {from}");
    }
}

async fn a_dropped_next_loses_nothing(store: Arc<dyn Store>) {
    let mut watch = watch(&*store, "", store.revision());
    for n in 0..5 {
        // Polled once and dropped, when nothing is there yet.
        assert!(is_pending(&mut *watch).await);
        let at = put(&*store, "a", &n.to_string()).await;
        let events = drain(&mut *watch, at).await;
        assert_eq!(&events[0].value.as_ref().unwrap()[..], n.to_string().as_bytes());
    }
}

async fn a_transaction_is_never_split(store: Arc<dyn Store>) {
    let start = store.revision();
    let mut last = start;
    for round in 0..5 {
        let ops = (0..BATCH_EVENTS_MAX / 2 + 7).map(|n| put_op(&n.to_string(), &round.to_string()));
        last = commit(&*store, Txn { compare: vec![], ops: ops.collect() }).await;
    }
    let mut watch = watch(&*store, "", start);
    let mut total = 0;
    let mut through = start;
    while through < last {
        let batch = watch.next().await.unwrap();
        assert!(batch.events.iter().all(|event| event.revision > through));
        total += batch.events.len();
        through = batch.through;
    }
    assert_eq!(total, 5 * (BATCH_EVENTS_MAX / 2 + 7));
}

async fn compaction_keeps_what_lives(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1").await;
    put(&*store, "b", "1").await;
    put(&*store, "b", "2").await;
    delete(&*store, "b").await;
    let through = put(&*store, "c", "1").await;
    put(&*store, "c", "2").await;
    store.compact(through).await.unwrap();
    assert_eq!(store.floor(), through);
    assert_eq!(list(&*store, "", None).await, ["a=1", "c=2"]);
    assert_eq!(list(&*store, "", Some(through)).await, ["a=1", "c=1"]);
    assert_eq!(store.get(b"a").await.unwrap().unwrap().modified, first);
    let mut watch = watch(&*store, "", through);
    assert_eq!(describe(&drain(&mut *watch, store.revision()).await), ["c=2"]);
    // A second compaction at or below the floor does nothing.
    store.compact(first).await.unwrap();
    assert_eq!(store.floor(), through);
}

async fn compaction_cuts_reads_and_watches(store: Arc<dyn Store>) {
    let old = put(&*store, "a", "1").await;
    let floor = put(&*store, "a", "2").await;
    store.compact(floor).await.unwrap();
    let error = store.range(Range { at: Some(old), ..Range::prefix(b"") }).await.unwrap_err();
    let ReadError::Compacted { asked, floor: reported_floor } = error else { panic!("{error}") };
    assert_eq!((asked, reported_floor), (old, floor));
    let error = store.load(b"", Some(old), &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, ReadError::Compacted { .. }), "{error}");
    let Err(error) = store.watch(Bytes::new(), old) else { panic!("watch from {old}") };
    let WatchError::Compacted { asked, floor: reported_floor } = error else { panic!("{error}") };
    assert_eq!((asked, reported_floor), (old, floor));
}

async fn a_slow_watch_is_cut(store: Arc<dyn Store>) {
    let start = put(&*store, "a", "0").await;
    let mut slow = watch(&*store, "", start);
    let mut quick = watch(&*store, "", start);
    let mut last = start;
    for n in 0..100 {
        last = put(&*store, "a", &n.to_string()).await;
        assert_eq!(drain(&mut *quick, last).await.len(), 1);
    }
    store.compact(last).await.unwrap();
    let error = slow.next().await.unwrap_err();
    let is_cut = matches!(error, WatchError::Compacted { .. } | WatchError::Lagged { .. });
    assert!(is_cut, "{error}");
    let last = put(&*store, "a", "more").await;
    assert_eq!(drain(&mut *quick, last).await.len(), 1);
}

async fn compacting_the_future_is_refused(store: Arc<dyn Store>) {
    let newest = put(&*store, "a", "1").await;
    let floor = store.floor();
    let error = store.compact(newest.next()).await.unwrap_err();
    assert!(matches!(error, WriteError::Future { asked, .. } if asked == newest.next()), "{error}");
    assert_eq!(store.floor(), floor);
}

async fn revisions_grow_over_compaction(store: Arc<dyn Store>) {
    put(&*store, "a", "1").await;
    let gone = delete(&*store, "a").await;
    store.compact(gone).await.unwrap();
    assert_eq!(store.revision(), gone);
    assert_eq!(list(&*store, "", None).await, [""; 0]);
    assert!(put(&*store, "a", "2").await > gone);
}

/// Polls `next` once and drops it.
async fn is_pending(watch: &mut dyn Watch) -> bool {
    let mut next = pin!(watch.next());
    poll_fn(|ctx| Poll::Ready(next.as_mut().poll(ctx).is_pending())).await
}
