//! R-CONC: `metadata.resourceVersion` as the precondition of an update, and as the server's logical
//! clock.

use super::{MAPS, create, map, pod, put, refused, server};
use crate::world::revision_of;
use serde_json::{Value, json};

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest \
                        version and try again";

fn with_version(mut obj: Value, version: &Value) -> Value {
    obj["metadata"]["resourceVersion"] = version.clone();
    obj
}

/// Proves: R-CONC-01, R-CONC-02, R-CONC-03, R-CONC-06, R-HTTP-11, R-STAT-15.
#[test]
fn an_update_with_an_old_resource_version_is_409() {
    let server = server();
    let client = server.client();
    let path = format!("{MAPS}/a");
    let first = create(&client, "a");
    let version = &first["metadata"]["resourceVersion"];
    assert!(version.is_string(), "{version}");
    let second = put(&client, &path, &with_version(map("a", "2"), version));
    let stale = with_version(map("a", "3"), version);
    let why = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
    for (method, kind) in [("PUT", "application/json"), ("PATCH", "application/merge-patch+json")] {
        let answer = client.call(method, &path, kind, Some(&stale));
        refused(&answer, 409, "Conflict", &why);
        assert_eq!(answer.body["details"], json!({"name": "a", "kind": "configmaps"}));
    }
    assert_eq!(client.get(&path).body, second);
    // Without a version the last write wins.
    let third = put(&client, &path, &map("a", "3"));
    assert_eq!((&third["data"]["v"], &client.get(&path).body), (&json!("3"), &third));
    // A resourceVersion that is not a string was not returned by the server.
    let number = with_version(map("a", "4"), &json!(revision_of(&third)));
    let answer = client.call("PUT", &path, "application/json", Some(&number));
    assert_eq!((answer.status, &answer.body["reason"]), (400, &json!("BadRequest")), "{answer:?}");
    server.stop();
}

/// Proves: R-CONC-03.
#[test]
fn some_kinds_require_a_resource_version_for_an_update() {
    let server = server();
    let client = server.client();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}
    });
    assert_eq!(client.post(path, &lease).status, 201);
    let answer = client.call("PUT", &format!("{path}/l"), "application/json", Some(&lease));
    let why = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: \
               0: must be specified for an update";
    refused(&answer, 422, "Invalid", why);
    server.stop();
}

/// The same kinds require a resourceVersion as in kube-apiserver 1.36: EndpointSlices do not, for
/// example.
#[test]
fn the_kinds_that_require_a_resource_version_match_kube_apiserver() {
    let server = server();
    let client = server.client();
    let check = |path: &str, mut object: Value, code: u16| {
        object["metadata"] = json!({"name": "a.b"});
        let made = client.post(path, &object);
        assert_eq!(made.status, 201, "{made:?}");
        let mut changed = made.body;
        changed["metadata"]["labels"] = json!({"a": "b"});
        changed["metadata"]["resourceVersion"] = Value::Null;
        let answer = client.call("PUT", &format!("{path}/a.b"), "application/json", Some(&changed));
        assert_eq!(answer.status, code, "{answer:?}");
    };
    let namespaced =
        |group: &str, resource: &str| format!("/apis/{group}/v1/namespaces/default/{resource}");
    let slice = json!({"addressType": "IPv4", "endpoints": []});
    check(&namespaced("discovery.k8s.io", "endpointslices"), slice, 200);
    check("/apis/storage.k8s.io/v1/storageclasses", json!({"provisioner": "p"}), 200);
    check("/apis/storage.k8s.io/v1/csinodes", json!({"spec": {"drivers": []}}), 422);
    check("/apis/storage.k8s.io/v1/csidrivers", json!({"spec": {}}), 422);
    let budget = json!({"spec": {"minAvailable": 1}});
    check(&namespaced("policy", "poddisruptionbudgets"), budget, 422);
    server.stop();
}

/// Upstream checks the preconditions of a deletion before its transaction, except for namespaces.
#[test]
fn a_delete_names_the_failed_precondition() {
    let server = server();
    let client = server.client();
    let wants_uid = json!({"preconditions": {"uid": "x"}});
    let map = create(&client, "a");
    let uid = map["metadata"]["uid"].as_str().expect("a uid");
    let answer = client.call("DELETE", &format!("{MAPS}/a"), "application/json", Some(&wants_uid));
    let why = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not \
         match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    refused(&answer, 409, "Conflict", &why);
    assert_eq!(answer.body["details"], json!({"name": "a", "kind": "ConfigMap"}));
    let namespace = json!({"metadata": {"name": "other"}});
    let namespace = client.post("/api/v1/namespaces", &namespace).body;
    let path = "/api/v1/namespaces/other";
    let uid = namespace["metadata"]["uid"].as_str().expect("a uid");
    let answer = client.call("DELETE", path, "application/json", Some(&wants_uid));
    let why = format!(
        "Operation cannot be fulfilled on namespaces \"other\": Precondition failed: UID in \
         precondition: x, UID in object meta: {uid}"
    );
    refused(&answer, 409, "Conflict", &why);
    server.stop();
}

/// Proves: R-CONC-04.
#[test]
fn one_of_two_writers_with_the_same_version_wins() {
    let server = server();
    let client = server.client();
    let path = format!("{MAPS}/a");
    let mut now = create(&client, "a");
    for round in 0..20 {
        let version = now["metadata"]["resourceVersion"].clone();
        let codes: Vec<(u16, Value)> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|who| {
                    let client = server.client();
                    let path = &path;
                    let obj = with_version(map("a", &format!("{round}-{who}")), &version);
                    scope.spawn(move || {
                        let answer = client.call("PUT", path, "application/json", Some(&obj));
                        (answer.status, answer.body)
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().expect("an answer")).collect()
        });
        now = client.get(&path).body;
        let won: Vec<&Value> =
            codes.iter().filter(|(code, _)| *code == 200).map(|(_, body)| body).collect();
        assert_eq!(won, [&now]);
        let lost = codes.iter().filter(|(code, body)| *code == 409 && body["reason"] == "Conflict");
        assert_eq!(lost.count(), 3, "{codes:?}");
    }
    server.stop();
}

/// Proves: R-CONC-05, R-CONC-07, R-CONC-08, R-META-06.
#[test]
fn only_changes_increase_the_resource_version() {
    let server = server();
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    let mut last = revision_of(&client.get(MAPS).body);
    let mut later = |what: &str, obj: &Value| {
        assert!(revision_of(obj) > last, "{what}: {obj}");
        last = revision_of(obj);
    };
    let made = client.post(pods, &pod("p")).body;
    later("create", &made);
    later("another kind", &create(&client, "a"));
    later("another kind", &put(&client, &format!("{MAPS}/a"), &map("a", "2")));
    let one = format!("{pods}/p");
    let label = json!({"metadata": {"labels": {"l": "1"}}});
    let merge = "application/merge-patch+json";
    later("patch", &client.call("PATCH", &one, merge, Some(&label)).body);
    let status = json!({"status": {"message": "m"}});
    later("status", &client.call("PATCH", &format!("{one}/status"), merge, Some(&status)).body);
    let bound = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}
    });
    assert_eq!(client.post(&format!("{one}/binding?dryRun=All"), &bound).status, 201);
    assert_eq!(client.get(&one).body["spec"]["nodeName"], Value::Null);
    assert_eq!(client.post(&format!("{one}/binding"), &bound).status, 201);
    let now = client.get(&one).body;
    later("binding", &now);
    // A no-op write stores nothing and causes no event.
    let mut watch =
        client.open_watch(&format!("{pods}?watch=1&resourceVersion={}", revision_of(&now)));
    let same = client.call("PATCH", &one, merge, Some(&label)).body;
    assert_eq!(same, now);
    assert_eq!(put(&client, &one, &now), now);
    assert_eq!(client.post(pods, &pod("q")).status, 201);
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "q".to_owned())]);
    // The resourceVersion of a list is that of the newest write to any kind.
    later(
        "list",
        &json!({"metadata": {"resourceVersion": (revision_of(&create(&client, "z"))).to_string()}}),
    );
    assert!(
        revision_of(&client.get(pods).body) >= revision_of(&client.get(&format!("{MAPS}/z")).body)
    );
    server.stop();
}

/// Proves: R-CONC-09.
#[test]
fn a_delete_may_have_preconditions_of_version_and_uid() {
    let server = server();
    let client = server.client();
    let path = format!("{MAPS}/a");
    let first = create(&client, "a");
    let now = put(&client, &path, &map("a", "2"));
    let delete = |preconditions: Value| {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions
        });
        client.call("DELETE", &path, "application/json", Some(&options))
    };
    for preconditions in [
        json!({"resourceVersion": first["metadata"]["resourceVersion"]}),
        json!({"uid": "another"}),
    ] {
        let answer = delete(preconditions);
        assert_eq!(
            (answer.status, &answer.body["reason"]),
            (409, &json!("Conflict")),
            "{answer:?}"
        );
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains("precondition"), "{message}");
        assert_eq!(client.get(&path).body, now);
    }
    let version = &now["metadata"]["resourceVersion"];
    let uid = &now["metadata"]["uid"];
    assert_eq!(delete(json!({"resourceVersion": version, "uid": uid})).status, 200);
    assert_eq!(client.get(&path).status, 404);
    server.stop();
}
