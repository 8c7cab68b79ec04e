//! Admission cannot be bypassed: each write verb of each resource and subresource is seen by a
//! webhook and by a policy that reject everything.

use crate::minimal::{collection, minimal, name, stored_resources};
use crate::world::{Client, Response, Server, without_accounts};
use keelson_schema::catalogue::{Catalogue, Resource, Subresource};
use keelson_testkit::webhook::Webhook;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const GROUP: &str = "admissionregistration.k8s.io";

/// Number of write verbs of all resources and subresources, so that a change is noticed.
const WRITES: usize = 390;

#[test]
fn a_webhook_is_called_for_every_write() {
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    for sort in ["validating", "mutating"] {
        every_write_is_seen(sort, Reviewer::Webhook(&hook));
    }
}

#[test]
fn a_policy_is_evaluated_for_every_write() {
    every_write_is_seen("policy", Reviewer::Policy);
}

fn every_write_is_seen(sort: &str, reviewer: Reviewer<'_>) {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let limits =
        |resource: &&Resource| matches!(resource.name.as_str(), "limitranges" | "resourcequotas");
    // Resources that restrict others come last.
    for resource in
        stored_resources().filter(|r| !limits(r)).chain(stored_resources().filter(limits))
    {
        let made = client.post(&collection(resource), &object(resource));
        assert!(matches!(made.status, 201 | 409), "{}: {made:?}", resource.name);
    }
    match reviewer {
        Reviewer::Webhook(hook) => refuse_all(&client, hook, sort),
        Reviewer::Policy => refuse_all_by_policy(&client),
    }
    let mut writes = Writes { client: &client, reviewer, count: 0, faults: vec![] };
    let own = |resource: &&Resource| resource.kind.group == GROUP;
    for resource in stored_resources().filter(|resource| !own(resource)) {
        writes.resource(resource);
    }
    for resource in reviews() {
        writes.review(resource);
    }
    // Deleting the collection deletes the webhook too.
    for resource in stored_resources().filter(own) {
        writes.resource(resource);
    }
    let Writes { count, faults, .. } = writes;
    println!("{sort}: {count} writes, {} unseen", faults.len());
    assert!(faults.is_empty(), "{sort}:\n{}", faults.join("\n"));
    assert_eq!(count, WRITES, "{sort}");
    server.stop();
}

/// The rejecting webhook or policy.
#[derive(Clone, Copy)]
enum Reviewer<'t> {
    Webhook(&'t Webhook),
    Policy,
}

impl Reviewer<'_> {
    /// Returns whether a resource is exempt, as in kube-apiserver: webhook configurations and
    /// policies, and reviews from policies.
    fn is_exempt(self, resource: &Resource) -> bool {
        let is_own = resource.kind.group == GROUP;
        match self {
            Reviewer::Webhook(_) => is_own,
            Reviewer::Policy => {
                is_own && resource.name.contains("admissionpolic")
                    || resource.name.ends_with("reviews")
            }
        }
    }

    /// Returns whether it has seen and rejected the last request.
    fn has_refused(
        self,
        resource: &Resource,
        sub: &str,
        operation: &str,
        answer: &Response,
    ) -> bool {
        let message = answer.body["message"].as_str().unwrap_or_default();
        let group = resource.kind.group.as_str();
        let name = resource.name.as_str();
        match self {
            Reviewer::Webhook(hook) => {
                let was_seen = hook.take().iter().any(|call| {
                    let request = &call.review["request"];
                    request["operation"] == operation
                        && request["requestResource"]["resource"] == name
                        && request["requestResource"]["group"] == group
                        && request["requestSubResource"].as_str().unwrap_or_default() == sub
                });
                let denied = "admission webhook \"all.example.com\" denied";
                was_seen && answer.status == 400 && message.starts_with(denied)
            }
            Reviewer::Policy => {
                let seen = format!("saw {operation} {group}/{name}/{sub}.");
                answer.status == 422 && message.ends_with(&seen)
            }
        }
    }
}

/// Creates a policy that rejects all requests with a message that names the request.
fn refuse_all_by_policy(client: &Client) {
    let seen = "'saw ' + request.operation + ' ' + request.requestResource.group + '/' + \
                request.requestResource.resource + '/' + \
                (has(request.requestSubResource) ? request.requestSubResource : '') + '.'";
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*/*"]});
    let policy = json!({"metadata": {"name": "all"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "messageExpression": seen}]}});
    let binding = json!({"metadata": {"name": "all"},
        "spec": {"policyName": "all", "validationActions": ["Deny"]}});
    let path = format!("/apis/{GROUP}/v1/validatingadmissionpolic");
    for (end, body) in [("ies", policy), ("ybindings", binding)] {
        let made = client.post(&format!("{path}{end}"), &body);
        assert_eq!(made.status, 201, "{made:?}");
    }
}

/// Creates a webhook that rejects all requests.
fn refuse_all(client: &Client, hook: &Webhook, sort: &str) {
    let webhook = json!({
        "name": "all.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": hook.config("deny"),
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["*/*"]}]
    });
    let body = json!({"metadata": {"name": "all"}, "webhooks": [webhook]});
    let path = format!("/apis/{GROUP}/v1/{sort}webhookconfigurations");
    let made = client.post(&path, &body);
    assert_eq!(made.status, 201, "{made:?}");
}

/// Returns a minimal object of a resource; Pods have the limits that a quota requires.
fn object(resource: &Resource) -> Value {
    let mut object = minimal(resource);
    if resource.name == "pods" {
        object["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    }
    object
}

/// Resources that are not stored.
fn reviews() -> impl Iterator<Item = &'static Resource> {
    let versions = Catalogue::shared().groups.iter().flat_map(|group| &group.versions);
    let resources = versions.filter(|version| version.default_on).flat_map(|v| &v.resources);
    resources.filter(|resource| {
        resource.default_on && resource.has_verb("create") && !resource.has_verb("list")
    })
}

struct Writes<'t> {
    client: &'t Client,
    reviewer: Reviewer<'t>,
    count: usize,
    faults: Vec<String>,
}

impl Writes<'_> {
    fn resource(&mut self, resource: &Resource) {
        let all = collection(resource);
        let one = format!("{all}/{}", name(&resource.name));
        let mut new = object(resource);
        new["metadata"]["name"] = json!("other");
        if matches!(resource.name.as_str(), "ipaddresses" | "apiservices") {
            new["metadata"] = json!({"name": if resource.name == "ipaddresses" { "10.9.0.2" } else { "v2.example.org" }});
            new["spec"]["version"] = json!("v2");
        }
        if resource.name == "customresourcedefinitions" {
            new["metadata"]["name"] = json!("others.example.org");
            new["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
        }
        self.seen(resource, "", "CREATE", "POST", &all, JSON, Some(&new));
        self.changes(resource, "", &one, &resource.verbs);
        for sub in &resource.subresources {
            self.subresource(resource, sub, &one);
        }
        if resource.has_verb("delete") {
            self.seen(resource, "", "DELETE", "DELETE", &one, JSON, None);
        }
        if resource.has_verb("deletecollection") {
            // System priority classes are rejected before admission.
            let only = format!("{all}?fieldSelector=metadata.name%3D{}", name(&resource.name));
            self.seen(resource, "", "DELETE", "DELETE", &only, JSON, None);
        }
    }

    /// Sends updates and patches of an object or a subresource.
    fn changes(&mut self, resource: &Resource, sub: &str, path: &str, verbs: &[keelson_meta::Str]) {
        if verbs.iter().any(|verb| verb == "update") {
            let part = self.client.get(path);
            let whole = || self.client.get(path.trim_end_matches(&format!("/{sub}"))).body;
            let mut body = if part.status == 200 { part.body } else { whole() };
            body["metadata"]["labels"]["changed"] = json!("yes");
            self.seen(resource, sub, "UPDATE", "PUT", path, JSON, Some(&body));
        }
        if verbs.iter().any(|verb| verb == "patch") {
            let body = json!({"metadata": {"labels": {"changed": "yes"}}});
            self.seen(resource, sub, "UPDATE", "PATCH", path, MERGE, Some(&body));
        }
    }

    fn subresource(&mut self, resource: &Resource, sub: &Subresource, one: &str) {
        let path = format!("{one}/{}", sub.name);
        let place = format!("{}/{}", resource.name, sub.name);
        let connects = ["exec", "attach", "portforward", "proxy"].contains(&sub.name.as_str());
        if connects {
            let query = if sub.name == "proxy" { "" } else { "?command=a&container=c&ports=80" };
            let path = format!("{path}{query}");
            for method in ["GET", "POST"] {
                self.seen(resource, &sub.name, "CONNECT", method, &path, JSON, None);
            }
            return;
        }
        let body = match place.as_str() {
            "pods/binding" => {
                json!({"metadata": {"name": "sample"}, "target": {"kind": "Node", "name": "n"}})
            }
            "pods/eviction" => {
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "sample"}})
            }
            "serviceaccounts/token" => json!({"spec": {}}),
            _ => return self.changes(resource, &sub.name, &path, &sub.verbs),
        };
        self.seen(resource, &sub.name, "CREATE", "POST", &path, JSON, Some(&body));
    }

    fn review(&mut self, resource: &Resource) {
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
        let spec = match resource.name.as_str() {
            "tokenreviews" => json!({"token": "x"}),
            "selfsubjectrulesreviews" => json!({"namespace": "default"}),
            _ => json!({"resourceAttributes": attributes, "user": "x"}),
        };
        let namespace = if resource.namespaced { "default" } else { "" };
        let body = match resource.name.as_str() {
            "bindings" => {
                json!({"metadata": {"name": "sample"}, "target": {"kind": "Node", "name": "n"}})
            }
            "selfsubjectreviews" => json!({}),
            _ => json!({"metadata": {"namespace": namespace}, "spec": spec}),
        };
        self.seen(resource, "", "CREATE", "POST", &collection(resource), JSON, Some(&body));
    }

    /// Sends a request and checks that it is seen and rejected, unless it is exempt.
    #[allow(clippy::too_many_arguments)] // A row of a table.
    fn seen(
        &mut self,
        resource: &Resource,
        sub: &str,
        operation: &str,
        method: &str,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) {
        self.count += 1;
        if let Reviewer::Webhook(hook) = self.reviewer {
            hook.take();
        }
        let answer = self.client.call(method, path, media, body);
        let is_refused = self.reviewer.has_refused(resource, sub, operation, &answer);
        if is_refused == self.reviewer.is_exempt(resource) {
            let text = answer.body["message"].as_str().unwrap_or_default();
            self.faults
                .push(format!("{operation} {method} {path} ({sub}): {} {text}", answer.status));
        }
    }
}
