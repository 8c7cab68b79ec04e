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

/// Gives a resource a stricter schema, and waits until that is in use: it refuses a new object.
fn restrict(api: &Recorded, group: &str, spec: &Value, refused: &Value) {
    let versions = definition(group, spec, false)["spec"]["versions"].clone();
    let change = json!({"spec": {"versions": versions}});
    api.prepare("PATCH", &format!("{DEFINITIONS}/things.{group}"), &change);
    let until = Instant::now() + POLL_TIMEOUT;
    let refused = thing(group, "refused", refused.clone()).to_string();
    let dry = format!("{}?dryRun=All", things(group));
    while api.send("POST", &dry, "application/json", &refused).code != 422 {
        assert!(Instant::now() < until, "the schema is not in use");
    }
}

/// Returns the code, the causes and the warnings of a response. Their order is that of Go maps.
fn findings(response: &Response) -> String {
    let causes = response.body["details"]["causes"].as_array().into_iter().flatten();
    let cause = |cause: &Value| format!("error {}: {}", cause["field"], cause["message"]);
    let mut all: Vec<String> = causes.map(cause).collect();
    all.extend(response.warnings.iter().map(|text| format!("warning {text}")));
    all.sort_unstable();
    format!("{} {}", response.code, all.join("; "))
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
    restrict(&api, group, &strict, &json!({"set": ["a", "a"]}));
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

/// Sends each change to each thing.
fn change_all(api: &Recorded, group: &str, names: &[&str], changes: &[Value]) -> Vec<String> {
    let mut lines = vec![];
    for name in names {
        let path = format!("{}/{name}?dryRun=All", things(group));
        for change in changes {
            let response = api.send("PATCH", &path, MERGE, &change.to_string());
            lines.push(format!("{name} {change} -> {}", findings(&response)));
        }
    }
    lines
}

#[test]
fn rules_that_unchanged_values_break_are_warnings() {
    let group = "rules.test";
    let api = start(group, &open(), false);
    let given = json!({"a": 1, "list": [1], "set": [1, 2], "named": {"x": 1}, "inner": {"x": 1},
        "map": [{"k": "1", "v": 1}, {"k": "2", "v": 2}]});
    api.prepare("POST", &things(group), &thing(group, "a", given.clone()));
    let mut more = given;
    more["any"] = json!({"a": 1});
    api.prepare("POST", &things(group), &thing(group, "b", more));
    let number = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 10"}]});
    let words = |rule: &str| json!([{"rule": rule, "message": "too small"}]);
    let strict = json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "self > 10", "reason": "FieldValueForbidden"}, {"rule": "self >= oldSelf"},
            {"rule": "self > 11", "messageExpression": "self < 0 ? 'negative' : 'positive'"},
            {"rule": "1 / (self - 1) > 0"}]},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "list": {"type": "array", "maxItems": 9, "items": number,
            "x-kubernetes-validations": words("self.size() > 5")},
        "set": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "set", "items": number},
        "map": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "x-kubernetes-validations": words("self.size() > 6"),
            "items": {"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": number}}},
        "named": {"type": "object", "maxProperties": 9, "additionalProperties": number},
        "inner": {"type": "object", "properties": {"x": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.x > 10", "fieldPath": ".x"}]}},
        "x-kubernetes-validations": words("has(self.a) && false")});
    restrict(&api, group, &strict, &json!({"a": 1}));
    let changes = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"a": 2}}),
        json!({"spec": {"a": 0}}),
        json!({"spec": {"list": [1, 2]}}),
        json!({"spec": {"set": [2, 1]}}),
        json!({"spec": {"map": [{"k": "2", "v": 2}, {"k": "1", "v": 1}]}}),
        json!({"spec": {"map": [{"k": "2", "v": 3}, {"k": "1", "v": 1}]}}),
        json!({"spec": {"named": {"y": 1}}}),
        json!({"spec": {"inner": {"x": 2}}}),
        json!({"spec": {"any": {"b": 1}}}),
    ];
    let lines = change_all(&api, group, &["a", "b"], &changes);
    api.end("ratcheted_rules.txt", &lines);
}

#[test]
fn values_that_a_schema_does_not_name_are_checked_again() {
    let group = "unnamed.test";
    let api = start(group, &open(), false);
    let keyed = |item: Value| json!({"map": [item, {"k": "2"}]});
    let kept = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    let given = [
        ("a", json!({"inner": {}})),
        ("b", json!({"inner": {"odd": 1}})),
        ("c", json!({"odd": {"a": 1}})),
        ("d", json!({"odd": null})),
        ("e", keyed(json!({"k": "1"}))),
        ("f", keyed(json!({"k": "1", "odd": 1}))),
        ("g", json!({"list": [{"odd": 1}]})),
        ("h", json!({"any": {"a": [1]}})),
        ("i", json!({"any": [1]})),
        ("j", json!({"open": {"a": 1}})),
        ("k", json!({"kept": kept})),
    ];
    for (name, spec) in &given {
        api.prepare("POST", &things(group), &thing(group, name, spec.clone()));
    }
    let needy = json!({"type": "object", "required": ["new"],
        "x-kubernetes-preserve-unknown-fields": true});
    let mut item = needy.clone();
    item["required"] = json!(["k", "new"]);
    item["properties"] = json!({"k": {"type": "string"}});
    let mut strict = needy.clone();
    strict["properties"] = json!({"inner": needy, "list": {"type": "array", "items": needy},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "additionalProperties": true, "required": ["new"]},
        "kept": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "maxItems": 1,
            "x-kubernetes-list-map-keys": ["k"], "items": item}});
    restrict(&api, group, &strict, &json!({}));
    let changes = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"other": 1}}),
        json!({"spec": {"map": [{"k": "2"}, {"k": "1"}]}}),
    ];
    let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
    let lines = change_all(&api, group, &names, &changes);
    api.end("unnamed_values.txt", &lines);
}

#[test]
fn an_embedded_resource_needs_no_metadata() {
    let group = "embedded.test";
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let spec = json!({"type": "object", "properties": {"e": embedded}});
    let api = start(group, &spec, false);
    let path = format!("{}?dryRun=All", things(group));
    let given = ["{}", r#"{"odd":1}"#, r#"{"labels":{}}"#, r#"{"name":"a"}"#, "null", ""];
    let sent = given.iter().map(|metadata| {
        let mut body = thing(group, "a", json!({"e": {"apiVersion": "v1", "kind": "Pod"}}));
        if !metadata.is_empty() {
            body["spec"]["e"]["metadata"] = serde_json::from_str(metadata).expect("JSON");
        }
        let response = api.send("POST", &path, "application/json", &body.to_string());
        let owned = &response.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        format!("{metadata} -> {} {owned}", spec_of(&response))
    });
    let lines: Vec<String> = sent.collect();
    api.end("embedded_metadata.txt", &lines);
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
