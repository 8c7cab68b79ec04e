//! Objects that cannot be read: nobody is told that they are not there.

use crate::harness::Harness;
use keelson_admission::Stored;
use keelson_auth::Permit;
use keelson_registry::WatchRefusal;
use keelson_registry::options::{WatchOptions, WatchStart};

const WHY: &str = "unknown record format";

async fn with_unreadable(key: &'static str) -> Harness {
    let harness = Harness::open().await;
    harness.put_raw(key, "what?").await;
    harness
}

#[tokio::test]
async fn a_watch_that_begins_with_the_state_is_refused_by_an_event() {
    let harness = with_unreadable("/registry/configmaps/one/a").await;
    let permit = Permit::internal("test");
    let watch = async |namespace: &str, start: WatchStart, initial_events: Option<bool>| {
        let target = harness.registry.target("", "configmaps", namespace, "");
        let options = WatchOptions { start, initial_events, ..WatchOptions::default() };
        match harness.registry.watch(&permit, &target, &options).await {
            Ok(_) => None,
            Err(WatchRefusal::Event(failure)) => {
                Some((failure.code, failure.message.contains(WHY)))
            }
            Err(WatchRefusal::Answer(failure)) => panic!("an answer: {failure:?}"),
        }
    };
    let now = WatchStart::After(harness.registry.cache.revision());
    let refused = Some((500, true));
    assert_eq!(watch("one", WatchStart::Latest, None).await, refused);
    assert_eq!(watch("", WatchStart::Any, None).await, refused);
    assert_eq!(watch("", now, Some(true)).await, refused);
    // Without the state nothing is left out of it, nor in another namespace.
    assert_eq!(watch("one", now, None).await, None);
    assert_eq!(watch("two", WatchStart::Latest, Some(true)).await, None);
}

#[tokio::test]
async fn a_limit_is_not_taken_for_absent() {
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
