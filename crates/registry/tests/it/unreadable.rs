//! Unreadable objects are errors and not reported as absent.

use crate::harness::Harness;
use keelson_admission::Stored;
use keelson_auth::Permit;
use keelson_registry::options::{WatchOptions, WatchStart};

const WHY: &str = "unknown record format";

async fn with_unreadable(key: &'static str) -> Harness {
    let harness = Harness::open().await;
    harness.put_raw(key, "what?").await;
    harness
}

#[tokio::test]
async fn a_watch_continues_without_an_unreadable_object() {
    let harness = with_unreadable("/registry/configmaps/one/a").await;
    let permit = Permit::internal("test");
    let now = WatchStart::After(harness.registry.cache.revision());
    let starts = [
        (WatchStart::Latest, None),
        (WatchStart::Any, None),
        (now, Some(true)),
        (now, None),
        (WatchStart::Latest, Some(true)),
    ];
    for (start, initial_events) in starts {
        let target = harness.registry.target("", "configmaps", "one", "");
        let options = WatchOptions { start, initial_events, ..WatchOptions::default() };
        let watch = harness.registry.watch(&permit, &target, &options).await;
        let mut events = vec![];
        watch.expect("a watch").take(&mut events).expect("events");
        assert!(events.is_empty(), "{start:?}");
    }
}

#[tokio::test]
async fn an_unreadable_object_is_an_error_and_not_absent() {
    let harness = with_unreadable("/registry/limitranges/one/a").await;
    let stored: &dyn Stored = &*harness.registry;
    let found = |namespace: &str| match stored.list("", "limitranges", namespace) {
        Ok(found) => (200, found.len()),
        Err(failure) => (failure.code, usize::from(failure.message.contains(WHY))),
    };
    assert_eq!((found("one"), found(""), found("two")), ((500, 1), (500, 1), (200, 0)));
    let one = |name: &str| match stored.get("", "limitranges", "one", name) {
        Ok(found) => (200, found.is_some()),
        Err(failure) => (failure.code, failure.message.contains(WHY)),
    };
    assert_eq!((one("a"), one("b")), ((500, true), (200, false)));
}
