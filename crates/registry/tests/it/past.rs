//! Lists at revisions that the cache no longer has, but the store has.

use crate::harness::Harness;
use keelson_auth::Permit;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::{Failure, selector};
use keelson_registry::List;
use keelson_registry::options::{ContinueToken, Freshness, ListOptions};
use keelson_store::Revision;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn list(harness: &Harness, options: ListOptions) -> Result<List, Failure> {
    let target = harness.place(MAPS).expect("a resource").target;
    harness.registry.list(&Permit::internal("test"), &target, &options).await
}

/// Returns the objects as `name=value`.
fn shown(list: &List) -> Vec<String> {
    let value = |json: &str| json.split(r#""v":""#).nth(1)?.split('"').next().map(str::to_owned);
    let shown = list.items.iter().map(|entry| {
        let json = entry.json_slice();
        let json = String::from_utf8_lossy(&json);
        format!("{}={}", entry.name(), value(&json).unwrap_or_default())
    });
    shown.collect()
}

async fn write(harness: &Harness, name: &str, value: &str) {
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"of":"{value}"}}}},"data":{{"v":"{value}"}}}}"#
    );
    let path = format!("{MAPS}/{name}");
    let changed = harness.send("PUT", &path, "", body.as_bytes()).await.expect("an answer");
    if changed.0 == 404 {
        let made = harness.send("POST", MAPS, "", body.as_bytes()).await.expect("an answer");
        assert_eq!(made.0, 201);
    } else {
        assert_eq!(changed.0, 200);
    }
}

/// Writes six objects, then updates, deletes and creates some. Returns the revision before these
/// changes, which the cache no longer has.
async fn past() -> (Harness, Revision) {
    let harness = Harness::open().await;
    for (name, value) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "x"), ("e", "y"), ("f", "x")] {
        write(&harness, name, value).await;
    }
    harness.registry.cache.wait_latest().await.expect("the cache follows");
    let before = harness.registry.cache.revision();
    write(&harness, "b", "z").await;
    write(&harness, "bb", "x").await;
    let gone = harness.send("DELETE", &format!("{MAPS}/d"), "", b"").await.expect("an answer");
    assert_eq!(gone.0, 200);
    harness.registry.cache.wait_latest().await.expect("the cache follows");
    harness.registry.cache.compact(0, harness.registry.cache.revision());
    (harness, before)
}

fn exact(revision: Revision) -> ListOptions {
    ListOptions { freshness: Freshness::Exact(revision), ..ListOptions::default() }
}

/// Proves: R-GONE-02.
#[tokio::test]
async fn a_list_at_a_revision_before_the_cache_is_read_from_the_store() {
    let (harness, before) = past().await;
    let all = list(&harness, exact(before)).await.expect("a list");
    assert_eq!(shown(&all), ["a=x", "b=x", "c=y", "d=x", "e=y", "f=x"]);
    assert_eq!((all.revision, &all.continue_token, all.remaining), (before, &None, None));
    let labels = selector::parse("of=x").expect("a selector");
    let some = list(&harness, ListOptions { labels, ..exact(before) }).await.expect("a list");
    assert_eq!(shown(&some), ["a=x", "b=x", "d=x", "f=x"]);
    let fields = FieldSelector::equals("metadata.name", "d");
    let one = list(&harness, ListOptions { fields, ..exact(before) }).await.expect("a list");
    assert_eq!(shown(&one), ["d=x"]);
    let now = list(&harness, ListOptions::default()).await.expect("a list");
    assert_eq!(shown(&now), ["a=x", "b=z", "bb=x", "c=y", "e=y", "f=x"]);
}

#[tokio::test]
async fn pages_continue_at_a_revision_before_the_cache() {
    let (harness, before) = past().await;
    for (selector, limit, pages) in [
        ("", 2, vec![vec!["a=x", "b=x"], vec!["c=y", "d=x"], vec!["e=y", "f=x"]]),
        ("of=x", 3, vec![vec!["a=x", "b=x", "d=x"], vec!["f=x"]]),
        ("of=y", 2, vec![vec!["c=y", "e=y"]]),
    ] {
        let labels = selector::parse(selector).expect("a selector");
        let mut options = ListOptions { labels, limit, ..exact(before) };
        for (at, page) in pages.iter().enumerate() {
            let list = list(&harness, options.clone()).await.expect("a page");
            assert_eq!(
                (shown(&list), list.revision),
                (page.iter().map(ToString::to_string).collect(), before)
            );
            assert_eq!(list.continue_token.is_some(), at + 1 < pages.len(), "{selector} {at}");
            let token =
                list.continue_token.map(|text| ContinueToken::decode(&text).expect("a token"));
            options = ListOptions { continue_from: token, freshness: Freshness::Latest, ..options };
        }
    }
}

/// Proves: R-GONE-01, R-GONE-02.
#[tokio::test]
async fn a_list_at_a_compacted_revision_is_410() {
    let (harness, before) = past().await;
    let now = harness.registry.cache.revision();
    harness.registry.store.compact(now).await.expect("it compacts");
    let gone = list(&harness, exact(before)).await.expect_err("it is gone");
    let why = "The resourceVersion for the provided list is too old.";
    assert_eq!((gone.code, &*gone.message), (410, why));
    let token = ContinueToken { revision: Some(before), start: "c\0".into() };
    let options = ListOptions { continue_from: Some(token), ..ListOptions::default() };
    let gone = list(&harness, options).await.expect_err("it is gone");
    assert_eq!(gone.code, 410);
    let go_on = gone.continue_token.as_ref().expect("a token to go on with");
    let token = ContinueToken::decode(go_on).expect("a token");
    assert_eq!(token, ContinueToken { revision: None, start: "c\0".into() });
}

/// The cache undoes only a limited number of changes for a list; beyond that the list is read from
/// the store.
#[tokio::test]
async fn a_paged_list_continues_despite_writes() {
    let harness = Harness::open().await;
    for name in ["a", "b", "c"] {
        write(&harness, name, "x").await;
    }
    let first =
        list(&harness, ListOptions { limit: 1, ..ListOptions::default() }).await.expect("a page");
    assert_eq!(shown(&first), ["a=x"]);
    let token = first.continue_token.expect("there is more");
    let token = ContinueToken::decode(&token).expect("a token");
    for turn in 0..2_200 {
        write(&harness, "b", &format!("y{turn}")).await;
        write(&harness, "c", &format!("z{turn}")).await;
    }
    let options = ListOptions { continue_from: Some(token), ..ListOptions::default() };
    let rest = list(&harness, options).await.expect("the rest");
    assert_eq!((shown(&rest), rest.revision), (vec!["b=x".into(), "c=x".into()], first.revision));
}
