//! Objects under load that webhooks convert and admit.

use super::load::Objects;
use keelson_testkit::http::Client;
use keelson_testkit::things;
use keelson_testkit::webhook::Webhook;
use serde_json::json;

/// Defines `things` in two versions, which the webhook converts, and whose writes it admits.
pub fn define_things(client: &Client, hook: &Webhook) {
    let group = things::GROUP;
    let definition = things::definition(group, "v1beta1", &hook.config("convert"));
    assert_eq!(client.post(things::DEFINITIONS, &definition).status, 201);
    client.poll(&things::path(group, "v1"), |answer| answer.status == 200);
    let admission = json!({"metadata": {"name": "things"}, "webhooks": [{
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": hook.config("allow"),
        "rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": ["*"]}]
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(path, &admission).status, 201);
}

/// Returns `things` in the version that needs a conversion.
pub fn objects() -> Objects {
    let version = "v1";
    Objects {
        path: things::path(things::GROUP, version),
        api_version: format!("{}/{version}", things::GROUP),
        kind: "Thing",
        updates_unconditionally: false,
    }
}
