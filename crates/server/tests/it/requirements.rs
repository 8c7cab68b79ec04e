//! The requirements of the API. The comment of a test lists the requirements that it
//! proves, in the form `Proves: R-RV-01, R-RV-02.`; docs/requirements.md is generated from these
//! lines.

mod allocation;
mod chunks;
mod common;
mod concurrency;
mod conditions;
mod custom;
mod defaults;
mod faulty_server;
mod fields;
mod http_rules;
mod idempotence;
mod kinds;
mod media_types;
mod metadata;
mod patches;
mod resource_version;
mod schemas;
mod selectors;
mod spec;
mod status;
mod strategic;
mod validation;
mod verbs;
mod watches;
mod world;

use crate::world::{Client, Response, Server, without_accounts};
use keelson_meta::time::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// The collection that most tests use.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A server without controllers.
fn server() -> Server {
    Server::start_plain(without_accounts())
}

/// A server that compacts its history as soon as possible.
fn forgetful_server() -> Server {
    let mut options = without_accounts();
    options.history = Duration::from_millis(20);
    Server::start_plain(options)
}

/// Returns a ConfigMap.
fn map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}
    })
}

/// Returns a Pod.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}
    })
}

/// Creates a ConfigMap. Returns the stored object.
fn create(client: &Client, name: &str) -> Value {
    let made = client.post(MAPS, &map(name, "1"));
    assert_eq!(made.status, 201, "{made:?}");
    made.body
}

/// Replaces the object at a path. Returns the stored object.
fn put(client: &Client, path: &str, obj: &Value) -> Value {
    let done = client.call("PUT", path, "application/json", Some(obj));
    assert_eq!(done.status, 200, "{done:?}");
    done.body
}

/// Patches the object at a path. Returns the stored object.
fn patch(client: &Client, path: &str, media_type: &str, patch: &Value) -> Value {
    let done = client.call("PATCH", path, media_type, Some(patch));
    assert_eq!(done.status, 200, "{patch}: {done:?}");
    done.body
}

/// Returns the Unix time of a timestamp of the API.
fn seconds(text: &Value) -> i64 {
    let parsed = Timestamp::parse(text.as_str().unwrap_or_default());
    parsed.unwrap_or_else(|why| panic!("{text}: {why}")).seconds
}

/// Returns the names of a list's items, in order.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect()
}

/// Checks that a response is a `Status` with this code, reason and message.
fn refused(answer: &Response, code: u16, reason: &str, message: &str) {
    assert_eq!(answer.status, code, "{answer:?}");
    is_failure(&answer.body, code, reason, message);
}

/// Checks a `Status`, from a body or the object of an ERROR event.
fn is_failure(status: &Value, code: u16, reason: &str, message: &str) {
    let head = (&status["kind"], &status["apiVersion"], &status["status"]);
    assert_eq!(head, (&json!("Status"), &json!("v1"), &json!("Failure")), "{status}");
    assert_eq!(status["code"], code, "{status}");
    assert_eq!(status["reason"], reason, "{status}");
    assert_eq!(status["message"], message, "{status}");
}
