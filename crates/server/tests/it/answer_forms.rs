//! The forms of answers: media types, tables and metadata, indented text, warnings, of resources,
//! reviews, discovery and other paths, compared with a kube-apiserver (`recorded.rs`).

use crate::recorded::{self, Recorded, without_generated};
use keelson_testkit::api::Response;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/forms";
const WIDGETS: &str = "/apis/forms.test/v1/namespaces/forms/widgets";

/// Accept headers; the first is none.
const ACCEPTS: [&str; 22] = [
    "",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "text/html",
    "application/*",
    "*/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Nope;v=v1;g=meta.k8s.io",
    "application/json;as=Nope;v=v1;g=meta.k8s.io,application/yaml",
    "application/json;stream=watch",
    "application/json;q=0.2,application/yaml;q=0.8",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    "application/vnd.kubernetes.protobuf;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    "application/json;q=0.5,application/yaml;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
];

/// Returns what a response looks like: code, media type, warnings, whether it is indented, and an
/// error in full, or what an object is made of.
fn form(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.bytes);
    let layout = match response.bytes.first() {
        Some(b'{') if text.contains("\n  ") => " indented",
        Some(b'{') if text.ends_with('\n') => " line",
        Some(b'k') if text.starts_with("k8s\0") => " envelope",
        _ => "",
    };
    let body = if response.code >= 400 || response.body.is_null() {
        let is_opaque = matches!(layout, " envelope") || response.is_ok();
        if is_opaque { String::new() } else { format!(" {text:?}") }
    } else {
        format!(" {}", made_of(&response.body))
    };
    let warnings = response.warnings.join(" + ");
    let line = format!("{} {}{layout}{body} {warnings}", response.code, response.media_type);
    without_generated(line.trim_end())
}

/// Returns the kind of an object, its members, and those of the first item or row.
fn made_of(body: &Value) -> String {
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let members = |value: &Value| match value {
        Value::Object(map) => map.keys().cloned().collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    let mut line = format!("{}/{} {}", text("apiVersion"), text("kind"), members(body));
    for list in ["items", "rows", "versions"] {
        if let Some(first) = body[list].get(0) {
            line += &format!(" {list}: {}", members(first));
        }
    }
    if body["kind"] == "Status" {
        line += &format!(" {body}");
    }
    line
}

fn start() -> Recorded {
    let api = recorded::start();
    let named = |name: &str| json!({"metadata": {"name": name}});
    api.prepare("POST", "/api/v1/namespaces", &named("forms"));
    for account in ["default", "a"] {
        api.prepare("POST", &format!("{NAMESPACE}/serviceaccounts"), &named(account));
    }
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    api.prepare("POST", &format!("{NAMESPACE}/configmaps"), &map);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.prepare("POST", &format!("{NAMESPACE}/pods"), &pod);
    api.define_widgets("forms.test", "forms");
    api
}

/// Requests that are sent with each Accept header: method, path and body.
fn requests() -> Vec<(&'static str, String, String)> {
    let own = |method, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        (method, path.replace("{ns}", NAMESPACE).replace("{widgets}", WIDGETS), body)
    };
    let get = |path: &str| own("GET", path, Value::Null);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}});
    let review = json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nope": 1, "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "p", "nope": 1}, "deleteOptions": {"dryRun": ["All"]}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"name": "node", "nope": 1}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"nope": 1, "expirationSeconds": 1}});
    vec![
        get("{ns}/configmaps/a"),
        get("{ns}/configmaps"),
        get("{ns}/configmaps/none"),
        get("{ns}/configmaps?resourceVersion=abc"),
        get("{ns}/configmaps?fieldSelector=a=b"),
        own("POST", "{ns}/configmaps?dryRun=All", map.clone()),
        own("POST", "{ns}/configmaps?dryRun=All&fieldValidation=x", map),
        own("DELETE", "{ns}/configmaps/a?dryRun=All", Value::Null),
        own("DELETE", "{ns}/configmaps?dryRun=All", Value::Null),
        get("{ns}/serviceaccounts/a"),
        get("{widgets}/o"),
        get("{widgets}"),
        get("{widgets}/none"),
        get("{widgets}/o/status"),
        get("{widgets}/o/scale"),
        own("DELETE", "{widgets}/o?dryRun=All", Value::Null),
        own("POST", reviews, review),
        own("POST", "{ns}/pods/p/eviction?dryRun=All", eviction),
        own("POST", "{ns}/pods/p/binding?dryRun=All", binding.clone()),
        own("POST", "{ns}/bindings?dryRun=All", binding),
        own("POST", "{ns}/serviceaccounts/a/token", token),
        get("/api"),
        get("/api/v1"),
        get("/apis"),
        get("/apis/apps"),
        get("/apis/apps/v1"),
        get("/apis/apps/v9"),
        get("/apis/nope"),
        get("/apis/nope/v1"),
        get("/apis/forms.test"),
        get("/apis/forms.test/v1"),
        get("/version"),
        get("/"),
        get("/healthz"),
        get("/readyz/etcd"),
        get("/openid/v1/jwks"),
        get("/.well-known/openid-configuration"),
        get("/nope"),
        get("/api/v1/nope"),
        own("POST", "/version", Value::Null),
        own("PUT", "/api/v1", Value::Null),
    ]
}

#[test]
fn answers_have_the_form_that_the_client_accepts() {
    let api = start();
    let mut lines = vec![];
    for (method, path, body) in requests() {
        for accept in ACCEPTS {
            let accepts = if accept.is_empty() { "" } else { "Accept: " };
            let end = if accept.is_empty() { "" } else { "\r\n" };
            let headers = format!("Content-Type: application/json\r\n{accepts}{accept}{end}");
            let response = api.send_with(method, &path, &headers, &body);
            lines.push(format!("{method} {path} {accept} -> {}", form(&response)));
        }
    }
    api.end("answer_forms.txt", &lines);
}

#[test]
fn parameters_and_user_agents_choose_indented_text() {
    let api = start();
    let mut lines = vec![];
    for agent in ["probe", "curl/8", "Wget", "Mozilla/5.0", "Mozilla/4"] {
        for pretty in ["", "?pretty", "?pretty=", "?pretty=1", "?pretty=true", "?pretty=True"]
            .into_iter()
            .chain(["?pretty=t", "?pretty=yes", "?pretty=0", "?pretty=false", "?pretty=F"])
        {
            let path = format!("{NAMESPACE}/configmaps/a{pretty}");
            let response = api.send_with("GET", &path, &format!("User-Agent: {agent}\r\n"), "");
            lines.push(format!("{agent} {pretty} -> {}", form(&response)));
        }
    }
    api.end("answer_indents.txt", &lines);
}

/// Returns the items of a list, or the rows of a table, in the order of their texts: component
/// statuses come in any order. What is said of the components but the store depends on the machine.
fn components(body: &Value) -> Value {
    let list = if body["kind"] == "Table" { &body["rows"] } else { &body["items"] };
    let mut all = list.as_array().cloned().unwrap_or_default();
    for item in &mut all {
        let is_store = item.to_string().contains("etcd-0");
        if !is_store && item["conditions"].is_array() {
            item["conditions"] = json!("of this machine");
        } else if !is_store && item["cells"].is_array() {
            item["cells"] = json!([item["cells"][0]]);
        }
    }
    all.sort_by_key(Value::to_string);
    Value::Array(all)
}

#[test]
fn component_statuses_are_selected_and_shown_like_other_objects() {
    let api = start();
    let mut lines = vec![];
    let queries = [
        "",
        "?limit=1",
        "?labelSelector=a=b",
        "?labelSelector=!!",
        "?fieldSelector=metadata.name=etcd-0",
        "?fieldSelector=metadata.name!=etcd-0",
        "?fieldSelector=a=b",
        "?watch=1&timeoutSeconds=1",
        "?resourceVersion=abc",
        "/etcd-0",
        "/none",
    ];
    for query in queries {
        for accept in ACCEPTS.into_iter().skip(1) {
            let path = format!("/api/v1/componentstatuses{query}");
            let headers = format!("Accept: {accept}\r\n");
            let response = api.send_with("GET", &path, &headers, "");
            let items = components(&response.body);
            lines.push(format!("{path} {accept} -> {} {items}", form(&response)));
        }
    }
    api.end("component_statuses.txt", &lines);
}
