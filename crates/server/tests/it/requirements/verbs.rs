//! R-VERB: the verbs, by method and path.

use super::{MAPS, create, map, names, pod, put, refused, seconds, server};
use crate::world::{Client, Response, revision_of};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Proves: R-VERB-01, R-VERB-02, R-VERB-03, R-VERB-04, R-VERB-09.
#[test]
fn an_object_is_created_read_listed_replaced_and_deleted() {
    let server = server();
    let client = server.client();
    let one = format!("{MAPS}/a");
    let made = create(&client, "a");
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(made["data"], json!({"v": "1"}));
    assert_eq!(client.get(&one).body, made);
    create(&client, "b");
    let listed = client.get(MAPS).body;
    assert_eq!((&listed["kind"], &listed["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(names(&listed), ["a", "b"]);

    // The whole object is replaced: omitted fields are removed.
    let mut new = map("a", "2");
    new["metadata"]["labels"] = json!({"l": "1"});
    put(&client, &one, &new);
    new["data"] = json!({"w": "3"});
    new["metadata"].as_object_mut().expect("a map").remove("labels");
    let done = put(&client, &one, &new);
    assert_eq!((&done["data"], &done["metadata"]["labels"]), (&json!({"w": "3"}), &Value::Null));
    assert_eq!(done["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(client.get(&one).body, done);

    let gone = client.delete(&one);
    assert_eq!(gone.status, 200, "{gone:?}");
    refused(&client.get(&one), 404, "NotFound", "configmaps \"a\" not found");
    refused(&client.delete(&one), 404, "NotFound", "configmaps \"a\" not found");
    assert_eq!(names(&client.get(MAPS).body), ["b"]);
    server.stop();
}

/// Proves: R-VERB-03.
#[test]
fn a_get_does_not_include_dependent_objects() {
    let server = server();
    let client = server.client();
    let space = client.get("/api/v1/namespaces/default").body;
    for round in 0..20 {
        create(&client, &format!("m-{round}"));
    }
    assert_eq!(client.get("/api/v1/namespaces/default").body, space);
    server.stop();
}

/// A Pod on a node, which is only deleted when its kubelet confirms it.
fn running(client: &Client, name: &str, grace: Option<i64>) -> Value {
    let mut obj = pod(name);
    obj["spec"]["nodeName"] = json!("n");
    if let Some(grace) = grace {
        obj["spec"]["terminationGracePeriodSeconds"] = json!(grace);
    }
    let made = client.post(PODS, &obj);
    assert_eq!(made.status, 201, "{made:?}");
    made.body
}

/// Checks that a response has an object with a deletionTimestamp `grace` seconds after `now`.
fn waits(answer: &Response, grace: i64, now: i64) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let metadata = &answer.body["metadata"];
    assert_eq!(metadata["deletionGracePeriodSeconds"], grace, "{answer:?}");
    let deletion_time = seconds(&metadata["deletionTimestamp"]);
    assert!((now + grace..now + grace + 5).contains(&deletion_time), "{answer:?}");
}

/// Proves: R-VERB-05, R-VERB-06, R-VERB-07.
#[test]
fn a_deletion_uses_the_grace_period_of_the_request_the_object_or_the_kind() {
    let server = server();
    let client = server.client();
    let now = seconds(&running(&client, "kind", None)["metadata"]["creationTimestamp"]);
    running(&client, "own", Some(7));
    running(&client, "asked", Some(7));
    running(&client, "body", Some(7));
    running(&client, "zero", Some(7));
    waits(&client.delete(&format!("{PODS}/kind")), 30, now);
    waits(&client.delete(&format!("{PODS}/own")), 7, now);
    waits(&client.delete(&format!("{PODS}/asked?gracePeriodSeconds=100")), 100, now);
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 11
    });
    let path = format!("{PODS}/body");
    waits(&client.call("DELETE", &path, "application/json", Some(&options)), 11, now);
    waits(&client.get(&path), 11, now);
    // A second deletion may shorten the grace period, not extend it.
    waits(&client.delete(&format!("{path}?gracePeriodSeconds=20")), 11, now);
    waits(&client.delete(&format!("{path}?gracePeriodSeconds=3")), 3, now);
    let gone = client.delete(&format!("{PODS}/zero?gracePeriodSeconds=0"));
    assert_eq!(gone.status, 200, "{gone:?}");
    refused(&client.get(&format!("{PODS}/zero")), 404, "NotFound", "pods \"zero\" not found");
    // Objects of other kinds are deleted at once; the grace period is ignored.
    create(&client, "m");
    let gone = client.delete(&format!("{MAPS}/m?gracePeriodSeconds=100"));
    assert_eq!((gone.status, &gone.body["status"]), (200, &json!("Success")), "{gone:?}");
    assert_eq!(client.get(&format!("{MAPS}/m")).status, 404);
    server.stop();
}

/// Proves: R-VERB-08.
#[test]
fn a_delete_of_a_collection_follows_its_selectors() {
    let server = server();
    let client = server.client();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut obj = map(name, "1");
        obj["metadata"]["labels"] = json!({"l": label});
        assert_eq!(client.post(MAPS, &obj).status, 201);
    }
    let some = client.delete(&format!("{MAPS}?labelSelector=l%3Dx"));
    assert_eq!((some.status, &some.body["kind"]), (200, &json!("ConfigMapList")), "{some:?}");
    assert_eq!(names(&some.body), ["a", "c"]);
    assert_eq!(names(&client.get(MAPS).body), ["b"]);
    create(&client, "d");
    let rest = client.delete(MAPS);
    assert_eq!((rest.status, names(&rest.body)), (200, vec!["b", "d"]));
    assert!(names(&client.get(MAPS).body).is_empty());
    server.stop();
}

/// Proves: R-VERB-10.
#[test]
fn a_put_creates_only_kinds_that_allow_it() {
    let server = server();
    let client = server.client();
    let obj = |api: &str, kind: &str, members: Value| {
        let mut obj = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "new"}});
        for (name, value) in members.as_object().expect("a map") {
            obj[name] = value.clone();
        }
        obj
    };
    let spec = pod("new")["spec"].clone();
    let set = json!({"spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    }});
    let apps = "/apis/apps/v1/namespaces/default/deployments/new";
    for (path, obj, message) in [
        (format!("{MAPS}/new"), map("new", "1"), "configmaps \"new\" not found"),
        (format!("{PODS}/new"), pod("new"), "pods \"new\" not found"),
        (apps.to_owned(), obj("apps/v1", "Deployment", set), "deployments.apps \"new\" not found"),
    ] {
        let answer = client.call("PUT", &path, "application/json", Some(&obj));
        refused(&answer, 404, "NotFound", message);
        assert_eq!(client.get(&path).status, 404, "{path}");
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/new";
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/new";
    for (path, obj) in [
        (leases, obj("coordination.k8s.io/v1", "Lease", json!({"spec": {}}))),
        (roles, obj("rbac.authorization.k8s.io/v1", "Role", json!({}))),
        ("/api/v1/namespaces/default/endpoints/new", obj("v1", "Endpoints", json!({}))),
    ] {
        let answer = client.call("PUT", path, "application/json", Some(&obj));
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(client.get(path).body, answer.body);
        let again = client.call("PUT", path, "application/json", Some(&answer.body));
        assert_eq!(again.status, 200, "{again:?}");
    }
    server.stop();
}

/// Proves: R-VERB-11.
#[test]
fn a_patch_changes_only_the_named_fields() {
    let server = server();
    let client = server.client();
    let mut obj = map("a", "1");
    obj["data"]["w"] = json!("kept");
    obj["metadata"]["labels"] = json!({"l": "kept"});
    assert_eq!(client.post(MAPS, &obj).status, 201);
    let path = format!("{MAPS}/a");
    let patch = json!({"data": {"v": "2"}});
    let done = client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.body["data"], json!({"v": "2", "w": "kept"}));
    assert_eq!(done.body["metadata"]["labels"], json!({"l": "kept"}));
    assert_eq!(client.get(&path).body, done.body);
    assert!(revision_of(&done.body) > 0);
    server.stop();
}

/// Proves: R-VERB-13.
#[test]
fn discovery_lists_get_and_list_separately() {
    let server = server();
    let client = server.client();
    let found = client.get("/api/v1").body;
    let verbs = |name: &str| {
        let all = found["resources"].as_array().expect("resources");
        let one = all.iter().find(|one| one["name"] == name).expect("a resource");
        one["verbs"].clone()
    };
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    assert_eq!(verbs("configmaps"), json!(all));
    assert_eq!(verbs("pods/status"), json!(["get", "patch", "update"]));
    assert_eq!(verbs("bindings"), json!(["create"]));
    assert_eq!(verbs("componentstatuses"), json!(["get", "list"]));
    // The message of a 403 names the verb, get or list.
    let whom = "Authorization: Bearer t\r\nImpersonate-User: nobody\r\n";
    for (path, verb) in [(MAPS.to_owned(), "list"), (format!("{MAPS}/a"), "get")] {
        let answer = client.request("GET", &path, whom, None);
        assert_eq!(answer.status, 403, "{answer:?}");
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("cannot {verb} resource \"configmaps\"")), "{message}");
    }
    server.stop();
}
