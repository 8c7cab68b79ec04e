//! Every conformance case and the random walk, on each kind of store.

use std::sync::Arc;

use keelson_store::conformance::{Walk, cases};
use keelson_store::{Model, Store};

async fn check(open: impl Fn() -> Arc<dyn Store>) {
    for case in cases() {
        case.run(open()).await;
    }
}

#[tokio::test]
async fn the_model_passes_the_suite() {
    check(|| Arc::new(Model::new())).await;
}

#[tokio::test]
async fn the_model_walks_like_itself() {
    for seed in 0..20 {
        Walk::new(seed).steps(&Model::new(), 500).await;
    }
}
