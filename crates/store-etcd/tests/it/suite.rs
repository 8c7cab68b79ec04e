//! Every conformance case and the random walk.

use keelson_store::conformance::{Walk, cases};

use crate::{etcd, open};

#[tokio::test]
async fn etcd_passes_the_suite() {
    let Some(etcd) = etcd().await else { return };
    for case in cases() {
        let store = open(&etcd, case.name).await;
        let name = case.name;
        let task = tokio::spawn(async move { case.run(store).await });
        task.await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
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
