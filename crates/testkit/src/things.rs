//! `things`: a custom resource in two versions, which the script `convert` of a
//! [`Webhook`](crate::webhook::Webhook) converts.

use serde_json::{Value, json};

/// The collection of CustomResourceDefinitions.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The group of `things`, unless a test needs several.
pub const GROUP: &str = "shop.example.com";

/// Returns the definition of `things` of a group, in v1beta1 and v1. The webhook at
/// `client_config` converts.
#[must_use]
pub fn definition(group: &str, storage: &str, client_config: &Value) -> Value {
    let text = json!({"type": "string"});
    let version = |name: &str, fields: Value| {
        json!({
            "name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields},
                "data": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
            }}},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}
        })
    };
    let size = json!({"type": "integer"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing",
                "listKind": "ThingList"},
            "versions": [
                version("v1beta1", json!({"hostPort": text, "size": size})),
                version("v1", json!({"host": text, "port": text, "size": size})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": client_config}}
        }
    })
}

/// Returns the collection in a version.
#[must_use]
pub fn path(group: &str, version: &str) -> String {
    format!("/apis/{group}/{version}/namespaces/default/things")
}

/// Returns a thing in a version.
#[must_use]
pub fn thing(group: &str, version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/{version}"), "kind": "Thing",
        "metadata": {"name": name}, "spec": spec})
}
