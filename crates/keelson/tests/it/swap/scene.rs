//! A scenario: its namespace, the requests of an administrator, polling, and the recorded lines.

use super::cluster::{Cluster, items};
use keelson_testkit::api::{Api, Response};
use keelson_testkit::poll;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::time::Duration;

/// Timeout of each wait. A CronJob runs once a minute.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(90);

/// A scenario.
pub struct Scene<'c> {
    pub cluster: &'c Cluster,
    pub api: Api,
    name: &'static str,
    lines: RefCell<Vec<String>>,
}

impl<'c> Scene<'c> {
    /// Starts a scenario in a namespace with its name.
    pub fn new(cluster: &'c Cluster, name: &'static str) -> Scene<'c> {
        let api = cluster.admin.with_new_connection();
        let scene = Scene { cluster, api, name, lines: RefCell::default() };
        scene.create("/api/v1/namespaces", json!({"metadata": {"name": name}}));
        scene.wait_until(
            &format!("/api/v1/namespaces/{name}/serviceaccounts/default"),
            Value::is_object,
        );
        scene
    }

    /// Returns the recorded lines.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into_inner()
    }

    /// Records a line, which must be the same for every server.
    pub fn record(&self, what: impl std::fmt::Display) {
        self.lines.borrow_mut().push(format!("{}: {what}", self.name));
    }

    /// Returns the path of a resource in the scenario's namespace, such as
    /// `apps/v1/deployments/web` or `v1/pods`.
    pub fn path(&self, resource: &str) -> String {
        let parts: Vec<&str> = resource.splitn(3, '/').collect();
        let namespace = self.name;
        match parts.as_slice() {
            ["v1", rest @ ..] => format!("/api/v1/namespaces/{namespace}/{}", rest.join("/")),
            [group, version, rest] => {
                format!("/apis/{group}/{version}/namespaces/{namespace}/{rest}")
            }
            _ => panic!("no resource: {resource}"),
        }
    }

    fn full(&self, resource: &str) -> String {
        if resource.starts_with('/') { resource.to_owned() } else { self.path(resource) }
    }

    /// Creates an object.
    pub fn create(&self, resource: &str, object: Value) -> Value {
        let made = self.api.post(&self.full(resource), &object).expect("an answer");
        assert_eq!(made.code, 201, "{}: {resource}: {}", self.name, made.body);
        made.body
    }

    /// Sends a merge patch.
    pub fn patch(&self, resource: &str, patch: Value) -> Value {
        let done = self.api.patch(&self.full(resource), &patch).expect("an answer");
        assert_eq!(done.code, 200, "{}: {resource}: {}", self.name, done.body);
        done.body
    }

    /// Deletes an object with a propagation policy.
    pub fn delete(&self, resource: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let done = self.api.delete(&self.full(resource), Some(&options)).expect("an answer");
        assert!(done.is_ok(), "{}: {resource}: {done:?}", self.name);
    }

    /// Gets a resource.
    pub fn get(&self, resource: &str) -> Response {
        self.api.get(&self.full(resource)).expect("an answer")
    }

    /// Waits until an object exists and satisfies a condition. Returns it.
    pub fn wait_until(&self, resource: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = poll(POLL_TIMEOUT, || {
            let got = self.get(resource);
            last = got.body;
            (got.code == 200 && holds(&last)).then_some(())
        });
        assert!(found.is_some(), "{}: {resource} stays {last}", self.name);
        last
    }

    /// Waits until an object does not exist.
    pub fn wait_deleted(&self, resource: &str) {
        let gone = poll(POLL_TIMEOUT, || (self.get(resource).code == 404).then_some(()));
        assert!(gone.is_some(), "{}: {resource} stays {:?}", self.name, self.get(resource));
    }

    /// Waits until a list has a number of items. Returns the list.
    pub fn wait_for_count(&self, resource: &str, count: usize) -> Value {
        self.wait_until(resource, |list| items(list).count() == count)
    }
}

/// Formats fields of an object, given by JSON pointers, as `name=value`.
pub fn facts(object: &Value, pointers: &[&str]) -> String {
    let fact = |pointer: &&str| {
        let name = pointer.rsplit('/').next().unwrap_or_default();
        format!("{name}={}", object.pointer(pointer).unwrap_or(&Value::Null))
    };
    pointers.iter().map(fact).collect::<Vec<_>>().join(" ")
}

/// Formats the conditions of an object, sorted by type.
pub fn conditions(object: &Value) -> String {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut all: Vec<String> = all
        .map(|one| {
            format!("{}={}/{}", text(&one["type"]), text(&one["status"]), text(&one["reason"]))
        })
        .collect();
    all.sort();
    all.join(" ")
}

/// Returns whether a condition of an object has a status.
pub fn has(object: &Value, name: &str, status: &str) -> bool {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().any(|one| one["type"] == name && one["status"] == status)
}

/// Formats each item of a list, sorted.
pub fn each(list: &Value, format: impl Fn(&Value) -> String) -> String {
    let mut all: Vec<String> = items(list).map(format).collect();
    all.sort();
    format!("[{}]", all.join(", "))
}

/// Returns the name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns a Pod template with a label `app`, an image and annotations.
pub fn template(app: &str, image: &str, annotations: Value) -> Value {
    json!({"metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": image}]}})
}

/// Creates a Pod that is already bound to a node.
pub fn run_pod(scene: &Scene, name: &str, app: &str, more: Value) {
    let mut pod = template(app, "web:1", json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["nodeName"] = json!("node-a");
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    scene.create("v1/pods", pod);
}

/// Waits until all Pods of a scenario are ready.
pub fn all_ready(scene: &Scene) {
    scene.wait_until("v1/pods", |pods| items(pods).all(|pod| has(pod, "Ready", "True")));
}

/// Formats the field managers of an object with their operations, sorted.
pub fn managers(object: &Value) -> String {
    let all = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut all: Vec<String> = all
        .map(|one| {
            let parts = [&one["manager"], &one["operation"], &one["subresource"]];
            parts.map(text).join("/")
        })
        .filter(|one| !one.starts_with("keelson-testkit"))
        .collect();
    all.sort();
    all.join(" ")
}
