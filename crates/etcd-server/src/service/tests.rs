//! What the calls answer, without connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::EtcdError;
use crate::options::EtcdOptions;
use crate::proto::{
    AlarmAction, AlarmRequest, CompactionRequest, Compare, CompareTarget, DeleteRangeRequest,
    EmptyRequest, Expected, HashKvRequest, KeyValue, LeaseGrantRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, PutRequest, RangeRequest, Request, RequestOp, Response, TxnRequest,
    TxnResponse,
};

async fn engine() -> Arc<Engine> {
    Engine::open(EtcdOptions::default()).await.expect("open")
}

async fn engine_in(dir: &Path) -> Arc<Engine> {
    let options = EtcdOptions { data_dir: Some(dir.to_owned()), ..EtcdOptions::default() };
    Engine::open(options).await.expect("open")
}

fn put_request(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..PutRequest::default()
    }
}

/// Puts a key; returns the revision.
async fn put(engine: &Arc<Engine>, key: &str, value: &str) -> i64 {
    let response = engine.clone().put(put_request(key, value)).await.expect("put");
    response.header.expect("a header").revision
}

async fn put_leased(engine: &Arc<Engine>, key: &str, lease: i64) -> Result<(), EtcdError> {
    let req = PutRequest { lease, ..put_request(key, "v") };
    engine.clone().put(req).await.map(drop)
}

async fn get_at(
    engine: &Arc<Engine>,
    key: &str,
    revision: i64,
) -> Result<Vec<KeyValue>, EtcdError> {
    let req = RangeRequest { key: key.to_owned().into(), revision, ..RangeRequest::default() };
    Ok(engine.clone().range(req).await?.kvs)
}

async fn compact(engine: &Arc<Engine>, revision: i64) -> Result<(), EtcdError> {
    engine.clone().compact_range(CompactionRequest { revision, physical: false }).await.map(drop)
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn put_op(key: &str, value: &str) -> RequestOp {
    op(Request::Put(put_request(key, value)))
}

fn get_op(key: &str, end: &str) -> RequestOp {
    let key = key.to_owned().into();
    let range_end = end.to_owned().into();
    op(Request::Range(RangeRequest { key, range_end, ..RangeRequest::default() }))
}

/// Describes the responses of a transaction.
fn shown(response: &TxnResponse) -> Vec<String> {
    let show = |op: &crate::proto::ResponseOp| match op.response.as_ref().expect("a response") {
        Response::Range(range) => {
            let kvs = range.kvs.iter().map(|kv| {
                let key = kv.key.escape_ascii();
                let value = kv.value.escape_ascii();
                format!("{key}={value}@{}v{}", kv.mod_revision, kv.version)
            });
            format!("get {} of {}", kvs.collect::<Vec<_>>().join(" "), range.count)
        }
        Response::Put(put) => format!("put at {}", put.header.expect("a header").revision),
        Response::DeleteRange(delete) => format!("deleted {}", delete.deleted),
        Response::Txn(txn) => format!("{}: {}", txn.succeeded, shown(txn).join(", ")),
    };
    response.responses.iter().map(show).collect()
}

#[tokio::test]
async fn a_transaction_is_one_revision_and_sees_its_own_writes() {
    let engine = engine().await;
    put(&engine, "a", "1").await;
    put(&engine, "b", "1").await;
    let delete = DeleteRangeRequest { key: "b".into(), ..DeleteRangeRequest::default() };
    let success = vec![
        put_op("a", "2"),
        get_op("a", ""),
        op(Request::DeleteRange(delete)),
        put_op("c", "1"),
        get_op("a", "z"),
    ];
    let response =
        engine.clone().txn(TxnRequest { success, ..TxnRequest::default() }).await.expect("done");
    let expected =
        ["put at 4", "get a=2@4v2 of 1", "deleted 1", "put at 4", "get a=2@4v2 c=1@4v1 of 2"];
    assert_eq!(shown(&response), expected);
    assert_eq!(response.header.expect("a header").revision, 4);
    assert_eq!(engine.revision(), 4);
    assert_eq!(get_at(&engine, "b", 3).await.expect("the past").len(), 1);
}

#[tokio::test]
async fn compares_of_nested_transactions_are_decided_before_anything_is_written() {
    let engine = engine().await;
    let is_absent = Compare {
        target: CompareTarget::Version.into(),
        key: "a".into(),
        target_union: Some(Expected::Version(0)),
        ..Compare::default()
    };
    let nested = TxnRequest {
        compare: vec![is_absent.clone()],
        success: vec![put_op("b", "first")],
        failure: vec![put_op("b", "second")],
    };
    let txn = TxnRequest {
        compare: vec![is_absent],
        success: vec![put_op("a", "1"), op(Request::Txn(nested))],
        failure: vec![get_op("b", "")],
    };
    let response = engine.clone().txn(txn.clone()).await.expect("done");
    assert_eq!(shown(&response), ["put at 2", "true: put at 2"]);
    let response = engine.clone().txn(txn).await.expect("done");
    assert!(!response.succeeded);
    assert_eq!(shown(&response), ["get b=first@2v1 of 1"]);
    assert_eq!(engine.revision(), 2);
}

#[tokio::test]
async fn a_transaction_that_is_refused_changes_nothing() {
    let engine = engine().await;
    let leased = PutRequest { lease: 77, ..put_request("b", "1") };
    let success = vec![put_op("a", "1"), op(Request::Put(leased))];
    let error = engine.clone().txn(TxnRequest { success, ..TxnRequest::default() }).await;
    assert!(matches!(error, Err(EtcdError::LeaseNotFound)), "{error:?}");
    let future = RangeRequest { key: "a".into(), revision: 9, ..RangeRequest::default() };
    let success = vec![put_op("a", "1"), op(Request::Range(future))];
    let error = engine.clone().txn(TxnRequest { success, ..TxnRequest::default() }).await;
    assert!(matches!(error, Err(EtcdError::FutureRevision)), "{error:?}");
    assert_eq!(engine.revision(), 1);
    assert!(get_at(&engine, "a", 0).await.expect("a read").is_empty());
}

#[tokio::test]
async fn the_past_is_read_until_it_is_compacted_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = engine_in(dir.path()).await;
    for value in ["1", "2", "3"] {
        put(&engine, "a", value).await;
    }
    drop(engine);
    let engine = engine_in(dir.path()).await;
    assert_eq!(get_at(&engine, "a", 2).await.expect("the past")[0].value, "1");
    assert!(matches!(get_at(&engine, "a", 5).await, Err(EtcdError::FutureRevision)));
    let before = engine.clone().hash_kv(HashKvRequest { revision: 0 }).await.expect("a hash");
    assert!(matches!(compact(&engine, 5).await, Err(EtcdError::FutureRevision)));
    compact(&engine, 3).await.expect("compacted");
    drop(engine);
    let engine = engine_in(dir.path()).await;
    assert_eq!(engine.compacted(), 3);
    assert!(matches!(get_at(&engine, "a", 2).await, Err(EtcdError::Compacted)));
    assert_eq!(get_at(&engine, "a", 3).await.expect("the past")[0].value, "2");
    assert!(matches!(compact(&engine, 3).await, Err(EtcdError::Compacted)));
    let after = engine.clone().hash_kv(HashKvRequest { revision: 0 }).await.expect("a hash");
    assert_ne!(before.hash, after.hash, "the older versions are not hashed any more");
    assert_eq!((before.compact_revision, after.compact_revision), (-1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_lease_takes_its_keys_along() {
    let engine = engine().await;
    let grant = async |id, ttl| engine.clone().lease_grant(LeaseGrantRequest { ttl, id }).await;
    let granted = grant(7, 60).await.expect("granted");
    assert_eq!((granted.id, granted.ttl), (7, 60));
    assert!(matches!(grant(7, 60).await, Err(EtcdError::LeaseExists)));
    assert!(matches!(grant(0, i64::MAX).await, Err(EtcdError::LeaseTtlTooLarge)));
    assert_eq!(grant(8, 1).await.expect("granted").ttl, 2, "the shortest");
    assert!(matches!(put_leased(&engine, "x", 9).await, Err(EtcdError::LeaseNotFound)));
    for key in ["b", "a", "freed"] {
        put_leased(&engine, key, 7).await.expect("put");
    }
    put(&engine, "freed", "1").await;
    let ask = LeaseTimeToLiveRequest { id: 7, keys: true };
    let times = engine.clone().lease_time_to_live(ask).await.expect("times");
    assert_eq!(times.keys, ["a", "b"]);
    assert_eq!(times.granted_ttl, 60);
    let before = engine.revision();
    // Not before: paused time jumps to the next expiry while the commit thread is waited for.
    tokio::spawn(engine.clone().expire_leases());
    tokio::time::sleep(Duration::from_secs(61)).await;
    // The commit thread does not live in the paused time.
    while engine.leases.table().len() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.revision(), before + 1, "one revision for all keys");
    for (key, count) in [("a", 0), ("b", 0), ("freed", 1)] {
        assert_eq!(get_at(&engine, key, 0).await.expect("a read").len(), count, "{key}");
    }
    let revoked = engine.clone().lease_revoke(LeaseRevokeRequest { id: 7 }).await;
    assert!(matches!(revoked, Err(EtcdError::LeaseNotFound)));
}

#[tokio::test]
async fn leases_and_their_keys_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = engine_in(dir.path()).await;
    let grant = LeaseGrantRequest { ttl: 60, id: 7 };
    engine.clone().lease_grant(grant).await.expect("granted");
    for key in ["a", "b"] {
        put_leased(&engine, key, 7).await.expect("put");
    }
    put(&engine, "b", "1").await;
    drop(engine);
    let engine = engine_in(dir.path()).await;
    engine.learn_leases().await.expect("learned");
    let ask = LeaseTimeToLiveRequest { id: 7, keys: true };
    let times = engine.clone().lease_time_to_live(ask).await.expect("times");
    assert_eq!(times.keys, ["a"]);
    engine.clone().lease_revoke(LeaseRevokeRequest { id: 7 }).await.expect("revoked");
    assert!(get_at(&engine, "a", 0).await.expect("a read").is_empty());
    let leases = engine.clone().lease_leases(EmptyRequest {}).await.expect("leases").leases;
    assert!(leases.is_empty());
}

#[tokio::test]
async fn a_full_quota_refuses_writes_until_the_alarm_is_disarmed() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = EtcdOptions {
        data_dir: Some(dir.path().to_owned()),
        // A new file is larger.
        quota_bytes: Some(1),
        ..EtcdOptions::default()
    };
    let engine = Engine::open(options).await.expect("open");
    let full = engine.clone().put(put_request("a", "1")).await;
    assert!(matches!(full, Err(EtcdError::NoSpace)), "{full:?}");
    let status = engine.clone().status(EmptyRequest {}).await.expect("status");
    assert!(status.errors[0].contains("alarm:NOSPACE"), "{:?}", status.errors);
    drop(engine);
    // The alarm stays, also with a larger quota.
    let engine = engine_in(dir.path()).await;
    let full = engine.clone().put(put_request("a", "1")).await;
    assert!(matches!(full, Err(EtcdError::NoSpace)), "{full:?}");
    let delete = DeleteRangeRequest { key: "a".into(), ..DeleteRangeRequest::default() };
    engine.clone().delete_range(delete).await.expect("deletes make room");
    let disarm = AlarmRequest { action: AlarmAction::Deactivate.into(), ..AlarmRequest::default() };
    assert_eq!(engine.clone().alarm(disarm).await.expect("disarmed").alarms.len(), 1);
    put(&engine, "a", "1").await;
}

#[tokio::test]
async fn requests_have_the_maximum_of_the_flag() {
    let engine = engine().await;
    let value = "v".repeat(engine.options.request_bytes_max);
    let error = engine.clone().put(put_request("a", &value)).await;
    assert!(matches!(error, Err(EtcdError::RequestTooLarge)));
}

#[tokio::test]
async fn a_limited_range_counts_all_keys() {
    let engine = engine().await;
    for n in 0..30 {
        put(&engine, &format!("k{n:02}"), "v").await;
    }
    let req = RangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        limit: 7,
        ..RangeRequest::default()
    };
    let response = engine.clone().range(req.clone()).await.expect("a page");
    assert_eq!((response.kvs.len(), response.more, response.count), (7, true, 30));
    let req = RangeRequest { count_only: true, ..req };
    let response = engine.clone().range(req).await.expect("a count");
    assert_eq!((response.kvs.len(), response.more, response.count), (0, false, 30));
}
