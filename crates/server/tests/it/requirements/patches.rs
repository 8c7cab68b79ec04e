//! R-PATCH: the patch types, by media type.

use super::{
    APPLY_PATCH, JSON_PATCH, MAPS, MERGE_PATCH, STRATEGIC_PATCH, create, map, patch, pod, refused,
    server,
};
use crate::world::revision_of;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Proves: R-PATCH-01, R-PATCH-03, R-PATCH-04.
#[test]
fn the_content_type_selects_the_patch_type() {
    let server = server();
    let client = server.client();
    let image = json!([{"name": "b", "image": "b:2"}]);
    let containers = json!({"spec": {"template": {"spec": {"containers": image}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [
                        {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}
                    ]}
                }
            }
        })
    };
    let images = |obj: &Value| -> Vec<(String, String)> {
        let all = obj["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        all.iter().map(|one| (text(one, "name"), text(one, "image"))).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    for (name, media_type, want) in [
        ("merge", MERGE_PATCH, pairs(&[("b", "b:2")])),
        ("strategic", STRATEGIC_PATCH, pairs(&[("a", "a:1"), ("b", "b:2")])),
    ] {
        assert_eq!(client.post(path, &deployment(name)).status, 201);
        let done = patch(&client, &format!("{path}/{name}"), media_type, &containers);
        assert_eq!(images(&done), want, "{media_type}");
        assert_eq!(done["metadata"]["generation"], 2);
    }
    // A merge patch is an object and a JSON patch is a list of operations; each rejects the other.
    let one = format!("{path}/merge");
    let answer = client.call("PATCH", &one, JSON_PATCH, Some(&containers));
    assert_eq!((answer.status, &answer.body["reason"]), (400, &json!("BadRequest")), "{answer:?}");
    let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}]);
    for (media_type, prefix) in [(MERGE_PATCH, "error decoding patch: "), (STRATEGIC_PATCH, "")] {
        let answer = client.call("PATCH", &one, media_type, Some(&operations));
        let why = "json: cannot unmarshal array into Go value of type map[string]interface {}";
        refused(&answer, 400, "BadRequest", &format!("{prefix}{why}"));
    }
    assert_eq!(patch(&client, &one, JSON_PATCH, &operations)["metadata"]["labels"]["l"], "1");
    server.stop();
}

/// Proves: R-PATCH-02.
#[test]
fn a_json_patch_runs_its_operations_in_order_or_not_at_all() {
    let server = server();
    let client = server.client();
    let path = format!("{MAPS}/a");
    let mut obj = map("a", "1");
    obj["metadata"]["finalizers"] = json!(["example.org/b"]);
    assert_eq!(client.post(MAPS, &obj).status, 201);
    let check = |operations: Value, data: Value| {
        assert_eq!(patch(&client, &path, JSON_PATCH, &operations)["data"], data, "{operations}");
    };
    check(json!([{"op": "add", "path": "/data/w", "value": "2"}]), json!({"v": "1", "w": "2"}));
    check(json!([{"op": "replace", "path": "/data/v", "value": "3"}]), json!({"v": "3", "w": "2"}));
    check(
        json!([{"op": "copy", "from": "/data/v", "path": "/data/x"}]),
        json!({"v": "3", "w": "2", "x": "3"}),
    );
    check(
        json!([{"op": "move", "from": "/data/w", "path": "/data/y"}]),
        json!({"v": "3", "x": "3", "y": "2"}),
    );
    check(json!([{"op": "remove", "path": "/data/x"}]), json!({"v": "3", "y": "2"}));
    check(
        json!([
            {"op": "test", "path": "/data/v", "value": "3"},
            {"op": "replace", "path": "/data/v", "value": "4"},
            {"op": "add", "path": "/data/a~1b", "value": "5"},
            {"op": "move", "from": "/data/a~1b", "path": "/data/z"},
        ]),
        json!({"v": "4", "y": "2", "z": "5"}),
    );
    let items = json!([
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.org/a"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/c"},
    ]);
    let done = patch(&client, &path, JSON_PATCH, &items);
    let want = ["example.org/a", "example.org/b", "example.org/c"];
    assert_eq!(done["metadata"]["finalizers"], json!(want));
    for operations in [
        json!([
            {"op": "replace", "path": "/data/v", "value": "lost"},
            {"op": "test", "path": "/data/v", "value": "another"},
        ]),
        json!([{"op": "remove", "path": "/data/nothing"}]),
    ] {
        let answer = client.call("PATCH", &path, JSON_PATCH, Some(&operations));
        let why = "the server rejected our request due to an error in our request";
        refused(&answer, 422, "Invalid", why);
        assert_eq!(client.get(&path).body, done);
    }
    server.stop();
}

/// Proves: R-PATCH-03.
#[test]
fn a_merge_patch_merges_maps_removes_by_null_and_replaces_lists() {
    let server = server();
    let client = server.client();
    let path = format!("{MAPS}/a");
    let mut obj = map("a", "1");
    obj["data"]["w"] = json!("2");
    obj["metadata"]["labels"] = json!({"k": "1", "l": "2"});
    obj["metadata"]["finalizers"] = json!(["example.org/a", "example.org/b"]);
    assert_eq!(client.post(MAPS, &obj).status, 201);
    let done = patch(
        &client,
        &path,
        MERGE_PATCH,
        &json!({
            "metadata": {"labels": {"k": null, "m": "3"}, "finalizers": ["example.org/c"]},
            "data": {"w": null, "absent": null, "x": "4"}
        }),
    );
    assert_eq!(done["data"], json!({"v": "1", "x": "4"}));
    assert_eq!(done["metadata"]["labels"], json!({"l": "2", "m": "3"}));
    assert_eq!(done["metadata"]["finalizers"], json!(["example.org/c"]));
    let done = patch(&client, &path, MERGE_PATCH, &json!({"data": null}));
    assert_eq!(done["data"], Value::Null);
    server.stop();
}

/// Proves: R-PATCH-05.
#[test]
fn a_patched_object_is_defaulted_and_validated_and_gets_a_new_version() {
    let server = server();
    let client = server.client();
    let path = "/api/v1/namespaces/default/services";
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]}
    });
    let made = client.post(path, &service);
    assert_eq!(made.status, 201, "{made:?}");
    let one = format!("{path}/s");
    let ports = json!({"spec": {"ports": [{"port": 81, "name": "b"}, {"port": 82, "name": "c"}]}});
    let done = patch(&client, &one, MERGE_PATCH, &ports);
    assert!(revision_of(&done) > revision_of(&made.body), "{done}");
    assert_eq!(
        done["spec"]["ports"],
        json!([
            {"port": 81, "name": "b", "protocol": "TCP", "targetPort": 81},
            {"port": 82, "name": "c", "protocol": "TCP", "targetPort": 82},
        ])
    );
    let wrong = json!({"spec": {"ports": [{"port": 100_000}]}});
    let answer = client.call("PATCH", &one, MERGE_PATCH, Some(&wrong));
    assert_eq!((answer.status, &answer.body["reason"]), (422, &json!("Invalid")), "{answer:?}");
    let cause = &answer.body["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.ports[0].port", "{answer:?}");
    assert_eq!(client.get(&one).body, done);
    server.stop();
}

/// Proves: R-PATCH-06.
#[test]
fn a_patch_of_an_unsupported_media_type_is_415() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    for media_type in ["application/json", "application/yaml", "text/plain", "application/x-patch"]
    {
        let patch = json!({"data": {"v": "2"}});
        let answer = client.call("PATCH", &format!("{MAPS}/a"), media_type, Some(&patch));
        let why = "415: Unsupported Media Type";
        refused(&answer, 415, "UnsupportedMediaType", why);
    }
    assert_eq!(client.get(&format!("{MAPS}/a")).body["data"]["v"], "1");
    server.stop();
}

/// Proves: R-PATCH-07.
#[test]
fn server_side_apply_keeps_fields_of_other_managers() {
    let server = server();
    let client = server.client();
    let path = format!("{PODS}/p");
    let mut config = pod("p");
    let apply = |config: &Value, manager: &str, force: &str| {
        let path = format!("{path}?fieldManager={manager}{force}");
        client.call("PATCH", &path, APPLY_PATCH, Some(config))
    };
    let made = apply(&config, "one", "");
    assert_eq!(made.status, 201, "{made:?}");
    let label = json!({"metadata": {"labels": {"other": "kept"}}});
    patch(&client, &path, MERGE_PATCH, &label);
    config["metadata"]["labels"] = json!({"own": "1"});
    let done = apply(&config, "one", "");
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.body["metadata"]["labels"], json!({"own": "1", "other": "kept"}));
    config["metadata"]["labels"] = json!({});
    let done = apply(&config, "one", "");
    assert_eq!(done.body["metadata"]["labels"], json!({"other": "kept"}), "{done:?}");
    config["spec"]["containers"][0]["image"] = json!("another");
    let conflict = apply(&config, "two", "");
    assert_eq!((conflict.status, &conflict.body["reason"]), (409, &json!("Conflict")));
    let cause = &conflict.body["details"]["causes"][0];
    assert_eq!(cause["reason"], "FieldManagerConflict", "{conflict:?}");
    assert_eq!(cause["field"], ".spec.containers[name=\"c\"].image", "{conflict:?}");
    let forced = apply(&config, "two", "&force=true");
    assert_eq!(forced.body["spec"]["containers"][0]["image"], "another", "{forced:?}");
    server.stop();
}
