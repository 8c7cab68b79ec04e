//! The suite of the storage contract.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keelson_store::conformance::{Walk, cases, leases, put};
use keelson_store::{Store, Timestamp};

use crate::Running;

#[tokio::test(flavor = "multi_thread")]
async fn the_server_passes_the_suite_of_the_contract() {
    let server = Running::in_memory().await;
    for case in cases() {
        case.run(server.store(case.name).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_walks_like_the_model() {
    let server = Running::in_memory().await;
    for seed in 0..4 {
        let store = server.store(&seed.to_string()).await;
        Walk::new(seed).steps(&*store, 300).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_expire_with_their_leases() {
    let server = Running::in_memory().await;
    let store = server.store("leases").await;
    let pass = async || {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp(since.as_millis() as u64)
    };
    leases(&*store, pass).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::in_folder(dir.path()).await;
    let store = server.store("kept").await;
    let first = put(&*store, "a", "1").await;
    let second = put(&*store, "a", "2").await;
    drop(store);
    drop(server);
    let server = Running::in_folder(dir.path()).await;
    let store = server.store("kept").await;
    let kv = store.get(b"a").await.unwrap().unwrap();
    assert_eq!((&kv.value[..], kv.created, kv.modified), (&b"2"[..], first, second));
}
