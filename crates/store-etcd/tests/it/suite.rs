//! Every conformance case and the random walk.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keelson_store::conformance::{Inverted, Walk, cases, leases};
use keelson_store::{Store, Timestamp, Transformed};
use keelson_store_etcd::{EtcdOptions, EtcdStore};

use crate::{etcd, open};

#[tokio::test]
async fn etcd_passes_the_suite() {
    let Some(etcd) = etcd().await else { return };
    for case in cases() {
        case.run(open(&etcd, case.name).await).await;
    }
}

#[tokio::test]
async fn values_of_another_form_pass_the_suite() {
    let Some(etcd) = etcd().await else { return };
    let options = |name: &str| EtcdOptions {
        root: String::new(),
        prefix: format!("/{name}/"),
        ..EtcdOptions::new(vec![etcd.url()])
    };
    for case in cases() {
        let store = EtcdStore::open(options(case.name)).await.unwrap();
        case.run(Transformed::new(store, Arc::new(Inverted { waits: false }))).await;
    }
    let plain = EtcdStore::open(options("both")).await.unwrap();
    let inverted = Transformed::new(plain.clone(), Arc::new(Inverted { waits: false }));
    keelson_store::conformance::put(&*inverted, "a", "v").await;
    assert_eq!(inverted.get(b"a").await.unwrap().unwrap().value, "v");
    assert_eq!(plain.get(b"a").await.unwrap().unwrap().value, vec![!b'v']);
}

#[tokio::test]
async fn etcd_walks_like_the_model() {
    let Some(etcd) = etcd().await else { return };
    for seed in 0..4 {
        let store = open(&etcd, &seed.to_string()).await;
        Walk::new(seed).steps(&*store, 300).await;
    }
}

#[tokio::test]
async fn etcd_walks_like_the_model_over_restarts() {
    let Some(mut etcd) = etcd().await else { return };
    let store = open(&etcd, "walk").await;
    let mut walk = Walk::new(100);
    for _ in 0..3 {
        walk.steps(&*store, 80).await;
        etcd.restart().await;
    }
}

#[tokio::test]
async fn etcd_expires_keys() {
    let Some(etcd) = etcd().await else { return };
    let store = open(&etcd, "leases").await;
    let pass = async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp(since.as_millis() as u64)
    };
    leases(&*store, pass).await;
}
