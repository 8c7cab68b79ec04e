//! Runs a case: creates its configurations, sends its requests and records the results.

use super::api::{Api, Response};
use crate::world::POLL_TIMEOUT;
use keelson_testkit::transcript::normal::replace_uuids;
use keelson_testkit::webhook::{Call, Webhook};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Webhooks and requests. `$NS` is replaced by the case's namespace.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    /// Mutating webhooks; see [`webhook`].
    pub mutating: Vec<Value>,
    /// Validating webhooks.
    pub validating: Vec<Value>,
    /// Requests that are sent before the webhooks are created.
    pub before: Vec<Request>,
    /// The recorded requests.
    pub requests: Vec<Request>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    pub media: &'static str,
    pub body: Value,
}

impl Request {
    /// Returns a request with a JSON body.
    pub fn new(method: &'static str, path: &str, body: Value) -> Request {
        Request { method, path: path.to_owned(), media: "application/json", body }
    }
}

/// Returns a webhook of a configuration. Fields of `given` replace defaults, and `script`
/// determines its response.
fn webhook(hook: &Webhook, sort: &str, index: usize, given: &Value) -> Value {
    let script = given["script"].as_str().unwrap_or("allow");
    let mut webhook = json!({
        "name": format!("{sort}{index}.example.com"),
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
        "clientConfig": hook.config(&format!("{sort}{index}/{script}")),
        "namespaceSelector": {"matchLabels": {"case": "$NS"}},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["configmaps"]}]
    });
    for (name, value) in given.as_object().into_iter().flatten() {
        if name != "script" {
            webhook[name] = value.clone();
        }
    }
    webhook
}

/// Runs a case in its own namespace. Returns what the client and the webhooks received, without
/// values that differ from run to run.
pub fn run(api: &Api, hook: &Webhook, case: &Case, namespace: &str) -> Vec<Value> {
    let own = json!({"metadata": {"name": namespace, "labels": {"case": namespace}}});
    api.create("/api/v1/namespaces", &own);
    let send = |request: &Request| {
        let path = request.path.replace("$NS", namespace);
        let body = placed(&request.body, namespace);
        let body = (!body.is_null()).then_some(&body);
        api.call(request.method, &path, request.media, body)
    };
    for request in &case.before {
        let answer = send(request);
        assert!(answer.status < 300, "{}: {request:?} {answer:?}", case.name);
    }
    // In this order the probe of the first configuration is rejected by the first configuration.
    let sorts = [("validating", "v", &case.validating), ("mutating", "m", &case.mutating)];
    for (sort, short, webhooks) in sorts {
        if !webhooks.is_empty() {
            configure(api, hook, sort, short, webhooks, namespace);
        }
    }
    let mut seen = vec![];
    for request in &case.requests {
        hook.take();
        let answer = send(request);
        seen.push(record(&answer, hook, namespace));
    }
    for (sort, _, webhooks) in sorts {
        if !webhooks.is_empty() {
            let path = format!("{CONFIGURATIONS}/{sort}webhookconfigurations/{namespace}");
            assert_eq!(api.call("DELETE", &path, "application/json", None).status, 200);
        }
    }
    seen
}

/// Creates a configuration, and waits until it is used: its first webhook rejects Secrets
/// with a certain label.
fn configure(
    api: &Api,
    hook: &Webhook,
    sort: &str,
    short: &str,
    webhooks: &[Value],
    namespace: &str,
) {
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"],
        "resources": ["secrets"]}]);
    let label = json!({"probe": sort});
    let probe = json!({"script": "deny", "rules": rules, "objectSelector": {"matchLabels": label}});
    let mut all = vec![webhook(hook, "probe", 0, &probe)];
    let given = webhooks.iter().enumerate();
    all.extend(given.map(|(index, given)| webhook(hook, short, index, given)));
    let body = placed(&json!({"metadata": {"name": "$NS"}, "webhooks": all}), namespace);
    api.create(&format!("{CONFIGURATIONS}/{sort}webhookconfigurations"), &body);
    let path = format!("/api/v1/namespaces/{namespace}/secrets?dryRun=All");
    let probe = json!({"metadata": {"name": "probe", "labels": label}});
    let deadline = Instant::now() + POLL_TIMEOUT;
    let is_live = || {
        let answer = api.call("POST", &path, "application/json", Some(&probe));
        let message = answer.body["message"].as_str().unwrap_or_default();
        answer.status != 201 && (sort == "validating" || message.contains("probe0.example.com"))
    };
    while !is_live() {
        assert!(Instant::now() < deadline, "the configuration does not come into force");
    }
}

/// Replaces `$NS` in a value.
fn placed(value: &Value, namespace: &str) -> Value {
    serde_json::from_str(&value.to_string().replace("$NS", namespace)).expect("JSON")
}

fn record(answer: &Response, hook: &Webhook, namespace: &str) -> Value {
    let mut calls = hook.take();
    // Validating webhooks are called concurrently.
    calls.sort_by_key(|call| match call.path.strip_prefix("/m") {
        Some(_) => String::new(),
        None => call.path.clone(),
    });
    let body = match answer.body["kind"].as_str() {
        Some("Status") => answer.body.clone(),
        _ => short(&answer.body),
    };
    let calls: Vec<Value> = calls.into_iter().map(sent).collect();
    let record = json!({
        "status": answer.status, "warnings": answer.warnings, "body": body, "calls": calls
    });
    let address = hook.address.to_string();
    normal(record, &[(&address, "HOOK"), (namespace, "$NS")])
}

/// Returns the fields of an object that webhooks change.
fn short(object: &Value) -> Value {
    let mut short = Map::new();
    let metadata = &object["metadata"];
    for (name, value) in [
        ("name", &metadata["name"]),
        ("labels", &metadata["labels"]),
        ("annotations", &metadata["annotations"]),
        ("data", &object["data"]),
        ("replicas", &object["spec"]["replicas"]),
    ] {
        if !value.is_null() {
            short.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(short)
}

fn sent(call: Call) -> Value {
    json!({"path": call.path, "review": call.review})
}

/// Returns a value without what differs from run to run, with sorted fields.
fn normal(value: Value, words: &[(&str, &str)]) -> Value {
    match value {
        Value::Object(map) => {
            let member = |(name, value): (String, Value)| {
                let value = match (name.as_str(), &value) {
                    ("uid", Value::String(_)) => json!("UID"),
                    ("creationTimestamp" | "time" | "deletionTimestamp", Value::String(_)) => {
                        json!("TIME")
                    }
                    ("resourceVersion", Value::String(_)) => json!("RV"),
                    _ => normal(value, words),
                };
                (name, value)
            };
            // managedFields of a Scale have their own rules, which webhooks do not change.
            let is_scale = map.get("kind") == Some(&json!("Scale"));
            let members: BTreeMap<String, Value> = map.into_iter().map(member).collect();
            let mut map = Map::from_iter(members);
            if let Some(metadata) = map.get_mut("metadata").filter(|_| is_scale) {
                metadata.as_object_mut().map(|metadata| metadata.remove("managedFields"));
            }
            Value::Object(map)
        }
        Value::Array(list) => list.into_iter().map(|item| normal(item, words)).collect(),
        Value::String(mut text) => {
            for (word, by) in words {
                text = text.replace(word, by);
            }
            json!(without_stream(&replace_uuids(&text, |_| "UID")))
        }
        other => other,
    }
}

/// Removes the number of an HTTP/2 stream from a message.
fn without_stream(text: &str) -> String {
    let Some((before, after)) = text.split_once("stream ID ") else { return text.to_owned() };
    let rest = after.split_once("; ").map_or(after, |(_, rest)| rest);
    format!("{before}{rest}")
}
