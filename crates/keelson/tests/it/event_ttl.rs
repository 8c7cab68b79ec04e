//! Events expire some time after their last write, from memory and from disk.

use crate::http::{Client, POLL_TIMEOUT, Server, revision_of};
use keelson::Keelson;
use keelson_meta::time::Timestamp;
use keelson_registry::{Clock, SystemClock};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const NEWER: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// A clock that tests set.
#[derive(Clone, Default)]
struct ManualClock(Arc<AtomicI64>);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: 1_800_000_000 + self.0.load(Ordering::SeqCst), nanos: 0 }
    }

    fn random(&self) -> [u8; 16] {
        SystemClock.random()
    }
}

fn start(dir: &Path, clock: &ManualClock, event_ttl: u64) -> Server {
    let builder = Keelson::builder()
        .no_controllers()
        .data_dir(dir)
        .clock(clock.clone())
        .with(|builder| builder.storage.event_ttl = Duration::from_secs(event_ttl));
    Server::start_plain(builder)
}

fn create(client: &Client, name: &str) -> Value {
    let event = json!({"metadata": {"name": name}, "reason": "r", "message": "m", "type": "Normal",
        "involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"}});
    let answer = client.post(EVENTS, &event);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body
}

fn names(client: &Client, path: &str) -> Vec<String> {
    let list = client.get(path).body;
    let items = list["items"].as_array().expect("items").iter();
    items.map(|event| event["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

/// Waits until only these events exist.
fn wait_for(client: &Client, left: &[&str]) {
    let began = Instant::now();
    while names(client, EVENTS) != left {
        assert!(began.elapsed() < POLL_TIMEOUT, "{:?} are left", names(client, EVENTS));
        std::thread::yield_now();
    }
    assert_eq!(names(client, NEWER), left);
}

fn patch(client: &Client, name: &str, patch: &Value) {
    let path = format!("{EVENTS}/{name}");
    let answer = client.call("PATCH", &path, "application/merge-patch+json", Some(patch));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn events_expire_after_their_last_write_across_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let clock = ManualClock::default();
    let server = start(dir.path(), &clock, 100);
    let client = server.client();
    let first = create(&client, "a");
    for name in ["b", "c"] {
        create(&client, name);
    }
    clock.0.store(60, Ordering::SeqCst);
    create(&client, "d");
    patch(&client, "b", &json!({"message": "renewed"}));
    // A no-op update does not renew the lease, as upstream.
    patch(&client, "c", &json!({"message": "m"}));
    clock.0.store(100, Ordering::SeqCst);
    wait_for(&client, &["b", "d"]);
    let since = format!("{EVENTS}?watch=true&resourceVersion={}", revision_of(&first));
    let events = client.watch(&since, 6).expect("events");
    let seen: Vec<_> = events
        .iter()
        .map(|event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            (event["type"].as_str().unwrap_or_default(), name)
        })
        .collect();
    let expected = [("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d"), ("MODIFIED", "b")];
    assert_eq!(seen[..4], expected);
    let mut deleted = seen[4..].to_vec();
    deleted.sort_unstable();
    assert_eq!(deleted, [("DELETED", "a"), ("DELETED", "c")]);
    // A deletion has its own resourceVersion.
    assert!(revision_of(&events[4]["object"]) > revision_of(&events[3]["object"]));
    server.stop();

    let server = start(dir.path(), &clock, 100);
    let client = server.client();
    clock.0.store(159, Ordering::SeqCst);
    create(&client, "e");
    assert_eq!(names(&client, EVENTS), ["b", "d", "e"]);
    clock.0.store(160, Ordering::SeqCst);
    wait_for(&client, &["e"]);
    server.stop();
}

#[test]
fn events_stored_without_a_lease_get_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let clock = ManualClock::default();
    let server = start(dir.path(), &clock, 0);
    create(&server.client(), "a");
    server.stop();
    let server = start(dir.path(), &clock, 100);
    let client = server.client();
    assert_eq!(names(&client, EVENTS), ["a"]);
    clock.0.store(100, Ordering::SeqCst);
    wait_for(&client, &[]);
    // No other kind expires.
    assert_eq!(client.get("/api/v1/namespaces/default").status, 200);
    server.stop();
}

#[test]
fn events_in_etcd_expire_by_leases_of_etcd() {
    let Some((_runtime, etcd)) = crate::etcd::etcd() else { return };
    let builder = Keelson::builder().etcd(keelson::Etcd::new(vec![etcd.url()])).no_controllers();
    let builder = builder.with(|builder| builder.storage.event_ttl = Duration::from_secs(3));
    let server = Server::start_plain(builder);
    let client = server.client();
    let first = create(&client, "a");
    assert_eq!(names(&client, EVENTS), ["a"]);
    wait_for(&client, &[]);
    let since = format!("{EVENTS}?watch=true&resourceVersion={}", revision_of(&first));
    let deleted = client.watch(&since, 1).expect("an event");
    assert_eq!(deleted[0]["type"], "DELETED");
    assert!(revision_of(&deleted[0]["object"]) > revision_of(&first));
    server.stop();
}
