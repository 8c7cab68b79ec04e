//! Results of reads at the newest and at past revisions.

use std::sync::Arc;

use super::{Case, delete, list, put, show};
use crate::{Range, ReadError, Revision, Store};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("an_empty_store_answers", an_empty_store_answers),
        Case::new("a_range_is_ordered_and_half_open", a_range_is_ordered_and_half_open),
        Case::new("pages_continue_at_one_revision", pages_continue_at_one_revision),
        Case::new("old_revisions_stay_readable", old_revisions_stay_readable),
        Case::new("a_future_revision_is_an_error", a_future_revision_is_an_error),
        Case::new("load_gives_every_live_key_once", load_gives_every_live_key_once),
        Case::new("keys_are_bytes", keys_are_bytes),
    ]
}

async fn an_empty_store_answers(store: Arc<dyn Store>) {
    assert_eq!(store.get(b"a").await.unwrap(), None);
    let page = store.range(Range::prefix(b"")).await.unwrap();
    assert_eq!((page.items.len(), page.more, page.at), (0, false, store.revision()));
    assert!(store.floor() <= store.revision());
    assert_eq!(store.latest().await.unwrap(), store.revision());
    assert!(store.health().is_ok());
}

async fn a_range_is_ordered_and_half_open(store: Arc<dyn Store>) {
    for key in ["c", "a", "b", "d", "b/2", "b/1"] {
        put(&*store, key, "").await;
    }
    let checks: [(&str, &str, usize, &[&str], bool); 6] = [
        ("a", "c", 0, &["a=", "b=", "b/1=", "b/2="], false),
        ("a", "c", 4, &["a=", "b=", "b/1=", "b/2="], false),
        ("a", "c", 2, &["a=", "b="], true),
        ("b/", "", 0, &["b/1=", "b/2=", "c=", "d="], false),
        ("c", "c", 0, &[], false),
        ("d", "a", 0, &[], false),
    ];
    for (start, end, limit, keys, more) in checks {
        let first = start.to_owned().into();
        let last = end.to_owned().into();
        let query = Range { start: first, end: last, limit, at: None };
        let page = store.range(query).await.unwrap();
        let shown: Vec<_> = page.items.iter().map(show).collect();
        assert_eq!((&shown[..], page.more), (&keys.map_string()[..], more), "{start}..{end}");
    }
    assert_eq!(list(&*store, "b/", None).await, ["b/1=", "b/2="]);
}

async fn pages_continue_at_one_revision(store: Arc<dyn Store>) {
    for key in ["a", "b", "c", "d"] {
        put(&*store, key, "1").await;
    }
    let query = Range { limit: 2, ..Range::prefix(b"") };
    let first = store.range(query).await.unwrap();
    assert!(first.more);
    put(&*store, "c", "2").await;
    delete(&*store, "d").await;
    put(&*store, "e", "1").await;
    let query = Range { start: "b\0".into(), at: Some(first.at), ..Range::prefix(b"") };
    let rest = store.range(query).await.unwrap();
    assert_eq!(rest.items.iter().map(show).collect::<Vec<_>>(), ["c=1", "d=1"]);
    assert_eq!((rest.at, rest.more), (first.at, false));
}

async fn old_revisions_stay_readable(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1").await;
    let second = put(&*store, "b", "1").await;
    let third = put(&*store, "a", "2").await;
    let fourth = delete(&*store, "b").await;
    let fifth = put(&*store, "b", "2").await;
    let checks: [(Revision, &[&str]); 5] = [
        (first, &["a=1"]),
        (second, &["a=1", "b=1"]),
        (third, &["a=2", "b=1"]),
        (fourth, &["a=2"]),
        (fifth, &["a=2", "b=2"]),
    ];
    for (at, shown) in checks {
        assert_eq!(list(&*store, "", Some(at)).await, shown, "at {at}");
    }
    let page = store.range(Range { at: Some(third), ..Range::prefix(b"a") }).await.unwrap();
    assert_eq!((page.items[0].created, page.items[0].modified), (first, third));
}

async fn a_future_revision_is_an_error(store: Arc<dyn Store>) {
    let newest = put(&*store, "a", "1").await;
    let query = Range { at: Some(newest.next()), ..Range::prefix(b"") };
    let error = store.range(query).await.unwrap_err();
    assert!(matches!(error, ReadError::Future { asked, .. } if asked == newest.next()), "{error}");
    let error = store.load(b"", Some(newest.next()), &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, ReadError::Future { .. }), "{error}");
}

async fn load_gives_every_live_key_once(store: Arc<dyn Store>) {
    for n in 0..20 {
        put(&*store, &format!("p/{:02}", n % 10), &n.to_string()).await;
    }
    put(&*store, "q", "").await;
    let old = store.revision();
    delete(&*store, "p/03").await;
    let load = async |at| {
        let mut items = Vec::new();
        let at = store.load(b"p/", at, &mut |kv| items.push(kv)).await.unwrap();
        items.sort_by(|a, b| a.key.cmp(&b.key));
        (at, items.iter().map(show).collect::<Vec<_>>())
    };
    let (at, items) = load(None).await;
    assert_eq!((at, items.len()), (store.revision(), 9));
    assert_eq!(items[2..4], ["p/02=12", "p/04=14"]);
    let (at, items) = load(Some(old)).await;
    assert_eq!((at, items.len(), &items[3][..]), (old, 10, "p/03=13"));
    assert_eq!(items, list(&*store, "p/", Some(old)).await);
}

async fn keys_are_bytes(store: Arc<dyn Store>) {
    for key in [&b"\x00"[..], b"\xff", b"\xff\xff", b"a\x00", b"a\xff"] {
        let op = crate::Op::Put { key: key.to_vec().into(), value: "".into(), lease: None };
        super::commit(&*store, crate::Txn { compare: vec![], ops: vec![op] }).await;
    }
    assert_eq!(list(&*store, "a", None).await, [r"a\x00=", r"a\xff="]);
    let page = store.range(Range::prefix(b"\xff")).await.unwrap();
    assert_eq!(page.items.iter().map(show).collect::<Vec<_>>(), [r"\xff=", r"\xff\xff="]);
}

trait MapString {
    fn map_string(&self) -> Vec<String>;
}

impl MapString for [&str] {
    fn map_string(&self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }
}
