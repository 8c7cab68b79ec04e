//! What the requirements on every kind walk: the built-in resources that are stored, and a custom
//! one.

use super::server;
use crate::minimal::{minimal, name, stored_resources};
use crate::world::{Client, Response, Server};
use serde_json::{Value, json};

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A resource with an object that can be created.
pub struct Walked {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    pub root: String,
    pub api_version: String,
    pub kind: String,
    /// The plural.
    pub resource: String,
    pub namespaced: bool,
    pub has_status: bool,
    /// The name of the object.
    pub name: String,
    pub sample: Value,
}

impl Walked {
    /// The collection, in the namespace `default` if there is one.
    pub fn all(&self) -> String {
        let scope = if self.namespaced { "/namespaces/default" } else { "" };
        format!("{}{scope}/{}", self.root, self.resource)
    }

    /// The object.
    pub fn one(&self) -> String {
        format!("{}/{}", self.all(), self.name)
    }
}

impl Walked {
    /// Creates the object, and waits until the server itself has written its status, which it does
    /// for three kinds. Returns the object.
    #[track_caller]
    pub fn settled(&self, client: &Client) -> Value {
        made(client, &self.all(), &self.sample);
        let conditions = match &*self.resource {
            "apiservices" | "flowschemas" => 1,
            "customresourcedefinitions" => 2,
            _ => 0,
        };
        let written = |answer: &Response| {
            answer.body["status"]["conditions"].as_array().map_or(0, Vec::len) >= conditions
        };
        client.poll(&self.one(), written).body
    }
}

/// Returns all stored built-in resources and the custom resource of [`with_widgets`].
pub fn everything() -> Vec<Walked> {
    let mut all: Vec<Walked> = stored_resources()
        .map(|resource| {
            let root = if resource.kind.group.is_empty() { "/api" } else { "/apis" };
            let api_version = resource.kind.api_version().to_string();
            Walked {
                root: format!("{root}/{api_version}"),
                api_version,
                kind: resource.kind.kind.to_string(),
                resource: resource.name.to_string(),
                namespaced: resource.namespaced,
                has_status: resource.subresource("status").is_some(),
                name: name(&resource.name).to_owned(),
                sample: minimal(resource),
            }
        })
        .collect();
    all.push(Walked {
        root: "/apis/example.com/v1".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
        resource: "widgets".to_owned(),
        namespaced: true,
        has_status: true,
        name: "sample".to_owned(),
        sample: widget("sample"),
    });
    all
}

/// A server that serves widgets, whose definition is [`widget_definition`].
pub fn with_widgets() -> Server {
    let server = server();
    define(&server.client(), &widget_definition());
    server
}

/// Creates a definition and waits until its resource is served.
pub fn define(client: &Client, definition: &Value) {
    made(client, DEFINITIONS, definition);
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for version in spec["versions"].as_array().into_iter().flatten() {
        let group = text(&spec["group"]);
        let plural = text(&spec["names"]["plural"]);
        let path = format!("/apis/{group}/{}/{plural}", text(&version["name"]));
        client.poll(&path, |answer| answer.status == 200);
    }
}

/// Widgets have defaults, a set, a list with a key, a status, a scale, a short name and a category.
pub fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"],
                "categories": ["all", "toys"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": widget_schema()},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}
            }]
        }
    })
}

fn widget_schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["Red", "Blue"]},
            "size": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9, "default": 3},
            "note": {"type": "string"},
            "on": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
        }},
        "status": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "conditions": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"], "items": {
                    "type": "object", "required": ["type", "status"], "properties": {
                        "type": {"type": "string"},
                        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        "reason": {"type": "string", "minLength": 1}}}}
        }}
    }})
}

pub fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"color": "Red"}})
}

/// Returns a Deployment whose pods have the label `app: NAME`.
pub fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}
            }
        }
    })
}

/// Creates an object. Returns the stored one.
#[track_caller]
pub fn made(client: &Client, path: &str, obj: &Value) -> Value {
    let answer = client.post(path, obj);
    assert_eq!(answer.status, 201, "{path} {}: {obj}", answer.body);
    answer.body
}

/// Gets a path that exists.
#[track_caller]
pub fn read(client: &Client, path: &str) -> Value {
    let answer = client.get(path);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

/// Checks that a request was refused as invalid because of these fields.
#[track_caller]
pub fn invalid(answer: &Response, fields: &[&str]) {
    assert_eq!((answer.status, &answer.body["reason"]), (422, &json!("Invalid")), "{answer:?}");
    let causes = answer.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named: Vec<&str> =
        causes.iter().map(|cause| cause["field"].as_str().unwrap_or_default()).collect();
    assert_eq!(named, fields, "{answer:?}");
}

/// Creates a namespace.
pub fn namespace(client: &Client, name: &str) {
    let obj = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    made(client, "/api/v1/namespaces", &obj);
}
