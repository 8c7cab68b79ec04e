//! Transactions that a function decides, counts, and the records of a history.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use keelson_store::conformance::{delete, put};
use keelson_store::{ChangedTwice, Embedded, Range, Revision, Store, WriteError};

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Counts a key up, and returns its new value.
async fn count_up(store: &Embedded, key: &'static str) -> u64 {
    let decide = move |draft: &mut keelson_store::Draft<'_, '_>| {
        let current = draft
            .get(key.as_bytes(), draft.newest())
            .expect("a read")
            .map_or(0, |kv| text(&kv.value).parse().expect("a number"));
        draft.put(key.into(), (current + 1_u64).to_string().into())?;
        Ok::<_, ChangedTwice>(current + 1)
    };
    store.decide(16, decide, |value| value).await.expect("a commit").expect("once")
}

#[tokio::test]
async fn concurrent_decisions_see_each_other() {
    let store = Embedded::in_memory();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { count_up(&store, "n").await })
        })
        .collect();
    let mut values = Vec::new();
    for task in tasks {
        values.push(task.await.expect("counted"));
    }
    values.sort_unstable();
    assert!(values.into_iter().eq(1..=64));
    assert_eq!(store.revision(), Revision(64));
}

#[tokio::test]
async fn a_decision_reads_its_own_writes_and_is_one_revision() {
    let store = Embedded::in_memory();
    for key in ["a", "b", "d"] {
        put(&*store, key, "old").await;
    }
    let decide = |draft: &mut keelson_store::Draft<'_, '_>| {
        let before = draft.newest();
        draft.put("c".into(), "new".into())?;
        draft.put("a".into(), "new".into())?;
        assert!(draft.delete("b".into())?);
        assert!(!draft.delete("absent".into())?);
        let at = draft.newest();
        assert_eq!((before, at), (Revision(3), Revision(4)));
        let keys = |at, keys_max| draft.keys(b"a", b"", at, keys_max);
        assert_eq!(keys(at, 10), ["a", "c", "d"]);
        assert_eq!(keys(at, 2), ["a", "c"]);
        assert_eq!(keys(before, 10), ["a", "b", "d"]);
        let value = |key: &str, at| {
            let kv = draft.get(key.as_bytes(), at).expect("a read");
            kv.map(|kv| (text(&kv.value), kv.created.0, kv.modified.0))
        };
        assert_eq!(value("a", at), Some(("new".to_owned(), 1, 4)));
        assert_eq!(value("a", before), Some(("old".to_owned(), 1, 1)));
        assert_eq!(value("b", at), None);
        assert_eq!(draft.revisions(b"c"), Some((Revision(4), Revision(4))));
        Ok::<_, ChangedTwice>(())
    };
    store.decide(0, decide, |()| ()).await.expect("a commit").expect("once");
    let page = store.range(Range::prefix(b"")).await.expect("a page");
    let found: Vec<_> = page.items.iter().map(|kv| text(&kv.key)).collect();
    assert_eq!((found, page.at), (["a", "c", "d"].map(str::to_owned).to_vec(), Revision(4)));
    let mut watch = store.watch(Bytes::new(), Revision(3)).expect("a watch");
    let batch = watch.next().await.expect("a batch");
    let keys: Vec<_> = batch.events.iter().map(|event| text(&event.key)).collect();
    assert_eq!(keys, ["c", "a", "b"], "in the order of the writes");
}

#[tokio::test]
async fn a_failed_decision_leaves_nothing() {
    let store = Embedded::in_memory();
    put(&*store, "a", "old").await;
    for changes in [["a", "a"], ["b", "b"]] {
        let decide = move |draft: &mut keelson_store::Draft<'_, '_>| {
            draft.put(changes[0].into(), "new".into())?;
            draft.put(changes[1].into(), "new".into())
        };
        let error = store.decide(0, decide, |()| ()).await.expect("no failure");
        assert_eq!(error, Err(ChangedTwice { key: changes[0].into() }));
    }
    let decide = |draft: &mut keelson_store::Draft<'_, '_>| {
        draft.delete("a".into())?;
        draft.put("a".into(), "new".into())
    };
    assert!(store.decide(0, decide, |()| ()).await.expect("no failure").is_err());
    assert_eq!(store.revision(), Revision(1));
    assert_eq!(store.get(b"a").await.expect("a read").expect("a key").value, "old");
    let too_large = store.decide(usize::MAX, |_| Ok::<_, ()>(()), |()| ()).await;
    assert!(matches!(too_large, Err(WriteError::TooLarge { .. })));
}

#[tokio::test]
async fn counts_and_records_are_those_of_a_revision() {
    let store = Embedded::in_memory();
    for key in ["a", "b", "c", "b"] {
        put(&*store, key, "v").await;
    }
    delete(&*store, "a").await;
    let count = async |range: Range| store.count(range).await.expect("a count");
    assert_eq!(count(Range { limit: 1, ..Range::prefix(b"") }).await, (2, Revision(5)));
    let past = Range { at: Some(Revision(4)), ..Range::prefix(b"") };
    assert_eq!(count(past).await, (3, Revision(4)));
    assert_eq!(store.modified_at(b"b", Revision(3)), Some(Revision(2)));
    assert_eq!(store.modified_at(b"a", Revision(5)), None);
    let records = |oldest, through| {
        let mut found = Vec::new();
        let result = store.records(Revision(oldest), Revision(through), &mut |record| {
            found.push((text(&record.head.key), record.head.id.revision.0));
            ControlFlow::Continue(())
        });
        result.expect("records");
        found.into_iter().map(|(key, revision)| format!("{key}{revision}")).collect::<Vec<_>>()
    };
    assert_eq!(records(0, 5), ["a1", "b2", "c3", "b4", "a5"]);
    assert_eq!(records(4, 5), ["a1", "c3", "b4", "a5"]);
    assert_eq!(records(5, 5), ["c3", "b4"]);
    assert_eq!(records(0, 2), ["a1", "b2"]);
}
