//! Every conformance case and the random walk.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keelson_store::conformance::{Walk, cases, leases};
use keelson_store::{DiskError, Store, Timestamp};
use keelson_store_etcd::{EtcdOptions, EtcdStore, ValueCodec};

use crate::{etcd, open};

/// Values are upside down in the cluster.
#[derive(Debug)]
struct Inverted;

impl ValueCodec for Inverted {
    fn encode(&self, key: &[u8], value: &Bytes) -> Result<Bytes, DiskError> {
        Ok(self.decode(key, value.clone()))
    }

    fn decode(&self, _key: &[u8], value: Bytes) -> Bytes {
        value.iter().map(|byte| !byte).collect()
    }
}

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
        let options = EtcdOptions { codec: Arc::new(Inverted), ..options(case.name) };
        case.run(EtcdStore::open(options).await.unwrap()).await;
    }
    let inverted = EtcdOptions { codec: Arc::new(Inverted), ..options("both") };
    let inverted = EtcdStore::open(inverted).await.unwrap();
    let plain = EtcdStore::open(options("both")).await.unwrap();
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
