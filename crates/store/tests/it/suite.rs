//! Every conformance case and the random walk, on each kind of store.

use std::sync::Arc;

use keelson_store::conformance::{Inverted, Walk, cases, put};
use keelson_store::{Embedded, EmbeddedOptions, Model, Revision, Store, Transformed, WatchError};
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
async fn values_of_another_form_pass_the_suite() {
    for waits in [false, true] {
        check(|| Transformed::new(Embedded::in_memory(), Arc::new(Inverted { waits }))).await;
        for seed in 0..3 {
            let transform = Arc::new(Inverted { waits });
            let store = Transformed::new(Embedded::in_memory(), transform);
            Walk::new(seed).steps(&*store, 500).await;
        }
    }
}

#[tokio::test]
async fn the_backend_has_the_other_form_and_knows_stale_values() {
    let plain = Embedded::in_memory();
    let inverted = Transformed::new(plain.clone(), Arc::new(Inverted { waits: false }));
    put(&*inverted, "a", "v").await;
    put(&*inverted, "b", "\0").await;
    let raw = plain.get(b"a").await.expect("a read").expect("a value");
    assert_eq!(raw.value, vec![!b'v']);
    for (key, is_stale) in [("a", false), ("b", true), ("c", false)] {
        assert_eq!(inverted.is_stale(key.as_bytes()).await.expect("a read"), is_stale, "{key}");
        assert!(!plain.is_stale(key.as_bytes()).await.expect("a read"));
    }
}

#[tokio::test]
async fn a_reread_ends_the_watches_that_are_open() {
    let store = Transformed::new(Embedded::in_memory(), Arc::new(Inverted { waits: false }));
    let at = put(&*store, "a", "v").await;
    let mut watch = store.watch("".into(), Revision(0)).expect("a watch");
    assert_eq!(watch.next().await.expect("a batch").through, at);
    store.reread();
    assert!(matches!(watch.next().await, Err(WatchError::Reread)));
    let mut watch = store.watch("".into(), Revision(0)).expect("a watch");
    assert_eq!(watch.next().await.expect("a batch").through, at);
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
