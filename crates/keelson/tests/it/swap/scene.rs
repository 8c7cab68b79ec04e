//! What scenes have in common: a namespace, an administrator, waiting, and saying what was found.

use super::cluster::{Cluster, items};
use keelson_testkit::api::{Api, Response};
use keelson_testkit::poll;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::time::Duration;

/// How long a scene waits for anything: a CronJob is due each minute.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(90);

/// One scene of the walk.
pub struct Scene<'c> {
    pub cluster: &'c Cluster,
    pub api: Api,
    name: &'static str,
    lines: RefCell<Vec<String>>,
}

impl<'c> Scene<'c> {
    /// Begins a scene, in a namespace that has its name.
    pub fn new(cluster: &'c Cluster, name: &'static str) -> Scene<'c> {
        let api = cluster.admin.with_new_connection();
        let scene = Scene { cluster, api, name, lines: RefCell::default() };
        scene.make("/api/v1/namespaces", json!({"metadata": {"name": name}}));
        scene.wait_until(
            &format!("/api/v1/namespaces/{name}/serviceaccounts/default"),
            Value::is_object,
        );
        scene
    }

    /// What was found.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into_inner()
    }

    /// Says something that must be the same whichever server it is.
    pub fn say(&self, what: impl std::fmt::Display) {
        self.lines.borrow_mut().push(format!("{}: {what}", self.name));
    }

    /// The path of a resource of the scene's namespace, as `apps/v1/deployments/web` or `v1/pods`.
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

    /// Makes an object.
    pub fn make(&self, resource: &str, object: Value) -> Value {
        let made = self.api.post(&self.full(resource), &object).expect("an answer");
        assert_eq!(made.code, 201, "{}: {resource}: {}", self.name, made.body);
        made.body
    }

    /// Changes an object by a merge patch.
    pub fn change(&self, resource: &str, patch: Value) -> Value {
        let done = self.api.patch(&self.full(resource), &patch).expect("an answer");
        assert_eq!(done.code, 200, "{}: {resource}: {}", self.name, done.body);
        done.body
    }

    /// Deletes an object under a propagation policy.
    pub fn delete(&self, resource: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let done = self.api.delete(&self.full(resource), Some(&options)).expect("an answer");
        assert!(done.is_ok(), "{}: {resource}: {done:?}", self.name);
    }

    /// Gets anything.
    pub fn get(&self, resource: &str) -> Response {
        self.api.get(&self.full(resource)).expect("an answer")
    }

    /// Waits until an object is there and is as wanted.
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

    /// Waits until an object is gone.
    pub fn gone(&self, resource: &str) {
        let gone = poll(POLL_TIMEOUT, || (self.get(resource).code == 404).then_some(()));
        assert!(gone.is_some(), "{}: {resource} stays {:?}", self.name, self.get(resource));
    }

    /// Waits until a list has so many items.
    pub fn until_count(&self, resource: &str, count: usize) -> Value {
        self.wait_until(resource, |list| items(list).count() == count)
    }
}

/// Fields of an object that are recorded, in order, by their JSON pointers.
pub fn facts(object: &Value, pointers: &[&str]) -> String {
    let fact = |pointer: &&str| {
        let name = pointer.rsplit('/').next().unwrap_or_default();
        format!("{name}={}", object.pointer(pointer).unwrap_or(&Value::Null))
    };
    pointers.iter().map(fact).collect::<Vec<_>>().join(" ")
}

/// The conditions of an object, by type.
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

/// Whether a condition of an object has a status.
pub fn has(object: &Value, name: &str, status: &str) -> bool {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().any(|one| one["type"] == name && one["status"] == status)
}

/// What is said of each item of a list, sorted.
pub fn each(list: &Value, say: impl Fn(&Value) -> String) -> String {
    let mut all: Vec<String> = items(list).map(say).collect();
    all.sort();
    format!("[{}]", all.join(", "))
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// A template of pods with this label and image, and these annotations.
pub fn template(app: &str, image: &str, annotations: Value) -> Value {
    json!({"metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": image}]}})
}

/// Makes a pod that some node runs without a scheduler.
pub fn run_pod(scene: &Scene, name: &str, app: &str, more: Value) {
    let mut pod = template(app, "web:1", json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["nodeName"] = json!("node-a");
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    scene.make("v1/pods", pod);
}

/// Waits until all pods of a scene are ready.
pub fn all_ready(scene: &Scene) {
    scene.wait_until("v1/pods", |pods| items(pods).all(|pod| has(pod, "Ready", "True")));
}

/// Who has written an object, and how.
pub fn managers(object: &Value) -> String {
    let all = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let all = all.map(|one| {
        let parts = [&one["manager"], &one["operation"], &one["subresource"]];
        parts.map(text).join("/")
    });
    let mut all: Vec<String> = all.filter(|one| !one.starts_with("keelson-testkit")).collect();
    all.sort();
    all.join(" ")
}
