//! Restarts keep objects, history and the order of revisions.

use crate::http::{Client, Server, revision_of};
use keelson::Keelson;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create(client: &Client, name: &str) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"name": name}});
    let answer = client.post(MAPS, &map);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body
}

#[test]
fn objects_history_and_revisions_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = || Server::start_plain(Keelson::builder().no_controllers().data_dir(dir.path()));
    let server = start();
    let client = server.client();
    let first = create(&client, "first");
    let second = create(&client, "second");
    let patch = json!({"data": {"name": "changed"}});
    let path = format!("{MAPS}/first");
    let changed = client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    assert_eq!(changed.status, 200, "{changed:?}");
    let third = create(&client, "third");
    assert_eq!(client.delete(&format!("{MAPS}/third")).status, 200);
    let before = client.get(MAPS).body;
    server.stop();

    let server = start();
    let client = server.client();
    let after = client.get(MAPS).body;
    assert_eq!(after["items"], before["items"]);
    assert_eq!(after["items"].as_array().map(Vec::len), Some(2), "{after}");
    assert_eq!(client.get(&path).body, changed.body);
    assert!(revision_of(&after) >= revision_of(&before), "{after} is older than {before}");

    let since = format!("{MAPS}?watch=true&resourceVersion={}", revision_of(&first));
    let events = client.watch(&since, 4).expect("the history is replayed");
    let seen: Vec<(&str, &str)> = events
        .iter()
        .map(|event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            (event["type"].as_str().unwrap_or_default(), name)
        })
        .collect();
    let expected =
        [("ADDED", "second"), ("MODIFIED", "first"), ("ADDED", "third"), ("DELETED", "third")];
    assert_eq!(seen, expected);
    assert_eq!(events[0]["object"], second);
    assert_eq!(revision_of(&events[2]["object"]), revision_of(&third));

    let fourth = create(&client, "fourth");
    assert!(revision_of(&fourth) > revision_of(&before), "{fourth} is not newer than {before}");
    server.stop();
}

#[test]
fn many_restarts_lose_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut newest = 0;
    for round in 0..5 {
        let server = Server::start_plain(Keelson::builder().no_controllers().data_dir(dir.path()));
        let client = server.client();
        let list = client.get(MAPS).body;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(round), "{list}");
        let made = create(&client, &format!("map-{round}"));
        assert!(revision_of(&made) > newest, "{made} is not newer than {newest}");
        newest = revision_of(&made);
        server.stop();
    }
}
