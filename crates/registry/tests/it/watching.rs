//! Events that a running watch reads from the history.

use crate::harness::Harness;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::selector;
use keelson_registry::options::{WatchOptions, WatchStart};

/// A bookmark promises that all earlier changes were read, also long runs that do not match.
#[tokio::test]
async fn changes_outside_the_selector_do_not_end_a_watch() {
    let harness = Harness::open().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let target = harness.place(maps).expect("a resource").target;
    let options = WatchOptions {
        labels: selector::parse("a=b").expect("a selector"),
        fields: FieldSelector::default(),
        start: WatchStart::Latest,
        initial_events: None,
        bookmarks: true,
    };
    let permit = keelson_auth::Permit::internal("test");
    let mut session = harness.registry.watch(&permit, &target, &options).await.expect("a watch");
    for n in 0..600 {
        let label = if n == 599 { "b" } else { "c" };
        let body = format!(r#"{{"metadata":{{"name":"m{n}","labels":{{"a":"{label}"}}}}}}"#);
        let made = harness.send("POST", maps, "", body.as_bytes()).await.expect("an answer");
        assert_eq!(made.0, 201);
    }
    harness.registry.cache.wait_latest().await.expect("the cache follows");
    let mut events = vec![];
    session.take(&mut events).expect("the history is there");
    // On a busy machine other tasks run in between.
    while events.is_empty() && session.is_paused() {
        session.changed().await.expect("the resource is served");
        session.take(&mut events).expect("the history is there");
    }
    let names: Vec<&str> = events.iter().map(|event| event.entry.name()).collect();
    assert_eq!(names, ["m599"]);
}
