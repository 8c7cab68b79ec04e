//! What admission makes of an object is bounded.

use crate::harness::Harness;
use keelson_admission::Api;
use keelson_meta::growth::GROWN_OBJECT_BYTES_MAX;
use keelson_meta::{GroupVersionKind, Value, value};

/// Webhooks and policies are called one after the other, and each may add a little.
#[tokio::test]
async fn a_mutation_cannot_make_an_object_too_large() {
    let harness = Harness::open().await;
    let kind = GroupVersionKind::new("", "v1", "ConfigMap");
    let mutated = |bytes: usize| {
        let text = Value::from("x".repeat(bytes));
        let map = value!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": (text)}});
        Api::canonicalize(&*harness.registry, &kind, map).map(drop)
    };
    assert_eq!(mutated(GROWN_OBJECT_BYTES_MAX - 1_000), Ok(()));
    let why = "etcdserver: request is too large".to_owned();
    assert_eq!(mutated(GROWN_OBJECT_BYTES_MAX), Err(why));
}
