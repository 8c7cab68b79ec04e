//! R-STAT: the `Status` of failures and deletions.

use super::{MAPS, create, map, refused, server};
use crate::minimal::{collection, minimal, name, stored_resources};
use serde_json::{Value, json};

/// Proves: R-STAT-01, R-STAT-03, R-STAT-04, R-STAT-05, R-STAT-06, R-STAT-07.
#[test]
fn every_error_is_a_json_status() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    let one = format!("{MAPS}/a");
    let get = "GET";
    let json_type = "Content-Type: application/json\r\n";
    let stale = json!({"metadata": {"resourceVersion": "1"}});
    let wrong = json!({"metadata": {"name": "b", "labels": {"l": "no value"}}});
    let nobody = "Authorization: Bearer t\r\nImpersonate-User: nobody\r\n";
    for (code, reason, method, path, headers, body) in [
        (400, "BadRequest", get, format!("{MAPS}?continue=x"), "", None),
        (401, "Unauthorized", get, one.clone(), "Authorization: Bearer x\r\n", None),
        (403, "Forbidden", get, one.clone(), nobody, None),
        (404, "NotFound", get, format!("{MAPS}/b"), "", None),
        (404, "NotFound", "DELETE", format!("{MAPS}/b"), "", None),
        (404, "NotFound", get, "/api/v1/none".to_owned(), "", None),
        (405, "MethodNotAllowed", "PUT", MAPS.to_owned(), json_type, Some(map("a", "1"))),
        (406, "NotAcceptable", get, one.clone(), "Accept: text/html\r\n", None),
        (409, "AlreadyExists", "POST", MAPS.to_owned(), json_type, Some(map("a", "1"))),
        (
            409,
            "Conflict",
            "PATCH",
            one.clone(),
            "Content-Type: application/merge-patch+json\r\n",
            Some(stale),
        ),
        (
            415,
            "UnsupportedMediaType",
            "POST",
            MAPS.to_owned(),
            "Content-Type: text/plain\r\n",
            Some(map("b", "1")),
        ),
        (422, "Invalid", "POST", MAPS.to_owned(), json_type, Some(wrong)),
        (422, "Invalid", get, format!("{MAPS}?resourceVersionMatch=Exact"), "", None),
        (504, "Timeout", get, format!("{one}?resourceVersion=99999&timeout=10ms"), "", None),
    ] {
        let answer = client.request(method, &path, headers, body.as_ref());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_ne!(message, "", "{answer:?}");
        refused(&answer, code, reason, message);
        assert_eq!(answer.body["metadata"], json!({}), "{answer:?}");
        let details = &answer.body["details"];
        // The details of each reason are tested elsewhere.
        let tells = |name: &str| details.get(name).is_some();
        let want = match reason {
            "NotFound" if path.ends_with("/none") => (false, false, false),
            "NotFound" | "AlreadyExists" | "Conflict" | "Forbidden" => (true, true, false),
            "Invalid" => (path == MAPS, true, true),
            _ => (false, false, false),
        };
        assert_eq!((tells("name"), tells("kind"), tells("causes")), want, "{answer:?}");
    }
    server.stop();
}

/// Proves: R-STAT-02, R-STAT-03.
///
/// A deletion that waits for finalizers, or of a collection, returns the objects, as in
/// kube-apiserver.
#[test]
fn a_delete_returns_a_status_of_success() {
    let server = server();
    let client = server.client();
    let made = create(&client, "a");
    let gone = client.delete(&format!("{MAPS}/a"));
    assert_eq!(gone.status, 200);
    let uid = &made["metadata"]["uid"];
    assert_eq!(
        gone.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": uid}
        })
    );
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}
    });
    assert_eq!(client.post(roles, &role).status, 201);
    let gone = client.delete(&format!("{roles}/r"));
    assert_eq!(gone.body["status"], "Success", "{gone:?}");
    assert_eq!(gone.body["details"]["group"], "rbac.authorization.k8s.io", "{gone:?}");
    let mut kept = map("b", "1");
    kept["metadata"]["finalizers"] = json!(["example.org/wait"]);
    assert_eq!(client.post(MAPS, &kept).status, 201);
    let waits = client.delete(&format!("{MAPS}/b"));
    assert_eq!((waits.status, &waits.body["kind"]), (200, &json!("ConfigMap")), "{waits:?}");
    server.stop();
}

/// Proves: R-STAT-02.
///
/// Some kinds return the deleted object. The OpenAPI document states which.
#[test]
fn a_delete_returns_the_documented_status() {
    let server = server();
    let client = server.client();
    let paths = client.get("/openapi/v2").body["paths"].clone();
    let mut objects = 0;
    for resource in stored_resources() {
        let all = collection(resource);
        let told = all.replace("/namespaces/default/", "/namespaces/{namespace}/") + "/{name}";
        let answer = &paths[&told]["delete"]["responses"]["200"]["schema"]["$ref"];
        let answer = answer.as_str().and_then(|name| name.rsplit('.').next());
        let made = client.post(&all, &minimal(resource));
        assert_eq!(made.status, 201, "{all}: {made:?}");
        let one = format!("{all}/{}", name(&resource.name));
        let gone = client.delete(&one);
        assert_eq!(gone.status, 200, "{one}: {gone:?}");
        // All kinds return an object that waits for finalizers.
        if gone.body["metadata"]["deletionTimestamp"].is_null() {
            assert_eq!(gone.body["kind"].as_str(), answer, "{one}");
            objects += usize::from(answer != Some("Status"));
        }
    }
    assert!(objects > 10, "{objects}");
    server.stop();
}

/// Proves: R-STAT-09.
#[test]
fn the_documented_not_found_example_is_exact() {
    let server = server();
    let answer = server.client().get("/api/v1/namespaces/default/pods/grafana");
    assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/json")));
    assert_eq!(
        answer.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "pods \"grafana\" not found", "reason": "NotFound",
            "details": {"name": "grafana", "kind": "pods"}, "code": 404
        })
    );
    server.stop();
}

/// Proves: R-STAT-05.
#[test]
fn a_status_may_have_no_reason() {
    let server = server();
    let client = server.client();
    let made = client.post(MAPS, &json!({"metadata": {"name": "a"}}));
    assert_eq!(made.status, 201, "{made:?}");
    let answer = client.get(&format!("{MAPS}/a?resourceVersion=abc"));
    assert_eq!((answer.status, &answer.body["reason"]), (500, &Value::Null), "{answer:?}");
    let why = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
               invalid syntax";
    assert_eq!(answer.body["message"], why);
    assert_eq!(answer.body["code"], 500);
    server.stop();
}
