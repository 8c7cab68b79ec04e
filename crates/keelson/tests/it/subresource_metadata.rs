//! What each subresource keeps of the metadata that a client sends, for every kind and metadata field, compared with a
//! kube-apiserver (`recorded.rs`).

use crate::minimal::{collection, minimal, name, stored_resources};
use crate::recorded::{Recorded, outcome};
use keelson_schema::catalogue::Resource;
use serde_json::{Value, json};

const WIDGETS: &str = "/apis/metadata.test/v1/namespaces/default/widgets";

/// Metadata fields with new values. Name, namespace, uid and resourceVersion are preconditions.
fn fields() -> Vec<(&'static str, Value)> {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]);
    vec![
        ("labels", json!({"new": "yes"})),
        ("annotations", json!({"new": "yes"})),
        ("finalizers", json!(["new.test/yes"])),
        ("ownerReferences", owner),
        ("generation", json!(99)),
        ("generateName", json!("new-")),
        ("creationTimestamp", json!("2001-01-01T00:00:00Z")),
        ("deletionTimestamp", json!("2001-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(99)),
        ("selfLink", json!("/new")),
    ]
}

/// How often a write is tried again when a control loop has changed the object.
const TRIES_MAX: usize = 20;

/// Sets one field by a verb in a dry run. Returns what became of it.
fn fate(api: &Recorded, target: &str, verb: &str, (field, value): (&str, &Value)) -> String {
    let (path, _) = target.rsplit_once('/').expect("a subresource");
    for _ in 0..TRIES_MAX {
        let before = api.send("GET", path, "application/json", "").body;
        let (method, media, mut body) = match verb {
            "update" => ("PUT", "application/json", before.clone()),
            "patch" => ("PATCH", "application/merge-patch+json", json!({"metadata": {}})),
            _ => {
                let body = json!({"apiVersion": before["apiVersion"], "kind": before["kind"],
                    "metadata": {"name": before["metadata"]["name"]}});
                ("PATCH", "application/apply-patch+yaml", body)
            }
        };
        body["metadata"][field] = value.clone();
        let query = if verb == "apply" { "&fieldManager=m&force=true" } else { "" };
        let target = format!("{target}?dryRun=All{query}");
        let after = api.send(method, &target, media, &body.to_string());
        let (got, had) = (&after.body["metadata"][field], &before["metadata"][field]);
        let owned = if is_owned(&after.body, field) { ", owned" } else { "" };
        match after.code {
            409 => {}
            200 if got == had => return format!("dropped{owned}"),
            200 if contains(got, value) => return format!("kept{owned}"),
            200 => return format!("became {got}"),
            _ => return outcome(&after),
        }
    }
    panic!("{target} {verb} {field}: always a conflict");
}

/// Whether the manager of a write owns a metadata field through a subresource.
fn is_owned(object: &Value, field: &str) -> bool {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let own = |entry: &&Value| {
        entry["subresource"].is_string()
            && matches!(entry["manager"].as_str(), Some("m" | "keelson-testkit"))
    };
    let place = format!("f:{field}");
    entries.filter(own).any(|entry| !entry["fieldsV1"]["f:metadata"][&place].is_null())
}

/// Whether a value is another one, or a map with its members.
fn contains(got: &Value, value: &Value) -> bool {
    match (got.as_object(), value.as_object()) {
        (Some(got), Some(value)) => value.iter().all(|(key, value)| got.get(key) == Some(value)),
        _ => got == value,
    }
}

/// Sets each field by each verb. Returns a line for each.
fn lines_of(api: &Recorded, path: &str, subresource: &str) -> Vec<String> {
    let target = format!("{path}/{subresource}");
    let mut lines = vec![];
    for (field, value) in fields() {
        for verb in ["update", "patch", "apply"] {
            let fate = fate(api, &target, verb, (field, &value));
            lines.push(format!("{target} {verb} {field}: {fate}"));
        }
    }
    lines
}

/// Returns the names of the subresources that write a part of the object.
fn parts(resource: &Resource) -> Vec<&str> {
    let is_part = |name: &&str| {
        matches!(*name, "status" | "approval" | "ephemeralcontainers" | "resize" | "finalize")
    };
    resource.subresources.iter().map(|sub| sub.name.as_str()).filter(is_part).collect()
}

#[test]
fn subresources_keep_the_metadata_that_kube_apiserver_keeps() {
    let api = Recorded::start();
    let account = json!({"metadata": {"name": "default"}});
    api.prepare("POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let mut lines = vec![];
    for resource in stored_resources() {
        let parts = parts(resource);
        if parts.is_empty() {
            continue;
        }
        let all = collection(resource);
        api.prepare("POST", &all, &minimal(resource));
        let one = format!("{all}/{}", name(&resource.name));
        for part in parts {
            lines.extend(lines_of(&api, &one, part));
        }
    }
    let definition = json!({"metadata": {"name": "widgets.metadata.test"}, "spec": {
        "group": "metadata.test", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    api.prepare("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    api.wait_until_served(WIDGETS);
    let widget = json!({"apiVersion": "metadata.test/v1", "kind": "Widget",
        "metadata": {"name": "w"}});
    api.prepare("POST", WIDGETS, &widget);
    lines.extend(lines_of(&api, &format!("{WIDGETS}/w"), "status"));
    api.end("subresource_metadata.txt", &lines);
}
