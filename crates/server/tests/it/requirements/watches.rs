//! R-WATCH: the events of watches, their encoding, and where a watch can resume.

use super::{MAPS, create, forgetful_server, is_failure, map, names, put, server};
use crate::world::{Client, Options, Server, Watch, revision_of};
use serde_json::{Value, json};
use std::time::Duration;

/// Creates, updates and deletes one object, and returns its state after each step.
fn life(client: &Client, name: &str) -> [Value; 2] {
    let made = create(client, name);
    let changed = put(client, &format!("{MAPS}/{name}"), &map(name, "2"));
    let deleted = client.delete(&format!("{MAPS}/{name}"));
    assert_eq!(deleted.status, 200, "{deleted:?}");
    [made, changed]
}

/// Checks that the next events are those of one object from creation to deletion.
fn check_life(watch: &mut Watch, [made, changed]: &[Value; 2]) -> Value {
    assert_eq!(watch.next(), Ok(json!({"type": "ADDED", "object": made})));
    assert_eq!(watch.next(), Ok(json!({"type": "MODIFIED", "object": changed})));
    let last = watch.next().expect("the deletion");
    assert_eq!(last["type"], "DELETED", "{last}");
    // The last state, with the resourceVersion of the deletion.
    assert!(revision_of(&last["object"]) > revision_of(changed), "{last}");
    let mut before = last["object"].clone();
    before["metadata"]["resourceVersion"] = changed["metadata"]["resourceVersion"].clone();
    assert_eq!(before, *changed);
    last["object"].clone()
}

/// Proves: R-WATCH-02, R-WATCH-03, R-WATCH-04, R-VERB-12.
#[test]
fn a_watch_sends_each_change_as_one_event() {
    let server = server();
    let client = server.client();
    let since = revision_of(&client.get(MAPS).body);
    for word in ["true", "1"] {
        let path = format!("{MAPS}?watch={word}&resourceVersion={since}&fieldSelector=");
        let name = format!("m-{word}");
        let only = format!("{path}metadata.name%3D{name}");
        let mut watch = client.open_watch(&only);
        assert_eq!(watch.status, 200);
        assert_eq!(watch.header("content-type"), Some("application/json"));
        assert_eq!(watch.header("transfer-encoding"), Some("chunked"));
        assert_eq!(watch.header("content-length"), None);
        let seen = life(&client, &name);
        let last = check_life(&mut watch, &seen);
        // A watch started later has the same events.
        assert_eq!(check_life(&mut client.open_watch(&only), &seen), last);
    }
    server.stop();
}

/// Proves: R-WATCH-05, R-CHUNK-07.
#[test]
fn a_watch_from_a_list_misses_no_change() {
    let server = server();
    let client = server.client();
    for name in ["a", "b", "c"] {
        create(&client, name);
    }
    let first = client.get(&format!("{MAPS}?limit=2")).body;
    create(&client, "b2");
    put(&client, &format!("{MAPS}/a"), &map("a", "2"));
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let last = client.get(&format!("{MAPS}?limit=2&continue={token}")).body;
    assert_eq!((names(&first), names(&last)), (vec!["a", "b"], vec!["c"]));
    client.delete(&format!("{MAPS}/c"));
    // Newer versions exist when the watch starts.
    let path = format!("{MAPS}?watch=true&resourceVersion={}", revision_of(&last));
    let mut watch = client.open_watch(&path);
    create(&client, "d");
    let want = [("ADDED", "b2"), ("MODIFIED", "a"), ("DELETED", "c"), ("ADDED", "d")];
    assert_eq!(
        watch.next_types_and_names(4),
        want.map(|(word, name)| (word.to_owned(), name.to_owned()))
    );
    server.stop();
}

/// Proves: R-WATCH-06.
#[test]
fn a_broken_watch_resumes_from_its_last_resource_version() {
    let server = server();
    let client = server.client();
    let mut since = revision_of(&client.get(MAPS).body);
    let mut seen: Vec<String> = vec![];
    for round in 0..20 {
        let path = format!("{MAPS}?watch=true&resourceVersion={since}");
        let mut watch = client.open_watch(&path);
        for part in 0..3 {
            create(&client, &format!("m-{round:02}-{part}"));
        }
        // The watch is dropped after one or two events; the rest is not read.
        for _ in 0..=round % 2 {
            let event = watch.next().expect("an event");
            since = revision_of(&event["object"]);
            seen.push(event["object"]["metadata"]["name"].to_string());
        }
    }
    let mut watch = client.open_watch(&format!("{MAPS}?watch=true&resourceVersion={since}"));
    while seen.len() < 60 {
        let event = watch.next().expect("an event");
        assert!(revision_of(&event["object"]) > since, "{event}");
        since = revision_of(&event["object"]);
        seen.push(event["object"]["metadata"]["name"].to_string());
    }
    let want: Vec<String> = (0..60).map(|at| format!("\"m-{:02}-{}\"", at / 3, at % 3)).collect();
    assert_eq!(seen, want);
    // A new list has all objects too.
    assert_eq!(names(&client.get(MAPS).body).len(), 60);
    server.stop();
}

/// Proves: R-WATCH-07.
#[test]
fn a_watch_covers_one_namespace_all_namespaces_or_cluster_objects() {
    let server = server();
    let client = server.client();
    let since = revision_of(&client.get(MAPS).body);
    let from = |path: &str| client.open_watch(&format!("{path}?watch=1&resourceVersion={since}"));
    let mut cluster = from("/api/v1/namespaces");
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    assert_eq!(client.post("/api/v1/namespaces", &space).status, 201);
    create(&client, "here");
    let there = client.post("/api/v1/namespaces/other/configmaps", &map("there", "1"));
    assert_eq!(there.status, 201, "{there:?}");
    create(&client, "here-2");
    let check = |watch: &mut Watch, want: &[&str]| {
        let events = watch.next_types_and_names(want.len());
        let events: Vec<_> =
            events.iter().map(|(word, name)| (word.as_str(), name.as_str())).collect();
        let want: Vec<_> = want.iter().map(|name| ("ADDED", *name)).collect();
        assert_eq!(events, want);
    };
    check(&mut cluster, &["other"]);
    check(&mut from(MAPS), &["here", "here-2"]);
    check(&mut from("/api/v1/namespaces/other/configmaps"), &["there"]);
    check(&mut from("/api/v1/configmaps"), &["here", "there", "here-2"]);
    server.stop();
}

/// Proves: R-WATCH-08, R-WATCH-09, R-HTTP-12, R-GONE-01.
///
/// As in kube-apiserver, the response has status 200, and its only event is the error with code
/// 410.
#[test]
fn a_watch_of_a_compacted_version_is_410_and_a_new_list_restarts_it() {
    assert_eq!(Options::default().history, Duration::from_secs(300));
    let server = forgetful_server();
    let client = server.client();
    let old = revision_of(&create(&client, "a"));
    create(&client, "b");
    let exact = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    client.poll(&exact, |answer| answer.status == 410);
    let mut watch = client.open_watch(&format!("{MAPS}?watch=true&resourceVersion={old}"));
    assert_eq!(watch.status, 200);
    assert_eq!(watch.header("content-type"), Some("application/json"));
    let event = watch.next().expect("an event");
    assert_eq!(event["type"], "ERROR");
    let floor = event["object"]["message"]
        .as_str()
        .unwrap_or_default()
        .split(['(', ')'])
        .nth(1)
        .unwrap_or_default();
    let why = format!("too old resource version: {old} ({floor})");
    is_failure(&event["object"], 410, "Expired", &why);
    assert!(floor.parse::<u64>().is_ok_and(|floor| floor > old), "{event}");
    assert_eq!(watch.next(), Err("the watch ended".to_owned()));

    let listed = client.get(MAPS).body;
    assert_eq!(names(&listed), ["a", "b"]);
    let path = format!("{MAPS}?watch=true&resourceVersion={}", revision_of(&listed));
    let mut watch = client.open_watch(&path);
    create(&client, "c");
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "c".to_owned())]);
    server.stop();
}

/// Proves: R-WATCH-08.
#[test]
fn history_within_the_window_is_replayed() {
    let server = server();
    let client = server.client();
    let since = revision_of(&client.get(MAPS).body);
    let lives: Vec<[Value; 2]> = (0..50).map(|at| life(&client, &format!("m-{at}"))).collect();
    let mut watch = client.open_watch(&format!("{MAPS}?watch=1&resourceVersion={since}"));
    for seen in &lives {
        check_life(&mut watch, seen);
    }
    server.stop();
}

/// Proves: R-WATCH-10.
#[test]
fn a_watch_of_a_future_version_waits_for_it_or_ends_with_its_timeout() {
    let server = server();
    let client = server.client();
    let ahead = revision_of(&create(&client, "a")) + 2;
    let path = format!("{MAPS}?watch=true&resourceVersion={ahead}");
    let mut short = client.open_watch(&format!("{path}&timeoutSeconds=1"));
    let mut watch = client.open_watch(&path);
    assert_eq!((watch.status, short.status), (200, 200));
    create(&client, "b");
    create(&client, "c");
    assert_eq!(short.next(), Err("the watch ended".to_owned()));
    create(&client, "d");
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "d".to_owned())]);
    server.stop();
}

/// A server that sends bookmarks every few milliseconds.
fn server_with_frequent_bookmarks() -> Server {
    let mut options = Options::default();
    options.limits.bookmark_period = Duration::from_millis(10);
    Server::start_plain(options)
}

/// Proves: R-WATCH-06.
#[test]
fn a_watch_resumes_from_the_version_of_a_bookmark() {
    let server = server_with_frequent_bookmarks();
    let client = server.client();
    let began = revision_of(&create(&client, "a"));
    let secrets = "/api/v1/namespaces/default/secrets";
    let path = format!("{MAPS}?watch=true&resourceVersion={began}");
    let mut silent = client.open_watch(&path);
    let mut watch = client.open_watch(&format!("{path}&allowWatchBookmarks=true"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let elsewhere = revision_of(&client.post(secrets, &secret).body);
    // No watched object changes, but a bookmark has the later resourceVersion.
    let mut last = began;
    while last < elsewhere {
        let event = watch.next().expect("a bookmark");
        assert_eq!(event["type"], "BOOKMARK", "{event}");
        let now = revision_of(&event["object"]);
        assert!(now >= last, "{event} after {last}");
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"resourceVersion": now.to_string()}
        });
        assert_eq!(event["object"], object);
        last = now;
    }
    drop(watch);
    create(&client, "b");
    let mut resumed = client.open_watch(&format!("{MAPS}?watch=true&resourceVersion={last}"));
    let want = [("ADDED".to_owned(), "b".to_owned())];
    assert_eq!(resumed.next_types_and_names(1), want);
    // A watch without allowWatchBookmarks gets none.
    assert_eq!(silent.next_types_and_names(1), want);
    server.stop();
}

/// Proves: R-WATCH-05.
#[test]
fn initial_events_end_with_an_annotated_bookmark() {
    let server = server_with_frequent_bookmarks();
    let client = server.client();
    create(&client, "a");
    let newest = revision_of(&create(&client, "b"));
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
         &resourceVersionMatch=NotOlderThan&resourceVersion={newest}"
    );
    let mut watch = client.open_watch(&path);
    let want = [("ADDED", "a"), ("ADDED", "b")];
    assert_eq!(
        watch.next_types_and_names(2),
        want.map(|(word, name)| (word.to_owned(), name.to_owned()))
    );
    let event = watch.next().expect("the end of the initial events");
    assert_eq!(event["type"], "BOOKMARK", "{event}");
    assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let from = revision_of(&event["object"]);
    assert!(from >= newest, "{event}");
    create(&client, "c");
    let mut next = client.open_watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    assert_eq!(next.next_types_and_names(1), [("ADDED".to_owned(), "c".to_owned())]);
    // Later bookmarks have no annotation.
    let later = std::iter::from_fn(|| watch.next().ok()).find(|event| event["type"] == "BOOKMARK");
    assert_eq!(later.expect("a bookmark")["object"]["metadata"]["annotations"], Value::Null);
    server.stop();
}

/// Proves: R-WATCH-06.
#[test]
fn a_watch_times_out_and_the_next_one_resumes() {
    let mut options = Options::default();
    options.limits.watch_life_min = Duration::from_millis(20);
    let server = Server::start_plain(options);
    let client = server.client();
    let mut since = revision_of(&create(&client, "a"));
    for round in 0..5 {
        create(&client, &format!("b-{round}"));
        let path = |since: u64| format!("{MAPS}?watch=true&resourceVersion={since}");
        // On a busy machine the object may be deleted before the first event is sent.
        let (event, mut watch) = std::iter::repeat_with(|| client.open_watch(&path(since)))
            .find_map(|mut watch| watch.next().ok().map(|event| (event, watch)))
            .expect("watches do not end");
        assert_eq!(event["object"]["metadata"]["name"], format!("b-{round}"));
        since = revision_of(&event["object"]);
        assert_eq!(watch.next(), Err("the watch ended".to_owned()));
    }
    server.stop();
}
