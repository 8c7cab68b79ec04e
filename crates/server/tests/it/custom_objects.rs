//! Custom resources and their definitions in the corners: objects that were there before a schema
//! became stricter, no replicas, groups that need an approval, definitions that are being deleted;
//! compared with a kube-apiserver (`recorded.rs`).

use crate::recorded::{self, Recorded, outcome};
use crate::world::POLL_TIMEOUT;
use keelson_testkit::api::Response;
use serde_json::{Value, json};
use std::time::Instant;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

fn definition(group: &str, spec: &Value, scale: bool) -> Value {
    let mut version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}});
    if scale {
        version["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
        version["subresources"] = json!({"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    }
    json!({"metadata": {"name": format!("things.{group}")}, "spec": {"group": group,
        "scope": "Namespaced", "versions": [version],
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"}}})
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn thing(group: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name},
        "spec": spec})
}

fn things(group: &str) -> String {
    format!("/apis/{group}/v1/namespaces/corners/things")
}

/// Starts, defines a resource, and waits until it is served.
fn start(group: &str, spec: &Value, scale: bool) -> Recorded {
    let api = recorded::start();
    api.prepare("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "corners"}}));
    api.prepare("POST", DEFINITIONS, &definition(group, spec, scale));
    api.wait_until_served(&things(group));
    api
}

/// Waits until a definition fulfills a condition.
fn wait(api: &Recorded, name: &str, is_done: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + POLL_TIMEOUT;
    loop {
        let found = api.send("GET", &format!("{DEFINITIONS}/{name}"), MERGE, "").body;
        if is_done(&found) {
            return found;
        }
        assert!(Instant::now() < until, "{name}: {found}");
        std::thread::yield_now();
    }
}

fn spec_of(response: &Response) -> String {
    format!("{} {}", outcome(response), response.body["spec"])
}

#[test]
fn objects_with_repeated_items_can_be_changed() {
    let group = "ratchet.test";
    let api = start(group, &open(), false);
    let given = json!({"set": ["a", "a"], "map": [{"k": "a", "v": 1}, {"k": "a", "v": 2}]});
    api.prepare("POST", &things(group), &thing(group, "a", given));
    let strict = json!({"type": "object", "properties": {
        "other": {"type": "string"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}}});
    let versions = definition(group, &strict, false)["spec"]["versions"].clone();
    let change = json!({"spec": {"versions": versions}});
    api.prepare("PATCH", &format!("{DEFINITIONS}/things.{group}"), &change);
    // The stricter schema is in use when it refuses a new object.
    let until = Instant::now() + POLL_TIMEOUT;
    let repeated = thing(group, "b", json!({"set": ["a", "a"]})).to_string();
    let dry = format!("{}?dryRun=All", things(group));
    while api.send("POST", &dry, "application/json", &repeated).code != 422 {
        assert!(Instant::now() < until, "the schema is not in use");
    }
    let path = format!("{}/a", things(group));
    let changes = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"other": "x"}}),
        json!({"spec": {"set": ["a", "a", "b"]}}),
        json!({"spec": {"set": ["b", "a", "a"]}}),
        json!({"spec": {"map": [{"k": "a"}, {"k": "a"}, {"k": "b"}, {"k": "b"}]}}),
        json!({"spec": {"set": ["a"]}}),
        json!({"spec": {"set": ["b", "b"]}}),
        json!({"spec": {"set": ["b"], "map": [{"k": "a"}]}}),
        json!({"spec": {"set": ["c", "c"]}}),
        json!({"spec": {"map": [{"k": "c"}, {"k": "c"}]}}),
    ];
    let sent = changes.iter().map(|change| {
        let response = api.send("PATCH", &path, MERGE, &change.to_string());
        format!("{change} -> {}", spec_of(&response))
    });
    let lines: Vec<String> = sent.collect();
    api.end("repeated_items.txt", &lines);
}

#[test]
fn zero_replicas_are_absent_from_a_scale() {
    let group = "scale.test";
    let api = start(group, &open(), true);
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
        "template": template});
    let deployments = "/apis/apps/v1/namespaces/corners/deployments";
    let deployment = json!({"metadata": {"name": "zero"}, "spec": spec});
    api.prepare("POST", deployments, &deployment);
    let mut lines = vec![];
    let patches = [
        ("get", Value::Null),
        ("test", json!([{"op": "test", "path": "/spec/replicas", "value": 0}])),
        ("remove", json!([{"op": "remove", "path": "/spec/replicas"}])),
        ("replace", json!([{"op": "replace", "path": "/spec/replicas", "value": 0}])),
        ("merge", json!({"spec": {"replicas": 0}})),
        ("null", json!({"spec": {"replicas": null}})),
        ("add", json!([{"op": "add", "path": "/spec/replicas", "value": 3}])),
    ];
    for (name, replicas) in [("zero", json!({"replicas": 0})), ("none", json!({}))] {
        api.prepare("POST", &things(group), &thing(group, name, replicas));
        for (patch, body) in &patches {
            if (name, *patch) == ("none", "remove") {
                // A kube-apiserver then removes what is absent, which it refuses for zero.
                continue;
            }
            let media = if body.is_array() { JSON_PATCH } else { MERGE };
            let (method, body) = match body {
                Value::Null => ("GET", String::new()),
                body => ("PATCH", body.to_string()),
            };
            let path = format!("{}/{name}/scale", things(group));
            let response = api.send(method, &path, media, &body);
            lines.push(format!("{name} {patch} -> {}", spec_of(&response)));
            let path = format!("{deployments}/zero/scale?dryRun=All");
            let path = if method == "GET" { path.replace("?dryRun=All", "") } else { path };
            let response = api.send(method, &path, media, &body);
            lines.push(format!("deployment {patch} -> {}", spec_of(&response)));
        }
    }
    api.end("zero_replicas.txt", &lines);
}

/// Returns the conditions of a definition in the order of their types.
fn conditions(definition: &Value) -> String {
    let all = definition["status"]["conditions"].as_array().into_iter().flatten();
    let mut shown: Vec<String> = all
        .map(|condition| {
            let word = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
            let words = ["type", "status", "reason", "message"].map(word);
            words.join(" ")
        })
        .collect();
    shown.sort();
    shown.join("; ")
}

#[test]
fn definitions_say_whether_they_are_approved_and_deleted() {
    const APPROVAL: &str = "api-approved.kubernetes.io";
    let api = start("named.test", &open(), false);
    let mut lines = vec![];
    let groups = [
        ("a.x.k8s.io", Some("https://github.com/kubernetes/kubernetes/pull/1")),
        ("b.x.k8s.io", Some("unapproved, testing")),
        ("c.x.k8s.io", Some("bad")),
        ("d.kubernetes.io", None),
        ("free.test", Some("bad")),
    ];
    for (group, approval) in groups {
        let mut given = definition(group, &open(), false);
        if let Some(approval) = approval {
            given["metadata"]["annotations"] = json!({APPROVAL: approval});
        }
        let response = api.send("POST", DEFINITIONS, "application/json", &given.to_string());
        lines.push(format!("{group} -> {}", outcome(&response)));
        if response.is_ok() {
            let count = if group.ends_with("k8s.io") { 3 } else { 2 };
            let is_done = |found: &Value| {
                let all = found["status"]["conditions"].as_array();
                let is_served = conditions(found).contains("Established True");
                is_served && all.is_some_and(|all| all.len() == count)
            };
            let found = wait(&api, &format!("things.{group}"), is_done);
            lines.push(format!("{group}: {}", conditions(&found)));
        }
    }
    let names = [
        json!({"plural": "BAD_", "kind": "x y"}),
        json!({"plural": "other", "singular": "X", "kind": "Foo", "listKind": "Foo",
            "shortNames": ["A_"], "categories": ["B b"]}),
    ];
    for accepted in names {
        let body = json!({"status": {"acceptedNames": accepted}}).to_string();
        let path = format!("{DEFINITIONS}/things.named.test/status");
        let response = api.send("PATCH", &path, MERGE, &body);
        // The order of the names in the message is not that of the fields.
        let causes = response.body["details"]["causes"].as_array().into_iter().flatten();
        let mut fields: Vec<&str> = causes.filter_map(|cause| cause["field"].as_str()).collect();
        fields.sort_unstable();
        lines.push(format!("{accepted} -> {} {}", response.code, fields.join(",")));
    }
    let mut held = thing("named.test", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["named.test/held"]);
    api.prepare("POST", &things("named.test"), &held);
    let path = format!("{DEFINITIONS}/things.named.test");
    api.prepare("DELETE", &path, &Value::Null);
    let is_begun = |found: &Value| found.to_string().contains("InstanceDeletionInProgress");
    let found = wait(&api, "things.named.test", is_begun);
    lines.push(format!("deleted: {}", conditions(&found)));
    let release = json!({"metadata": {"finalizers": null}});
    api.prepare("PATCH", &format!("{}/held", things("named.test")), &release);
    for (group, _) in groups {
        api.prepare("DELETE", &format!("{DEFINITIONS}/things.{group}"), &Value::Null);
    }
    api.end("definition_conditions.txt", &lines);
}
