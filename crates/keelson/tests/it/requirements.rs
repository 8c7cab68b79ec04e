//! What the API promises its clients, line by line. Above a test stand the requirements that it
//! proves, in the form `Proves: R-RV-01, R-RV-02.`; docs/requirements.md is made from these lines.

mod chunks;
mod concurrency;
mod faulty_server;
mod http_rules;
mod idempotence;
mod metadata;
mod patches;
mod resource_version;
mod status;
mod strategic;
mod verbs;
mod watches;

use crate::http::{Client, Response, Server, without_controllers};
use keelson_meta::time::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// Where most tests keep what they make.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A server of one test, which does nothing on its own account.
fn server() -> Server {
    Server::start_plain(without_controllers())
}

/// A server that forgets its history as soon as it may.
fn forgetful_server() -> Server {
    let mut builder = without_controllers();
    builder.history = Duration::from_millis(20);
    Server::start_plain(builder)
}

/// A ConfigMap.
fn map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}
    })
}

/// A Pod.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}
    })
}

/// Makes a ConfigMap and returns it as it was stored.
fn create(client: &Client, name: &str) -> Value {
    let made = client.post(MAPS, &map(name, "1"));
    assert_eq!(made.status, 201, "{made:?}");
    made.body
}

/// Puts an object in the place of the one at a path and returns it as it was stored.
fn put(client: &Client, path: &str, obj: &Value) -> Value {
    let done = client.call("PUT", path, "application/json", Some(obj));
    assert_eq!(done.status, 200, "{done:?}");
    done.body
}

/// Patches the object at a path and returns it as it was stored.
fn patch(client: &Client, path: &str, media_type: &str, patch: &Value) -> Value {
    let done = client.call("PATCH", path, media_type, Some(patch));
    assert_eq!(done.status, 200, "{patch}: {done:?}");
    done.body
}

/// The seconds since 1970 that a time of the API stands for.
fn seconds(text: &Value) -> i64 {
    let parsed = Timestamp::parse(text.as_str().unwrap_or_default());
    parsed.unwrap_or_else(|why| panic!("{text}: {why}")).seconds
}

/// The names of a list's items, in their order.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect()
}

/// An answer must be a `Status` with this code, reason and message, and say the code twice.
fn refused(answer: &Response, code: u16, reason: &str, message: &str) {
    assert_eq!(answer.status, code, "{answer:?}");
    is_failure(&answer.body, code, reason, message);
}

/// A body, or the object of an ERROR event, must be such a `Status`.
fn is_failure(status: &Value, code: u16, reason: &str, message: &str) {
    let head = (&status["kind"], &status["apiVersion"], &status["status"]);
    assert_eq!(head, (&json!("Status"), &json!("v1"), &json!("Failure")), "{status}");
    assert_eq!(status["code"], code, "{status}");
    assert_eq!(status["reason"], reason, "{status}");
    assert_eq!(status["message"], message, "{status}");
}
