//! Every conformance case and the random walk, on each kind of store.

use std::sync::Arc;

use keelson_store::conformance::{Walk, cases};
use keelson_store::{Embedded, EmbeddedOptions, Model, Store};
use tempfile::TempDir;

async fn check(open: impl Fn() -> Arc<dyn Store>) {
    for case in cases() {
        case.run(open()).await;
    }
}

fn open(dir: &TempDir) -> Arc<Embedded> {
    Embedded::open(EmbeddedOptions::new(dir.path())).expect("open")
}

#[tokio::test]
async fn the_model_passes_the_suite() {
    check(|| Arc::new(Model::new())).await;
}

#[tokio::test]
async fn the_engine_in_memory_passes_the_suite() {
    check(|| Embedded::in_memory()).await;
}

#[tokio::test]
async fn the_engine_on_disk_passes_the_suite() {
    let root = TempDir::new().expect("directory");
    check(|| {
        let dir = TempDir::new_in(root.path()).expect("directory").keep();
        Embedded::open(EmbeddedOptions::new(dir)).expect("open")
    })
    .await;
}

#[tokio::test]
async fn the_model_walks_like_itself() {
    for seed in 0..5 {
        Walk::new(seed).steps(&Model::new(), 500).await;
    }
}

#[tokio::test]
async fn the_engine_in_memory_walks_like_the_model() {
    for seed in 0..30 {
        Walk::new(seed).steps(&*Embedded::in_memory(), 500).await;
    }
}

#[tokio::test]
async fn the_engine_on_disk_walks_like_the_model_over_restarts() {
    for seed in 100..104 {
        let dir = TempDir::new().expect("directory");
        let mut walk = Walk::new(seed);
        for _ in 0..6 {
            walk.steps(&*open(&dir), 120).await;
        }
    }
}
