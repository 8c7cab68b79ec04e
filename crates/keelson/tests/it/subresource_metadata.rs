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

/// Sends one field by each verb in a dry run. Returns a line for each.
fn lines_of(api: &Recorded, path: &str, subresource: &str) -> Vec<String> {
    let before = api.send("GET", path, "application/json", "").body;
    let type_only = json!({"apiVersion": before["apiVersion"], "kind": before["kind"],
        "metadata": {"name": before["metadata"]["name"]}});
    let mut lines = vec![];
    for (field, value) in fields() {
        let mut whole = before.clone();
        whole["metadata"][field] = value.clone();
        let mut applied = type_only.clone();
        applied["metadata"][field] = value.clone();
        let patch = json!({"metadata": {field: value}});
        for (verb, method, media, body) in [
            ("update", "PUT", "application/json", &whole),
            ("patch", "PATCH", "application/merge-patch+json", &patch),
            ("apply", "PATCH", "application/apply-patch+yaml", &applied),
        ] {
            let query = if verb == "apply" { "&fieldManager=m&force=true" } else { "" };
            let target = format!("{path}/{subresource}?dryRun=All{query}");
            let after = api.send(method, &target, media, &body.to_string());
            let got = &after.body["metadata"][field];
            let fate = match after.code {
                200 if *got == before["metadata"][field] => "dropped".to_owned(),
                200 if *got == value => "kept".to_owned(),
                200 => format!("became {got}"),
                _ => outcome(&after),
            };
            lines.push(format!("{path}/{subresource} {verb} {field}: {fate}"));
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
