//! Effects of transactions.

use std::sync::Arc;

use super::{Case, commit, compare, delete, delete_op, list, put, put_op};
use crate::{
    KEY_BYTES_MAX, Op, Revision, Store, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnOutcome, WriteError,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("create_needs_an_absent_key", create_needs_an_absent_key),
        Case::new("update_needs_the_newest_revision", update_needs_the_newest_revision),
        Case::new("a_conflict_takes_no_revision", a_conflict_takes_no_revision),
        Case::new("operations_share_one_revision", operations_share_one_revision),
        Case::new("all_compares_must_hold", all_compares_must_hold),
        Case::new("a_key_made_again_is_a_new_incarnation", a_key_made_again_is_a_new_incarnation),
        Case::new("deleting_nothing_changes_nothing", deleting_nothing_changes_nothing),
        Case::new("a_check_alone_takes_no_revision", a_check_alone_takes_no_revision),
        Case::new("what_is_over_a_maximum_is_refused", what_is_over_a_maximum_is_refused),
        Case::new("a_large_value_comes_back_whole", a_large_value_comes_back_whole),
    ]
}

async fn create_needs_an_absent_key(store: Arc<dyn Store>) {
    let create = Txn { compare: vec![compare("a", Revision(0))], ops: vec![put_op("a", "1")] };
    let first = commit(&*store, create.clone()).await;
    let outcome = store.txn(create.clone()).await.unwrap();
    let TxnOutcome::Conflict { key, current } = outcome else { panic!("{outcome:?}") };
    let current = current.unwrap();
    assert_eq!((&key[..], &current.value[..]), (&b"a"[..], &b"1"[..]));
    assert_eq!((current.created, current.modified), (first, first));
    delete(&*store, "a").await;
    assert!(commit(&*store, create).await > first);
}

async fn update_needs_the_newest_revision(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1").await;
    let second = put(&*store, "a", "2").await;
    let update = |at| Txn { compare: vec![compare("a", at)], ops: vec![put_op("a", "3")] };
    let outcome = store.txn(update(first)).await.unwrap();
    let TxnOutcome::Conflict { current: Some(current), .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((&current.value[..], current.created, current.modified), (&b"2"[..], first, second));
    commit(&*store, update(current.modified)).await;
    assert_eq!(list(&*store, "", None).await, ["a=3"]);
    delete(&*store, "a").await;
    let outcome = store.txn(update(current.modified)).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Conflict { current: None, .. }), "{outcome:?}");
}

async fn a_conflict_takes_no_revision(store: Arc<dyn Store>) {
    put(&*store, "a", "1").await;
    let before = store.revision();
    let stale = Txn { compare: vec![compare("a", Revision(0))], ops: vec![put_op("b", "1")] };
    let outcome = store.txn(stale).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(store.revision(), before);
    assert_eq!(list(&*store, "", None).await, ["a=1"]);
}

async fn operations_share_one_revision(store: Arc<dyn Store>) {
    put(&*store, "gone", "1").await;
    let ops = vec![put_op("a", "1"), delete_op("gone"), put_op("b", "2")];
    let at = commit(&*store, Txn { compare: vec![], ops }).await;
    for key in ["a", "b"] {
        let kv = store.get(key.as_bytes()).await.unwrap().unwrap();
        assert_eq!((kv.created, kv.modified), (at, at), "{key}");
    }
    assert_eq!(list(&*store, "", None).await, ["a=1", "b=2"]);
    assert_eq!(store.revision(), at);
}

async fn all_compares_must_hold(store: Arc<dyn Store>) {
    let a = put(&*store, "a", "1").await;
    let compares = vec![compare("a", a), compare("b", Revision(0)), compare("c", a)];
    let txn = Txn { compare: compares, ops: vec![put_op("b", "1"), put_op("a", "2")] };
    let outcome = store.txn(txn).await.unwrap();
    let TxnOutcome::Conflict { key, current: None } = outcome else { panic!("{outcome:?}") };
    assert_eq!(key, "c");
    assert_eq!(list(&*store, "", None).await, ["a=1"]);
}

async fn a_key_made_again_is_a_new_incarnation(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1").await;
    let second = put(&*store, "a", "2").await;
    let kv = store.get(b"a").await.unwrap().unwrap();
    assert_eq!((kv.created, kv.modified), (first, second));
    delete(&*store, "a").await;
    assert_eq!(store.get(b"a").await.unwrap(), None);
    let third = put(&*store, "a", "3").await;
    let kv = store.get(b"a").await.unwrap().unwrap();
    assert_eq!((kv.created, kv.modified), (third, third));
}

async fn deleting_nothing_changes_nothing(store: Arc<dyn Store>) {
    let at = put(&*store, "a", "1").await;
    assert_eq!(delete(&*store, "absent").await, at);
    assert_eq!(store.revision(), at);
    let ops = vec![delete_op("absent"), put_op("b", "1")];
    assert!(commit(&*store, Txn { compare: vec![], ops }).await > at);
}

async fn a_check_alone_takes_no_revision(store: Arc<dyn Store>) {
    let at = put(&*store, "a", "1").await;
    let check = |at| Txn { compare: vec![compare("a", at)], ops: vec![] };
    assert_eq!(commit(&*store, check(at)).await, at);
    let outcome = store.txn(check(Revision(0))).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(store.revision(), at);
}

async fn what_is_over_a_maximum_is_refused(store: Arc<dyn Store>) {
    let before = store.revision();
    let refuse = async |ops| store.txn(Txn { compare: vec![], ops }).await.unwrap_err();
    let long = Op::Put { key: vec![b'k'; KEY_BYTES_MAX + 1].into(), value: "".into(), lease: None };
    assert!(matches!(refuse(vec![long]).await, WriteError::KeyLength { .. }));
    assert!(matches!(refuse(vec![put_op("", "")]).await, WriteError::KeyLength { bytes: 0 }));
    let large = Op::Put { key: "a".into(), value: vec![0; TXN_BYTES_MAX].into(), lease: None };
    assert!(matches!(refuse(vec![large]).await, WriteError::TooLarge { .. }));
    let many = (0..=TXN_OPS_MAX).map(|n| put_op(&n.to_string(), "")).collect();
    assert!(matches!(refuse(many).await, WriteError::TooManyOps { .. }));
    let twice = refuse(vec![put_op("a", "1"), delete_op("a")]).await;
    assert!(matches!(twice, WriteError::DuplicateKey { .. }));
    assert_eq!(store.revision(), before);
}

async fn a_large_value_comes_back_whole(store: Arc<dyn Store>) {
    let value: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let op = Op::Put { key: "large".into(), value: value.clone().into(), lease: None };
    commit(&*store, Txn { compare: vec![], ops: vec![op] }).await;
    put(&*store, "empty", "").await;
    assert!(store.get(b"large").await.unwrap().unwrap().value == value);
    assert_eq!(store.get(b"empty").await.unwrap().unwrap().value, "");
}
