//! R-RV: `resourceVersion` and `resourceVersionMatch` of GET, LIST and WATCH.

use super::faulty_server::FaultyServer;
use super::{MAPS, create, forgetful_server, map, names, put, refused, server};
use crate::world::{Client, Server, revision_of};
use serde_json::{Value, json};

/// A server with this history of ConfigMaps: create `a`, create `b`, update `a`, create `c`, delete
/// `b`.
struct ServerWithHistory {
    server: Server,
    client: Client,
    /// The revisions of these five writes, in order.
    at: [u64; 5],
}

fn server_with_history() -> ServerWithHistory {
    let server = server();
    let client = server.client();
    let made = [create(&client, "a"), create(&client, "b")];
    let changed = put(&client, &format!("{MAPS}/a"), &map("a", "2"));
    let last = create(&client, "c");
    let gone = client.delete(&format!("{MAPS}/b"));
    assert_eq!(gone.status, 200, "{gone:?}");
    let newest = revision_of(&list(&client, "").1);
    let at = [&made[0], &made[1], &changed, &last].map(revision_of);
    ServerWithHistory { server, client, at: [at[0], at[1], at[2], at[3], newest] }
}

/// Returns the status and the body of a list of the test's objects.
fn list(client: &Client, query: &str) -> (u16, Value) {
    let answer = client.get(&format!("{MAPS}?{query}"));
    (answer.status, answer.body)
}

/// The expected resourceVersion of a list.
#[derive(Clone, Copy)]
enum ListVersion {
    Exactly(u64),
    AtLeast(u64),
}
use ListVersion::{AtLeast, Exactly};

/// Checks the resourceVersion, the items and the presence of a continue token of a list.
fn check(client: &Client, query: &str, expected: ListVersion, want: &[&str], more: bool) -> Value {
    let (status, body) = list(client, query);
    assert_eq!(status, 200, "{query}: {body}");
    assert_eq!(body["kind"], "ConfigMapList", "{query}: {body}");
    match expected {
        Exactly(at) => assert_eq!(revision_of(&body), at, "{query}: {body}"),
        AtLeast(at) => assert!(revision_of(&body) >= at, "{query}: {body}"),
    }
    assert_eq!(names(&body), want, "{query}: {body}");
    let token = body["metadata"]["continue"].as_str().unwrap_or_default();
    assert_eq!(!token.is_empty(), more, "{query}: {body}");
    body
}

/// Proves: R-RV-10, R-RV-11, R-RV-12, R-RV-13, R-RV-14, R-RV-15.
///
/// At resourceVersion 0 the limit is ignored: kube-apiserver returns the whole list from its cache.
#[test]
fn a_list_without_resource_version_match_follows_version_and_limit() {
    let ServerWithHistory { server, client, at } = server_with_history();
    check(&client, "", AtLeast(at[4]), &["a", "c"], false);
    check(&client, "resourceVersion=0", AtLeast(at[0]), &["a", "c"], false);
    check(&client, &format!("resourceVersion={}", at[1]), AtLeast(at[4]), &["a", "c"], false);
    check(&client, "limit=1", AtLeast(at[4]), &["a"], true);
    check(&client, "limit=1&resourceVersion=0", AtLeast(at[0]), &["a", "c"], false);
    let exact = format!("limit=2&resourceVersion={}", at[3]);
    check(&client, &exact, Exactly(at[3]), &["a", "b"], true);
    server.stop();
}

/// Proves: R-RV-16, R-RV-17, R-RV-18, R-RV-37.
#[test]
fn a_continued_list_stays_at_the_version_of_its_first_page() {
    let ServerWithHistory { server, client, at } = server_with_history();
    let first = check(&client, "limit=1", AtLeast(at[4]), &["a"], true);
    let token = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    create(&client, "b2");
    put(&client, &format!("{MAPS}/c"), &map("c", "changed"));
    create(&client, "d");
    let expected = Exactly(revision_of(&first));
    for further in ["", "&resourceVersion=0"] {
        let query = format!("limit=2&continue={token}{further}");
        let rest = check(&client, &query, expected, &["c"], false);
        assert_eq!(rest["items"][0]["data"]["v"], "1", "{rest}");
    }
    let query = format!("{MAPS}?limit=1&continue={token}&resourceVersion={}", at[4]);
    let why = "specifying resource version is not allowed when using continue";
    refused(&client.get(&query), 400, "BadRequest", why);
    server.stop();
}

/// Proves: R-RV-07, R-RV-09, R-RV-21, R-RV-24, R-RV-31, R-RV-35.
#[test]
fn an_exact_list_has_exactly_the_requested_version() {
    let ServerWithHistory { server, client, at } = server_with_history();
    let exactly = |at: u64, further: &str| {
        format!("resourceVersion={at}&resourceVersionMatch=Exact{further}")
    };
    let first = check(&client, &exactly(at[0], ""), Exactly(at[0]), &["a"], false);
    assert_eq!(first["items"][0]["data"]["v"], "1", "{first}");
    check(&client, &exactly(at[1], ""), Exactly(at[1]), &["a", "b"], false);
    // Objects deleted later are listed, objects created later are not.
    let before = check(&client, &exactly(at[3], ""), Exactly(at[3]), &["a", "b", "c"], false);
    assert_eq!(before["items"][0]["data"]["v"], "2", "{before}");
    assert_eq!(revision_of(&before["items"][1]), at[1], "{before}");
    check(&client, &exactly(at[4], ""), Exactly(at[4]), &["a", "c"], false);
    let page = check(&client, &exactly(at[3], "&limit=2"), Exactly(at[3]), &["a", "b"], true);
    let token = page["metadata"]["continue"].as_str().expect("a token");
    check(&client, &format!("limit=2&continue={token}"), Exactly(at[3]), &["c"], false);
    server.stop();
}

/// Proves: R-RV-26, R-RV-27, R-RV-29, R-RV-30, R-RV-33, R-RV-34.
#[test]
fn a_not_older_than_list_is_at_least_as_new() {
    let ServerWithHistory { server, client, at } = server_with_history();
    let fresh = |at: u64, further: &str| {
        format!("resourceVersion={at}&resourceVersionMatch=NotOlderThan{further}")
    };
    check(&client, &fresh(0, ""), AtLeast(at[0]), &["a", "c"], false);
    check(&client, &fresh(0, "&limit=1"), AtLeast(at[0]), &["a", "c"], false);
    check(&client, &fresh(at[1], "&limit=1"), AtLeast(at[1]), &["a"], true);
    let newest = check(&client, &fresh(at[4], ""), AtLeast(at[4]), &["a", "c"], false);
    // Items may be older than the requested version if they have not changed since.
    assert_eq!(revision_of(&newest["items"][0]), at[2], "{newest}");
    // A list that needs another request's write does not return the state before it.
    for round in 0..20 {
        let made = create(&client, &format!("later-{round:02}"));
        let (status, body) = list(&client, &fresh(revision_of(&made), ""));
        assert_eq!((status, names(&body).len()), (200, 3 + round), "{body}");
        assert!(revision_of(&body) >= revision_of(&made), "{body}");
    }
    server.stop();
}

/// Proves: R-RV-08, R-RV-19, R-RV-20, R-RV-22, R-RV-23, R-RV-25, R-RV-28.
#[test]
fn a_resource_version_match_without_its_version_is_invalid() {
    let server = server();
    let client = server.client();
    let unset = "resourceVersionMatch is forbidden unless resourceVersion is provided";
    let exact = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
    for (query, why) in [
        ("resourceVersionMatch=Exact", unset),
        ("resourceVersionMatch=Exact&resourceVersion=0", exact),
        ("resourceVersionMatch=Exact&limit=1", unset),
        ("resourceVersionMatch=Exact&limit=1&resourceVersion=0", exact),
        ("resourceVersionMatch=NotOlderThan", unset),
        ("resourceVersionMatch=NotOlderThan&limit=1", unset),
    ] {
        let answer = client.get(&format!("{MAPS}?{query}"));
        let forbidden = format!("Forbidden: {why}");
        let message =
            format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: {forbidden}");
        refused(&answer, 422, "Invalid", &message);
        let causes = json!([{
            "reason": "FieldValueForbidden", "message": forbidden, "field": "resourceVersionMatch"
        }]);
        assert_eq!(answer.body["details"]["causes"], causes, "{query}");
    }
    create(&client, "a");
    create(&client, "b");
    let page = client.get(&format!("{MAPS}?limit=1")).body;
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let from = format!("{MAPS}?resourceVersionMatch=NotOlderThan&resourceVersion=0");
    let message = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                   resourceVersionMatch is forbidden when continue is provided";
    for path in [from, format!("{MAPS}?watch=true")] {
        let answer = client.get(&format!("{path}&continue={token}"));
        refused(&answer, 422, "Invalid", message);
    }
    let answer = client.get(&format!("{MAPS}?resourceVersionMatch=Newest&resourceVersion=1"));
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "FieldValueNotSupported");
    server.stop();
}

/// Proves: R-RV-01, R-RV-02, R-RV-03, R-RV-04, R-RV-05, R-RV-06.
#[test]
fn a_get_is_latest_any_or_not_older_than() {
    let ServerWithHistory { server, client, at } = server_with_history();
    let other = revision_of(&create(&client, "other"));
    for query in [String::new(), "?resourceVersion=0".to_owned()]
        .into_iter()
        .chain([at[0], at[2], other].map(|at| format!("?resourceVersion={at}")))
    {
        let answer = client.get(&format!("{MAPS}/a{query}"));
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        assert_eq!(answer.body["data"]["v"], "2", "{query}");
        // The resourceVersion of an object is that of its last change, not that of the list.
        assert_eq!(revision_of(&answer.body), at[2], "{query}");
    }
    let listed = check(&client, "", AtLeast(other), &["a", "c", "other"], false);
    let since = format!("{MAPS}?watch=true&resourceVersion={}", revision_of(&listed));
    let mut watch = client.open_watch(&since);
    create(&client, "next");
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "next".to_owned())]);
    server.stop();
}

/// Proves: R-RV-32.
#[test]
fn a_read_sees_earlier_writes() {
    let server = server();
    // Concurrent writes, so that the cache lags and reads wait.
    std::thread::scope(|scope| {
        for who in 0..8 {
            let client = server.client();
            let other = server.client();
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("m-{who}-{round:02}");
                    let made = create(&client, &name);
                    let one = format!("{MAPS}/{name}");
                    let read = if round % 2 == 0 { other.get(&one).body } else { made.clone() };
                    assert_eq!(read, made);
                    let listed = other.get(MAPS).body;
                    assert!(names(&listed).contains(&name.as_str()), "{name}: {listed}");
                    assert!(revision_of(&listed) >= revision_of(&made), "{listed}");
                    let gone = client.delete(&one);
                    assert_eq!(gone.status, 200, "{gone:?}");
                    assert_eq!(other.get(&one).status, 404, "{name}");
                }
            });
        }
    });
    assert_eq!(names(&server.client().get(MAPS).body), Vec::<&str>::new());
    server.stop();
}

/// Proves: R-RV-04, R-RV-06, R-RV-10, R-RV-13, R-RV-32, R-RV-34, R-RV-39, R-GONE-03.
#[test]
fn a_read_waits_for_earlier_writes() {
    let server = FaultyServer::start();
    let client = server.client();
    let before = revision_of(&client.get(MAPS).body);
    server.faults.feed_stalls.send_replace(true);
    let made = create(&client, "a");
    let one = format!("{MAPS}/a");
    let since = format!("resourceVersion={}", revision_of(&made));
    let paths = [
        one.clone(),
        format!("{one}?{since}"),
        MAPS.to_owned(),
        format!("{MAPS}?limit=1"),
        format!("{MAPS}?{since}"),
        format!("{MAPS}?{since}&resourceVersionMatch=Exact"),
    ];
    for path in &paths {
        let join = if path.contains('?') { '&' } else { '?' };
        let answer = client.get(&format!("{path}{join}timeout=50ms"));
        assert_eq!((answer.status, &answer.body["reason"]), (504, &json!("Timeout")), "{path}");
    }
    // A read of a revision that the cache has does not wait.
    let old = client.get(&format!("{MAPS}?resourceVersion={before}&resourceVersionMatch=Exact"));
    assert_eq!((old.status, names(&old.body)), (200, vec![]));
    std::thread::scope(|scope| {
        let readers: Vec<_> = paths.iter().map(|path| scope.spawn(|| client.get(path))).collect();
        let watch = scope.spawn(|| client.open_watch(&format!("{MAPS}?watch=true")).next());
        server.faults.feed_stalls.send_replace(false);
        for (path, reader) in paths.iter().zip(readers) {
            let body = reader.join().expect("an answer").body;
            let read = if path.starts_with(&one) { &body } else { &body["items"][0] };
            assert_eq!(read["metadata"]["uid"], made["metadata"]["uid"], "{path}: {body}");
        }
        let event = watch.join().expect("a watch");
        assert_eq!(event, Ok(json!({"type": "ADDED", "object": made})));
    });
    server.stop();
}

/// Proves: R-RV-06, R-RV-12, R-RV-34, R-GONE-03, R-GONE-04, R-GONE-05, R-GONE-06.
#[test]
fn a_read_of_a_future_version_times_out() {
    let ServerWithHistory { server, client, at } = server_with_history();
    let ahead = at[4] + 1_000_000;
    let paths = [
        format!("{MAPS}/a?resourceVersion={ahead}"),
        format!("{MAPS}?resourceVersion={ahead}"),
        format!("{MAPS}?resourceVersion={ahead}&resourceVersionMatch=Exact"),
        format!("{MAPS}?resourceVersion={ahead}&resourceVersionMatch=NotOlderThan&limit=1"),
    ];
    let client = &client;
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(move || {
                let answer = client.get(path);
                let why =
                    format!("Timeout: Too large resource version: {ahead}, current: {}", at[4]);
                refused(&answer, 504, "Timeout", &why);
                let cause = json!([{
                    "reason": "ResourceVersionTooLarge",
                    "message": "Too large resource version"
                }]);
                assert_eq!(answer.body["details"]["causes"], cause, "{path}");
                assert_eq!(answer.body["details"]["retryAfterSeconds"], 1, "{path}");
                assert_eq!(answer.header("retry-after"), Some("1"), "{path}");
            });
        }
    });
    server.stop();
}

/// Proves: R-RV-36, R-RV-38, R-HTTP-12, R-GONE-01.
#[test]
fn an_exact_list_of_a_compacted_version_is_410() {
    let server = forgetful_server();
    let client = server.client();
    let old = revision_of(&create(&client, "a"));
    create(&client, "b");
    for further in ["&resourceVersionMatch=Exact", "&limit=1"] {
        let path = format!("{MAPS}?resourceVersion={old}{further}");
        let answer = client.poll(&path, |answer| answer.status != 200);
        let why = "The resourceVersion for the provided list is too old.";
        refused(&answer, 410, "Expired", why);
    }
    for further in ["", "&resourceVersionMatch=NotOlderThan"] {
        let path = format!("{MAPS}?resourceVersion={old}{further}");
        assert_eq!(names(&client.get(&path).body), ["a", "b"], "{path}");
    }
    let path = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=NotOlderThan&limit=1");
    assert_eq!(names(&client.get(&path).body), ["a"]);
    server.stop();
}

/// Proves: R-RV-39, R-RV-40, R-RV-42, R-RV-43.
#[test]
fn a_watch_without_a_version_begins_with_existing_objects() {
    for query in ["", "&resourceVersion=0"] {
        let ServerWithHistory { server, client, at } = server_with_history();
        let mut watch = client.open_watch(&format!("{MAPS}?watch=true{query}"));
        assert_eq!(watch.status, 200);
        for (name, at) in [("a", at[2]), ("c", at[3])] {
            let event = watch.next().expect("an initial event");
            let shown = (&event["type"], &event["object"]["metadata"]["name"]);
            assert_eq!(shown, (&json!("ADDED"), &json!(name)), "{event}");
            assert_eq!(revision_of(&event["object"]), at, "{event}");
        }
        put(&client, &format!("{MAPS}/c"), &map("c", "2"));
        client.delete(&format!("{MAPS}/c"));
        create(&client, "c");
        let want = ["MODIFIED", "DELETED", "ADDED"].map(|word| (word.to_owned(), "c".to_owned()));
        assert_eq!(watch.next_types_and_names(3), want);
        server.stop();
    }
}

/// Proves: R-RV-41, R-RV-44.
#[test]
fn a_watch_from_a_version_has_only_later_changes() {
    let ServerWithHistory { server, client, at } = server_with_history();
    let events =
        [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("ADDED", "c"), ("DELETED", "b")];
    for (skip, from) in at.iter().enumerate() {
        let mut watch = client.open_watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
        create(&client, &format!("end-{skip}"));
        let mut want: Vec<(&str, String)> =
            events[skip + 1..].iter().map(|(word, name)| (*word, (*name).to_owned())).collect();
        want.extend((0..=skip).map(|round| ("ADDED", format!("end-{round}"))));
        let events = watch.next_types_and_names(want.len());
        let told: Vec<_> =
            events.iter().map(|(word, name)| (word.as_str(), name.clone())).collect();
        assert_eq!(told, want);
    }
    // A watch from a future revision omits the events up to it.
    let ahead = revision_of(&create(&client, "e")) + 2;
    let mut watch = client.open_watch(&format!("{MAPS}?watch=true&resourceVersion={ahead}"));
    for name in ["f", "g", "h"] {
        create(&client, name);
    }
    let event = watch.next().expect("an event");
    assert_eq!((&event["type"], revision_of(&event["object"])), (&json!("ADDED"), ahead + 1));
    assert_eq!(event["object"]["metadata"]["name"], "h");
    server.stop();
}
