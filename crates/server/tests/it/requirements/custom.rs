//! R-CRD: custom resources.

use super::world::{DEFINITIONS, WIDGETS, define, invalid, made, read, widget, widget_definition};
use super::{
    APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, names, patch, put, refused, server,
};
use serde_json::json;

/// A definition adds a resource with the verbs, watches, patches and errors of all resources.
///
/// Proves: R-CRD-01, R-CRD-02.
#[test]
fn a_definition_adds_a_resource_like_any_other() {
    let server = server();
    let client = server.client();
    assert_eq!(client.get(WIDGETS).status, 404);
    define(&client, &widget_definition());
    let verbs =
        json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    let found = read(&client, "/apis/example.com/v1")["resources"][0].clone();
    let shown = (&found["name"], &found["kind"], &found["namespaced"], &found["verbs"]);
    assert_eq!(shown, (&json!("widgets"), &json!("Widget"), &json!(true), &verbs));
    let empty = read(&client, WIDGETS);
    let version = empty["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let first = made(&client, WIDGETS, &widget("a"));
    let one = format!("{WIDGETS}/a");
    refused(
        &client.post(WIDGETS, &widget("a")),
        409,
        "AlreadyExists",
        "widgets.example.com \"a\" already exists",
    );
    refused(
        &client.get(&format!("{WIDGETS}/none")),
        404,
        "NotFound",
        "widgets.example.com \"none\" not found",
    );
    let mut wrong = widget("b");
    wrong["spec"]["color"] = json!("Green");
    invalid(&client.post(WIDGETS, &wrong), &["spec.color"]);
    assert_eq!(
        patch(&client, &one, MERGE_PATCH, &json!({"spec": {"note": "m"}}))["spec"]["note"],
        "m"
    );
    let replace = json!([{"op": "replace", "path": "/spec/note", "value": "j"}]);
    assert_eq!(patch(&client, &one, JSON_PATCH, &replace)["spec"]["note"], "j");
    let strategic =
        client.call("PATCH", &one, STRATEGIC_PATCH, Some(&json!({"spec": {"note": "s"}})));
    assert_eq!(strategic.status, 415, "{strategic:?}");
    let mut applied = widget("a");
    applied["spec"]["on"] = json!(true);
    let done = patch(&client, &format!("{one}?fieldManager=m"), APPLY_PATCH, &applied);
    assert_eq!((&done["spec"]["on"], &done["spec"]["note"]), (&json!(true), &json!("j")));
    let stale = client.call("PUT", &one, "application/json", Some(&first));
    assert_eq!((stale.status, &stale.body["reason"]), (409, &json!("Conflict")), "{stale:?}");
    put(&client, &one, &done);
    made(&client, WIDGETS, &widget("b"));
    let page = read(&client, &format!("{WIDGETS}?limit=1"));
    assert_eq!((names(&page), page["metadata"]["continue"].is_string()), (vec!["a"], true));
    let red = read(&client, &format!("{WIDGETS}?fieldSelector=spec.color%3DRed,metadata.name%3Db"));
    assert_eq!(names(&red), ["b"]);
    assert_eq!(client.delete(&one).status, 200);
    let path = format!("{WIDGETS}?watch=1&resourceVersion={version}");
    let events = client.watch(&path, 6).expect("events");
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "ADDED", "DELETED"]);
    assert_eq!(names(&client.delete(WIDGETS).body), ["b"]);
    assert_eq!(client.delete(&format!("{DEFINITIONS}/widgets.example.com")).status, 200);
    client.poll(WIDGETS, |answer| answer.status == 404);
    server.stop();
}
