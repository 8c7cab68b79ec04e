//! R-META: the metadata that all objects share.

use super::{
    JSON_PATCH, MAPS, MERGE_PATCH, create, map, patch, pod, put, refused, seconds, server,
};
use crate::minimal::stored_resources;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Returns whether a string has the form of a UUID (RFC 4122).
fn is_uid(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let plain = |c: char| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c);
    lengths == [8, 4, 4, 4, 12] && text.chars().all(plain)
}

/// Proves: R-META-01, R-META-12.
#[test]
fn every_kind_of_object_has_the_same_metadata() {
    let server = server();
    let client = server.client();
    let definitions = client.get("/openapi/v2").body["definitions"].clone();
    let schemas = definitions.as_object().expect("definitions");
    let mut kinds = 0;
    for kind in stored_resources().map(|resource| &resource.kind) {
        let gvk = json!({
            "group": kind.group.as_str(), "version": kind.version.as_str(),
            "kind": kind.kind.as_str()
        });
        let of = |schema: &&Value| {
            let all = schema["x-kubernetes-group-version-kind"].as_array();
            all.is_some_and(|all| all.contains(&gvk))
        };
        let schema = schemas.values().find(of).unwrap_or_else(|| panic!("no {gvk}"));
        let reference = &schema["properties"]["metadata"]["$ref"];
        let shared = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        assert_eq!(reference, shared, "{gvk}");
        kinds += 1;
    }
    assert!(kinds > 50, "{kinds}");
    let made = create(&client, "a");
    let metadata = &made["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("a"), &json!("default")));
    assert!(is_uid(&metadata["uid"]), "{metadata}");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let made = client.post("/api/v1/nodes", &node).body;
    let metadata = &made["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("n"), &Value::Null));
    assert!(is_uid(&metadata["uid"]), "{metadata}");
    server.stop();
}

/// Proves: R-META-02, R-META-03.
#[test]
fn namespaces_are_dns_labels_and_include_default() {
    let server = server();
    let client = server.client();
    let space = client.get("/api/v1/namespaces/default");
    assert_eq!((space.status, &space.body["status"]["phase"]), (200, &json!("Active")));
    for name in ["Upper", "a.b", "a_b", "-a", &"a".repeat(64)] {
        let obj = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let answer = client.post("/api/v1/namespaces", &obj);
        assert_eq!((answer.status, &answer.body["reason"]), (422, &json!("Invalid")), "{name}");
        let cause = &answer.body["details"]["causes"][0];
        let shown = (&cause["field"], &cause["reason"]);
        assert_eq!(shown, (&json!("metadata.name"), &json!("FieldValueInvalid")), "{answer:?}");
        // No object can be in a namespace of that name.
        let answer = client.post(&format!("/api/v1/namespaces/{name}/configmaps"), &map("m", "1"));
        refused(&answer, 404, "NotFound", &format!("namespaces \"{name}\" not found"));
    }
    let mut obj = map("m", "1");
    obj["metadata"]["namespace"] = json!("another");
    let why =
        "the namespace of the provided object does not match the namespace sent on the request";
    refused(&client.post(MAPS, &obj), 400, "BadRequest", why);
    let longest = "a".repeat(63);
    let obj = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": longest}});
    assert_eq!(client.post("/api/v1/namespaces", &obj).status, 201);
    server.stop();
}

/// Proves: R-META-04, R-META-05.
#[test]
fn a_name_is_unique_in_its_namespace_and_a_uid_is_never_reused() {
    let server = server();
    let client = server.client();
    let mut uids = BTreeSet::new();
    let mut uid = |obj: &Value| {
        assert!(is_uid(&obj["metadata"]["uid"]), "{obj}");
        assert!(uids.insert(obj["metadata"]["uid"].to_string()), "{obj}");
    };
    let mut own = map("a", "1");
    own["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let made = client.post(MAPS, &own).body;
    assert_ne!(made["metadata"]["uid"], own["metadata"]["uid"]);
    uid(&made);
    refused(&client.post(MAPS, &own), 409, "AlreadyExists", "configmaps \"a\" already exists");
    // The same name elsewhere, and for another resource, is another object.
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    assert_eq!(client.post("/api/v1/namespaces", &space).status, 201);
    let there = "/api/v1/namespaces/other/configmaps";
    uid(&client.post(there, &map("a", "2")).body);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    uid(&client.post("/api/v1/namespaces/default/secrets", &secret).body);
    assert_eq!(client.get(&format!("{MAPS}/a")).body, made);
    assert_eq!(client.get(&format!("{there}/a")).body["data"]["v"], "2");
    for _ in 0..5 {
        assert_eq!(client.delete(&format!("{MAPS}/a")).status, 200);
        uid(&create(&client, "a"));
    }
    // An update with the uid of another object is rejected.
    own["metadata"]["uid"] = made["metadata"]["uid"].clone();
    let answer = client.call("PUT", &format!("{MAPS}/a"), "application/json", Some(&own));
    assert_eq!((answer.status, &answer.body["reason"]), (409, &json!("Conflict")), "{answer:?}");
    server.stop();
}

/// Proves: R-META-07.
#[test]
fn the_generation_counts_changes_of_the_desired_state() {
    let server = server();
    let client = server.client();
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "generation": 70}, "spec": {"podSelector": {}}
    });
    let made = client.post(path, &policy);
    assert_eq!((made.status, &made.body["metadata"]["generation"]), (201, &json!(1)), "{made:?}");
    let one = format!("{path}/p");
    let generation = |obj: Value| obj["metadata"]["generation"].clone();
    policy["metadata"]["generation"] = json!(80);
    assert_eq!(generation(put(&client, &one, &policy)), 1);
    let label = json!({"metadata": {"labels": {"l": "1"}, "generation": 90}});
    assert_eq!(generation(patch(&client, &one, MERGE_PATCH, &label)), 1);
    for round in 2..5 {
        policy["spec"]["podSelector"] = json!({"matchLabels": {"round": round.to_string()}});
        assert_eq!(generation(put(&client, &one, &policy)), round);
    }
    server.stop();
}

/// Proves: R-META-08.
#[test]
fn creation_timestamp_is_set_by_the_server_and_immutable() {
    let server = server();
    let client = server.client();
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let before = i64::try_from(before.expect("a time after 1970").as_secs()).expect("seconds");
    let mut obj = map("a", "1");
    obj["metadata"]["creationTimestamp"] = json!("2001-02-03T04:05:06Z");
    let made = client.post(MAPS, &obj).body;
    let time = made["metadata"]["creationTimestamp"].clone();
    assert!((before..before + 20).contains(&seconds(&time)), "{time}");
    assert_eq!(time.as_str().map(str::len), Some("2001-02-03T04:05:06Z".len()));
    let done = put(&client, &format!("{MAPS}/a"), &obj);
    assert_eq!(done["metadata"]["creationTimestamp"], time);
    server.stop();
}

/// Proves: R-META-09.
#[test]
fn deletion_timestamp_is_set_only_by_the_server() {
    let server = server();
    let client = server.client();
    let time = json!("2001-02-03T04:05:06Z");
    let mut obj = map("a", "1");
    obj["metadata"]["deletionTimestamp"] = time.clone();
    obj["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    let made = client.post(MAPS, &obj);
    assert_eq!((made.status, &made.body["metadata"]["deletionTimestamp"]), (201, &Value::Null));
    let one = format!("{MAPS}/a");
    let patch_of = json!({"metadata": {"deletionTimestamp": time}});
    for (method, kind, body) in
        [("PUT", "application/json", &obj), ("PATCH", MERGE_PATCH, &patch_of)]
    {
        let answer = client.call(method, &one, kind, Some(body));
        assert_eq!((answer.status, &answer.body["reason"]), (422, &json!("Invalid")), "{answer:?}");
        let causes = answer.body["details"]["causes"].as_array().expect("causes");
        let times = causes.iter().filter(|c| c["field"] == "metadata.deletionTimestamp");
        assert_ne!(times.count(), 0, "{answer:?}");
        assert_eq!(client.get(&one).body, made.body);
    }
    // Once a deletion has set it, it cannot be removed, and the object is deleted in the end.
    let mut kept = pod("p");
    kept["metadata"]["finalizers"] = json!(["example.org/wait"]);
    assert_eq!(client.post(PODS, &kept).status, 201);
    let one = format!("{PODS}/p");
    let marked = client.delete(&one).body;
    let deletion_time = marked["metadata"]["deletionTimestamp"].clone();
    assert!(seconds(&deletion_time) > 0);
    let back = json!([{"op": "remove", "path": "/metadata/deletionTimestamp"}]);
    assert_eq!(
        patch(&client, &one, JSON_PATCH, &back)["metadata"]["deletionTimestamp"],
        deletion_time
    );
    let freed = json!({"metadata": {"finalizers": null}});
    patch(&client, &one, MERGE_PATCH, &freed);
    refused(&client.get(&one), 404, "NotFound", "pods \"p\" not found");
    server.stop();
}

/// Proves: R-META-10, R-META-11.
#[test]
fn labels_and_annotations_are_strings_and_are_kept() {
    let server = server();
    let client = server.client();
    let document = r#"{"a": [1, 2.50, null], "b": "\u00e9 \\ \" / </script>", "b": {} }"#;
    let texts = json!({
        "example.org/json": document, "lines": "a\r\n\tb\n", "none": "", "far": "\u{1f600}é\u{7f}",
        "long": "x".repeat(10_000)
    });
    let mut obj = map("a", "1");
    obj["metadata"]["annotations"] = texts.clone();
    obj["metadata"]["labels"] = json!({"example.org/l": "V.a_l-1", "none": ""});
    let made = client.post(MAPS, &obj);
    assert_eq!(made.status, 201, "{made:?}");
    let read = client.get(&format!("{MAPS}/a")).body;
    assert_eq!(read["metadata"]["annotations"], texts);
    assert_eq!(read["metadata"]["labels"], obj["metadata"]["labels"]);
    for (member, what) in [("labels", json!({"l": 1})), ("annotations", json!({"l": true}))] {
        let mut obj = map("b", "1");
        obj["metadata"][member] = what;
        let answer = client.post(MAPS, &obj);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(
            (answer.status, &answer.body["reason"]),
            (400, &json!("BadRequest")),
            "{message}"
        );
        assert!(message.contains("of type string") && message.contains(member), "{message}");
    }
    let mut obj = map("b", "1");
    obj["metadata"]["labels"] = json!({"l": "not a value"});
    let answer = client.post(MAPS, &obj);
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.labels");
    server.stop();
}
