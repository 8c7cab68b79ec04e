//! Small requests that ask the server for much: it refuses what it cannot store, and stays alive.

use crate::world::{Client, Response, Server, without_accounts};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";
/// Empty items of an object. With the default below, an object would have 7 GB.
const ITEMS: usize = 70_000;
/// Texts in the default of an item; together 100 KB.
const TEXTS: usize = 1_000;

fn definition(default: &Value) -> Value {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": text, "default": default}}});
    let items =
        json!({"type": "object", "properties": {"items": {"type": "array", "items": item}}});
    let version = |name: &str, is_storage: bool| {
        json!({
            "name": name, "served": true, "storage": is_storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": items, "status": items}}}
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [version("v1", true), version("v2", false)]
        }
    })
}

fn large_default() -> Value {
    json!(vec!["x".repeat(100); TEXTS])
}

fn gadget(name: &str, items: usize) -> Value {
    let spec = json!({"items": vec![json!({}); items]});
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

fn too_large(answer: &Response) {
    let why = answer.body["message"].as_str().unwrap_or_default();
    assert_eq!((answer.status, why), (500, "etcdserver: request is too large"));
}

fn define(client: &Client, default: &Value) {
    let made = client.post(DEFINITIONS, &definition(default));
    assert_eq!(made.status, 201, "{made:?}");
    client.poll(GADGETS, |answer| answer.status == 200);
}

#[test]
fn an_object_that_its_defaults_make_too_large_is_refused_by_every_verb() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    define(&client, &large_default());
    let small = client.post(GADGETS, &gadget("small", 3));
    assert_eq!(small.status, 201);
    assert_eq!(small.body["spec"]["items"][2]["a"].as_array().map(Vec::len), Some(TEXTS));
    let large = gadget("large", ITEMS);
    too_large(&client.post(GADGETS, &large));
    too_large(&client.post(&format!("{GADGETS}?dryRun=All"), &large));
    let other_version = GADGETS.replace("v1", "v2");
    let mut in_v2 = large.clone();
    in_v2["apiVersion"] = json!("example.com/v2");
    too_large(&client.post(&other_version, &in_v2));
    let path = format!("{GADGETS}/small");
    let mut update = gadget("small", ITEMS);
    update["metadata"]["resourceVersion"] = small.body["metadata"]["resourceVersion"].clone();
    too_large(&client.call("PUT", &path, "application/json", Some(&update)));
    update["status"] = update["spec"].take();
    let status = format!("{path}/status");
    too_large(&client.call("PUT", &status, "application/json", Some(&update)));
    let items = &gadget("small", ITEMS)["spec"];
    let merge = json!({"spec": items});
    too_large(&client.call("PATCH", &path, "application/merge-patch+json", Some(&merge)));
    let copy = json!([{"op": "replace", "path": "/spec", "value": items}]);
    too_large(&client.call("PATCH", &path, "application/json-patch+json", Some(&copy)));
    for name in ["small", "new"] {
        let path = format!("{GADGETS}/{name}?fieldManager=m&force=true");
        let config = gadget(name, ITEMS);
        too_large(&client.call("PATCH", &path, "application/apply-patch+yaml", Some(&config)));
    }
    assert_eq!(client.get(&path).body, small.body);
    server.stop();
}

/// A default is added after the object was stored. kube-apiserver would answer 7 GB.
#[test]
fn an_object_whose_new_defaults_are_too_large_can_be_read_and_deleted() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    define(&client, &Value::Null);
    assert_eq!(client.post(GADGETS, &gadget("large", ITEMS)).status, 201);
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let mut changed = client.get(&path).body;
    changed["spec"] = definition(&large_default())["spec"].clone();
    let updated = client.call("PUT", &path, "application/json", Some(&changed));
    assert_eq!(updated.status, 200, "{updated:?}");
    let probe = format!("{GADGETS}?dryRun=All");
    let has_default = |answer: &Response| answer.body["spec"]["items"][0]["a"].is_array();
    while !has_default(&client.post(&probe, &gadget("probe", 1))) {
        std::thread::yield_now();
    }
    let path = format!("{GADGETS}/large");
    let read = client.get(&path);
    assert_eq!((read.status, &read.body["spec"]), (200, &gadget("", ITEMS)["spec"]));
    let list = client.get(GADGETS);
    assert_eq!((list.status, &list.body["items"][0]["spec"]), (200, &read.body["spec"]));
    let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
    too_large(&client.call("PATCH", &path, "application/merge-patch+json", Some(&finalizer)));
    assert_eq!(client.call("DELETE", &path, "application/json", None).status, 200);
    assert_eq!(client.get(&path).status, 404);
    server.stop();
}
