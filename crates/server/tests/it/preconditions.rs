//! The uid and resourceVersion that a client sends to subresources, compared with a kube-apiserver
//! (`recorded.rs`).

use crate::recorded::{self, Recorded, outcome};
use serde_json::{Value, json};

const CORE: &str = "/api/v1/namespaces/preconditions";
const APPS: &str = "/apis/apps/v1/namespaces/preconditions";
const WIDGETS: &str = "/apis/preconditions.test/v1/namespaces/preconditions/widgets";

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

fn start() -> Recorded {
    let api = recorded::start();
    let named = |name: &str| json!({"metadata": {"name": name}});
    api.prepare("POST", "/api/v1/namespaces", &named("preconditions"));
    api.prepare("POST", &format!("{CORE}/serviceaccounts"), &named("default"));
    let pod = json!({"metadata": {"name": "o"}, "spec": pod_spec()});
    api.prepare("POST", &format!("{CORE}/pods"), &pod);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()});
    let controller = |selector: Value| {
        json!({"metadata": {"name": "o"},
            "spec": {"replicas": 1, "selector": selector, "template": template}})
    };
    let labels = json!({"matchLabels": {"a": "b"}});
    api.prepare("POST", &format!("{APPS}/deployments"), &controller(labels));
    let controllers = format!("{CORE}/replicationcontrollers");
    api.prepare("POST", &controllers, &controller(json!({"a": "b"})));
    api.define_widgets("preconditions.test", "preconditions");
    api
}

/// Returns the object of a path with some of its metadata replaced.
fn changed(api: &Recorded, path: &str, metadata: &Value) -> Value {
    let mut object = api.send("GET", path, JSON, "").body;
    let own = object["metadata"].as_object_mut().expect("metadata");
    own.remove("managedFields");
    own.remove("resourceVersion");
    own.remove("uid");
    own.extend(metadata.as_object().expect("a map").clone());
    object
}

/// Sends some metadata to each subresource, in a dry run and without. Returns a line for each
/// request.
fn lines_of(api: &Recorded, metadata: &Value) -> Vec<String> {
    let mut lines = vec![];
    let mut send = |method: &str, path: &str, media: &str, body: &Value| {
        for path in [format!("{path}?dryRun=All"), path.to_owned()] {
            let path = match media {
                APPLY if path.contains('?') => format!("{path}&fieldManager=m&force=true"),
                APPLY => format!("{path}?fieldManager=m&force=true"),
                _ => path,
            };
            let got = outcome(&api.send(method, &path, media, &body.to_string()));
            lines.push(format!("{method} {path} {media} {metadata} -> {got}"));
        }
    };
    let patch = json!({"metadata": metadata});
    for path in [format!("{APPS}/deployments/o"), format!("{CORE}/replicationcontrollers/o")] {
        let scale = format!("{path}/scale");
        send("PUT", &scale, JSON, &changed(api, &scale, metadata));
        send("PATCH", &scale, MERGE, &patch);
        send("PATCH", &scale, STRATEGIC, &patch);
        send("PATCH", &scale, APPLY, &changed(api, &scale, metadata));
    }
    let scale = format!("{WIDGETS}/o/scale");
    send("PUT", &scale, JSON, &changed(api, &scale, metadata));
    send("PATCH", &scale, MERGE, &patch);
    for path in [format!("{APPS}/deployments/o"), format!("{WIDGETS}/o"), format!("{CORE}/pods/o")]
    {
        let status = format!("{path}/status");
        send("PUT", &status, JSON, &changed(api, &path, metadata));
        send("PATCH", &status, MERGE, &patch);
        send("PATCH", &status, APPLY, &changed(api, &path, metadata));
    }
    for part in ["ephemeralcontainers", "resize"] {
        send("PATCH", &format!("{CORE}/pods/o/{part}"), STRATEGIC, &patch);
    }
    let mut named = patch.clone();
    named["metadata"]["name"] = json!("o");
    named["target"] = json!({"kind": "Node", "name": "n"});
    let failing =
        metadata["uid"] == "x" || !matches!(metadata["resourceVersion"].as_str(), None | Some(""));
    if failing && metadata["uid"] != "x" {
        send("POST", &format!("{CORE}/bindings"), JSON, &named);
    }
    if failing {
        send("POST", &format!("{CORE}/pods/o/binding"), JSON, &named);
    }
    let mut request = patch.clone();
    request["spec"] = json!({"audiences": ["a"]});
    send("POST", &format!("{CORE}/serviceaccounts/default/token"), JSON, &request);
    lines
}

#[test]
fn subresources_check_uid_and_resource_version_as_kube_apiserver() {
    let api = start();
    let mut lines = vec![];
    for metadata in [
        json!({"uid": "x"}),
        json!({"uid": ""}),
        json!({"resourceVersion": "1"}),
        json!({"resourceVersion": "x"}),
        json!({"resourceVersion": "+1"}),
        json!({"resourceVersion": "18446744073709551616"}),
        json!({"resourceVersion": ""}),
        json!({"resourceVersion": "0"}),
        json!({"uid": "x", "resourceVersion": "1"}),
    ] {
        lines.extend(lines_of(&api, &metadata));
    }
    // `bindings` ignores the uid.
    let body =
        json!({"metadata": {"name": "o", "uid": "x"}, "target": {"kind": "Node", "name": "n"}});
    let path = format!("{CORE}/bindings?dryRun=All");
    lines.push(format!(
        "{path} {body} -> {}",
        outcome(&api.send("POST", &path, JSON, &body.to_string()))
    ));
    api.end("preconditions.txt", &lines);
}
