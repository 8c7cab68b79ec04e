//! Requests at the corners of the API, compared with a kube-apiserver (`recorded.rs`): what a
//! deletion answers with, empty lists of metadata, options in odd forms, numbers, nulls and kinds
//! in bodies. Found by `testkit/compare/requests.py`.

use crate::recorded::{self, Recorded, outcome};
use keelson_testkit::api::Response;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/corners";
const GROUP: &str = "corners.example.com";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Method, path, Content-Type, Accept, body. `N` stands for the namespace, `W` for the collection
/// of widgets.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The path of the members of an answer that are compared beside its outcome.
const SHOWN: [&str; 10] = [
    "/metadata/finalizers",
    "/metadata/selfLink",
    "/metadata/deletionTimestamp",
    "/metadata/generation",
    "/metadata/managedFields/0/fieldsV1",
    "/items",
    "/rows",
    "/spec",
    "/data",
    "/status/qosClass",
];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Lists and their options.
const LISTS: [Case; 37] = [
    ("GET", "N/configmaps?includeObject=Odd", JSON, TABLE, ""),
    ("GET", "W?includeObject=Odd", JSON, TABLE, ""),
    ("GET", "W/o", JSON, "*", ""),
    ("GET", "N/pods/p/log", JSON, "application/cbor", ""),
    ("GET", "N/configmaps?labelSelector=none", JSON, METADATA_LIST, ""),
    ("GET", "N/configmaps?labelSelector=none", JSON, JSON, ""),
    ("GET", "W?labelSelector=none", JSON, METADATA_LIST, ""),
    ("GET", "N/configmaps?includeObject=Odd&limit=x", JSON, TABLE, ""),
    ("GET", "N/configmaps?includeObject=Odd&sendInitialEvents=0", JSON, TABLE, ""),
    ("GET", "N/configmaps/none?includeObject=Odd", JSON, TABLE, ""),
    ("GET", "N/configmaps/a?includeObject=Odd&export=1", JSON, TABLE, ""),
    (
        "POST",
        "N/configmaps?includeObject=Odd&dryRun=All",
        JSON,
        TABLE,
        r#"{"metadata":{"name":"A"}}"#,
    ),
    ("GET", "N/configmaps?resourceVersion=00&limit=1&labelSelector=none", JSON, JSON, ""),
    ("GET", "N/configmaps?sendInitialEvents=1&resourceVersionMatch=Odd&continue=a", JSON, JSON, ""),
    ("GET", "N/configmaps?watch=1&continue=a&sendInitialEvents=1", JSON, JSON, ""),
    (
        "GET",
        "N/configmaps?watch=1&continue=a&sendInitialEvents=1&resourceVersionMatch=Odd",
        JSON,
        JSON,
        "",
    ),
    ("GET", "N/configmaps?watch=1&continue=a&resourceVersionMatch=NotOlderThan", JSON, JSON, ""),
    ("GET", "N/configmaps?continue=W10", JSON, JSON, ""),
    ("GET", "N/configmaps?continue=eyJ2IjoxfQ", JSON, JSON, ""),
    (
        "GET",
        "N/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MS41LCJzdGFydCI6ImEifQ",
        JSON,
        JSON,
        "",
    ),
    (
        "GET",
        "N/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vYlx1MDAwMCJ9",
        JSON,
        JSON,
        "",
    ),
    (
        "GET",
        "N/configmaps?continue=eyJWIjoibWV0YS5rOHMuaW8vdjEiLCJSViI6LTEsIlN0YXJ0IjoienpcdTAwMDAifQ",
        JSON,
        METADATA_LIST,
        "",
    ),
    ("GET", "/api/v1/componentstatuses?timeoutSeconds=1.5", JSON, JSON, ""),
    ("GET", "/api/v1/componentstatuses?limit=x", JSON, JSON, ""),
    ("GET", "/api/v1/componentstatuses?resourceVersionMatch=NotOlderThan", JSON, JSON, ""),
    ("GET", "N/pods/p/log?tailLines=", JSON, JSON, ""),
    ("GET", "N/pods/p/log?limitBytes", JSON, JSON, ""),
    ("GET", "N/pods/p/log?sinceSeconds=", JSON, JSON, ""),
    ("GET", "N/pods/p/log?stream=", JSON, JSON, ""),
    ("GET", "N/configmaps", JSON, ";q=1", ""),
    ("GET", "N/configmaps", JSON, "application/cbor,", ""),
    ("GET", "N/configmaps/a", JSON, "application/json;v=v1", ""),
    ("GET", "N/configmaps/a", JSON, "application/json;as=,application/yaml", ""),
    ("GET", "N/configmaps/none", JSON, "*/*;g=,application/yaml", ""),
    ("PATCH", "N/configmaps/a", "text/plain", "text/html", "{}"),
    ("PATCH", "W/o?dryRun=None", STRATEGIC, JSON, "{}"),
    ("GET", "/apis", JSON, "application/yaml;v=v1,application/json", ""),
];

/// Deletions and their options.
const DELETIONS: [Case; 13] = [
    ("DELETE", "N/configmaps/g", JSON, JSON, r#"{"apiVersion":"apps/","kind":"DeleteOptions"}"#),
    ("DELETE", "N/configmaps/g", JSON, JSON, r#"{"apiVersion":"__internal","kind":"Odd"}"#),
    ("DELETE", "N/serviceaccounts/g", JSON, JSON, r#"{"propagationPolicy":"Background"}"#),
    ("DELETE", "N/configmaps?dryRun=None&continue=a", JSON, JSON, ""),
    ("DELETE", "/apis/batch/v1/namespaces/corners/jobs?continue=a", JSON, JSON, ""),
    ("DELETE", "/apis/batch/v1/namespaces/corners/jobs?resourceVersion=x", JSON, JSON, ""),
    ("DELETE", "/apis/batch/v1/namespaces/corners/jobs?fieldSelector=odd=1", JSON, JSON, ""),
    ("DELETE", "N/configmaps/f", JSON, JSON, r#"{"gracePeriodSeconds":9223372036854775808}"#),
    ("DELETE", "N/configmaps/f", JSON, JSON, r#"{"gracePeriodSeconds":1e+19}"#),
    ("DELETE", "N/configmaps/f", JSON, JSON, r#"{"orphanDependents":false}"#),
    ("PATCH", "N/configmaps/f?fieldManager=a%C2%ADb%E2%80%8B", MERGE, JSON, "{}"),
    (
        "PATCH",
        "N/configmaps/f",
        MERGE,
        JSON,
        r#"{"metadata":{"finalizers":null,"labels":{"a":"b"}}}"#,
    ),
    ("DELETE", "N/serviceaccounts/s?dryRun=All", JSON, JSON, ""),
];

/// Fields and kinds of bodies.
const BODIES: [Case; 33] = [
    ("OPTIONS", "W/o", JSON, JSON, ""),
    (
        "POST",
        "N/configmaps?dryRun=All",
        JSON,
        JSON,
        r#"{"apiVersion":"apps/","metadata":{"name":"c"}}"#,
    ),
    (
        "POST",
        "/apis/apps/v1/namespaces/corners/controllerrevisions?dryRun=All",
        JSON,
        JSON,
        r#"{"apiVersion":"apps/","kind":"ControllerRevision","metadata":{"name":"c"},"data":{},"revision":1}"#,
    ),
    (
        "PATCH",
        "N/configmaps/b?fieldManager=m",
        APPLY,
        JSON,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","selfLink":"x"}}"#,
    ),
    ("PATCH", "N/configmaps/b", MERGE, JSON, r#"{"metadata":{"selfLink":"y"}}"#),
    (
        "PATCH",
        "W/l?fieldManager=m",
        APPLY,
        JSON,
        r#"{"apiVersion":"corners.example.com/v1","kind":"Widget","metadata":{"name":"l","selfLink":"x"}}"#,
    ),
    ("PUT", "N/configmaps/none", JSON, JSON, r#"{"metadata":{"name":"none"},"odd":1}"#),
    (
        "POST",
        "N/configmaps?dryRun=All",
        JSON,
        JSON,
        r#"{"apiVersion":"v1","kind":"Status","metadata":{"name":"c"}}"#,
    ),
    (
        "POST",
        "N/configmaps?dryRun=All",
        JSON,
        JSON,
        r#"{"apiVersion":"odd/v3","kind":"APIGroup","metadata":{"name":"c"}}"#,
    ),
    (
        "POST",
        "N/configmaps?dryRun=All",
        JSON,
        JSON,
        r#"{"apiVersion":"apps/__internal","kind":"ConfigMap","metadata":{"name":"c"}}"#,
    ),
    (
        "POST",
        "N/pods?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"c","generation":9223372036854775808}}"#,
    ),
    (
        "POST",
        "N/pods?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"c"},"spec":{"priority":1e3}}"#,
    ),
    (
        "POST",
        "N/pods?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"c"},"spec":{"priority":-0.0}}"#,
    ),
    ("PATCH", "N/pods/p", MERGE, JSON, r#"{"spec":{"priority":1e+18}}"#),
    ("PATCH", "N/pods/p", PATCH, JSON, r#"[{"op":"add","path":"/spec/priority","value":1000.0}]"#),
    ("PATCH", "N/pods/p", STRATEGIC, JSON, r#"{"spec":{"hostname":{"a":null,"b":1}}}"#),
    (
        "PATCH",
        "N/pods/p",
        STRATEGIC,
        JSON,
        r#"{"metadata":{"labels":null,"generateName":{"a":null}}}"#,
    ),
    (
        "PATCH",
        "N/replicationcontrollers/r?dryRun=All",
        STRATEGIC,
        JSON,
        r#"{"spec":{"replicas":1e300}}"#,
    ),
    (
        "PATCH",
        "N/replicationcontrollers/r?dryRun=All",
        STRATEGIC,
        JSON,
        r#"{"spec":{"replicas":-9223372036854775809}}"#,
    ),
    ("POST", "N/endpoints?dryRun=All", JSON, JSON, r#"{"metadata":{"name":"c\u2028"}}"#),
    (
        "PATCH",
        "W/a?fieldManager=m",
        APPLY,
        JSON,
        r#"{"apiVersion":"corners.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"any":null,"n":5}}"#,
    ),
    ("PATCH", "W/a/status", MERGE, JSON, r#"{"status":{"text":1}}"#),
    ("PATCH", "W/a/status", MERGE, JSON, r#"{"status":"x"}"#),
    ("PATCH", "W/a", MERGE, JSON, r#"{"spec":{"text":1}}"#),
    ("GET", "W/a/scale", JSON, JSON, ""),
    ("PATCH", "W/a", MERGE, JSON, r#"{"spec":{"moment":"x"}}"#),
    (
        "POST",
        "W",
        JSON,
        JSON,
        r#"{"apiVersion":"corners.example.com/v1","kind":"Widget","metadata":{"name":"t"},"spec":{"formatted":["a"]}}"#,
    ),
    ("PATCH", "W/t", MERGE, JSON, r#"{"spec":{"n":1}}"#),
    ("PATCH", "W/t", MERGE, JSON, r#"{"spec":{"formatted":null,"n":2}}"#),
    (
        "POST",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"v"},"spec":{"failurePolicy":"","variables":[{"name":" ","expression":"1"}]}}"#,
    ),
    (
        "PATCH",
        "W/x?fieldManager=m",
        APPLY,
        JSON,
        r#"{"apiVersion":"corners.example.com/v1","kind":"Widget","metadata":{"name":"x","resourceVersion":"\u2028"}}"#,
    ),
    (
        "PATCH",
        "N/configmaps/dry?fieldManager=m&dryRun=All",
        APPLY,
        JSON,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry","selfLink":"x"}}"#,
    ),
    (
        "PUT",
        "/apis/apps/v1/namespaces/corners/daemonsets/d?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"d"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}}}"#,
    ),
];

/// Names that no URL can contain.
const NAMES: [Case; 11] = [
    ("GET", "N/pods/10%25", JSON, JSON, ""),
    ("GET", "N/pods/..", JSON, JSON, ""),
    ("GET", "N/pods/%2e/status", JSON, JSON, ""),
    ("GET", "N/pods/10%25/log", JSON, JSON, ""),
    ("GET", "W/10%25", JSON, JSON, ""),
    ("DELETE", "N/pods/..", JSON, JSON, ""),
    ("PUT", "N/pods/10%25", JSON, JSON, r#"{"metadata":{"name":"other"}}"#),
    (
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/corners/leases/..",
        JSON,
        JSON,
        r#"{"metadata":{"name":".."}}"#,
    ),
    ("PATCH", "N/pods/10%25", MERGE, JSON, "{"),
    ("PATCH", "N/configmaps/10%25?fieldManager=m", APPLY, JSON, "{"),
    ("POST", "N/bindings", JSON, JSON, r#"{"metadata":{"name":"a/b%c"},"target":{"name":"n"}}"#),
];

/// A definition with members of its metadata, its conversion and its schema.
macro_rules! definition {
    ($metadata:literal, $conversion:literal, $schema:literal) => {
        concat!(
            r#"{"metadata":{"name":"as.corners.test""#,
            $metadata,
            r#"},"spec":{"group":"corners.test","scope":"Namespaced","names":{"plural":"as","kind":"A"},"#,
            $conversion,
            r#""versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":"#,
            $schema,
            "}}]}}"
        )
    };
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";

/// What manifests of public projects have (`testkit/compare/corpus.py`).
const MANIFESTS: [Case; 15] = [
    (
        "POST",
        DEFINITIONS,
        JSON,
        JSON,
        definition!("", "", r#"{"type":"object","properties":{"a":{"type":"array","items":"a"}}}"#),
    ),
    (
        "POST",
        DEFINITIONS,
        JSON,
        JSON,
        definition!("", "", r#"{"type":"object","properties":{"a":{"type":"array","items":[]}}}"#),
    ),
    (
        "POST",
        DEFINITIONS,
        JSON,
        JSON,
        definition!(r#","generateName":"other""#, "", r#"{"type":"object"}"#),
    ),
    (
        "POST",
        DEFINITIONS,
        JSON,
        JSON,
        definition!(
            "",
            r#""conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://a.b"},"conversionReviewVersions":["v1","a/b","a/b"]}},"#,
            r#"{"type":"object"}"#
        ),
    ),
    (
        "POST",
        "N/secrets?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"data":{"a":"...base64 encoded data..."}}"#,
    ),
    (
        "POST",
        "N/pods?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"spec":{"serviceAccountName":"s","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]},"status":{"qosClass":"x","phase":"Failed"}}"#,
    ),
    (
        "POST",
        "N/pods?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"spec":{"serviceAccountName":"s","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}],"nodeSelector":{"node-role.kubernetes.io/master":""}}}"#,
    ),
    (
        "POST",
        "N/pods?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"spec":{"serviceAccountName":"s","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"node-role.kubernetes.io/master","operator":"Exists"}]}]}}}}}"#,
    ),
    (
        "POST",
        "/apis/node.k8s.io/v1/runtimeclasses?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"handler":"h","scheduling":{"nodeSelector":{"beta.kubernetes.io/os":"a"}}}"#,
    ),
    (
        "POST",
        "/apis/storage.k8s.io/v1/namespaces/corners/csistoragecapacities?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"storageClassName":"s","nodeTopology":{"matchLabels":{"beta.kubernetes.io/os":"a"},"matchExpressions":[{"key":"node-role.kubernetes.io/master","operator":"Exists"}]}}"#,
    ),
    (
        "POST",
        "/apis/storage.k8s.io/v1/storageclasses?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"provisioner":"p","allowedTopologies":[{"matchLabelExpressions":[{"key":"beta.kubernetes.io/os","values":["a"]}]}]}"#,
    ),
    (
        "POST",
        "N/services",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x","resourceVersion":"5"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":99}]}}"#,
    ),
    (
        "POST",
        "N/services",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x","resourceVersion":"5"},"spec":{"ports":[{"port":80}]}}"#,
    ),
    (
        "POST",
        "/apis/apps/v1/namespaces/corners/deployments?dryRun=All",
        JSON,
        JSON,
        r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{"b":"-","a":"x"}},"template":{"metadata":{"labels":{"a":"x"}},"spec":{"containers":[{"name":"b","image":"i"}]}}}}"#,
    ),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/corners/daemonsets/d?dryRun=All",
        MERGE,
        JSON,
        r#"{"spec":{"selector":{"matchLabels":{"b":"c"}},"template":{"metadata":{"labels":{"b":"c"}}}}}"#,
    ),
];

/// Returns the outcome, the warnings and the members of an answer that are compared. A
/// resourceVersion is compared with that of the answer before.
fn shown(response: &Response, before: &mut String) -> String {
    let mut text = without_documents(outcome(response));
    for warning in &response.warnings {
        text += &format!(" warning {warning:?}");
    }
    let at = |path: &str| response.body.pointer(path).cloned();
    for path in SHOWN {
        let Some(value) = at(path) else { continue };
        let value = if path.ends_with("Timestamp") { json!("set") } else { sorted(value) };
        text += &format!(" {path}={value}");
    }
    if let Some(Value::String(version)) = at("/metadata/resourceVersion")
        && response.body.get("items").is_none()
    {
        text += if *before == version { " same version" } else { " another version" };
        *before = version;
    }
    text
}

/// Cuts the documents that a message quotes, which have times and uids.
fn without_documents(text: String) -> String {
    let Some((head, rest)) = text.split_once("Invalid value: \\\"{") else { return text };
    match rest.rsplit_once("}\\\": ") {
        Some((_, why)) => format!("{head}Invalid value: <document>: {why}"),
        None => text,
    }
}

/// Sorts the members of maps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> =
                map.into_iter().map(|(key, item)| (key, sorted(item))).collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(members.into_iter().collect())
        }
        other => other,
    }
}

fn prepare(api: &Recorded) {
    api.prepare("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "corners"}}));
    let made = |resource: &str, body: Value| {
        api.prepare("POST", &format!("{NAMESPACE}/{resource}"), &body);
    };
    made("serviceaccounts", json!({"metadata": {"name": "default"}}));
    made("serviceaccounts", json!({"metadata": {"name": "s"}}));
    made("serviceaccounts", json!({"metadata": {"name": "g", "finalizers": ["orphan"]}}));
    made("configmaps", json!({"metadata": {"name": "g"}}));
    made("configmaps", json!({"metadata": {"name": "a"}}));
    made("configmaps", json!({"metadata": {"name": "f", "finalizers": ["example.com/f"]}}));
    let spec =
        json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    made("pods", json!({"metadata": {"name": "p"}, "spec": spec}));
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    let spec = json!({"selector": {"a": "b"}, "template": template});
    made("replicationcontrollers", json!({"metadata": {"name": "r"}, "spec": spec}));
    let selector = json!({"matchLabels": {"a": "b"}});
    let daemons = json!({"metadata": {"name": "d"},
        "spec": {"selector": selector, "template": spec["template"]}});
    api.prepare("POST", "/apis/apps/v1/namespaces/corners/daemonsets", &daemons);
    define(api);
}

/// Defines widgets, which have no replicas in their schema, and creates the widgets `o` and `a`.
fn define(api: &Recorded) {
    let spec = json!({"type": "object", "properties": {
        "any": {"x-kubernetes-preserve-unknown-fields": true}, "n": {"type": "integer"},
        "text": {"type": "string"}, "moment": {"type": "string", "format": "date-time"},
        "formatted": {"type": "string", "format": "ipv4"}}});
    let status = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let scale =
        json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "subresources": {"status": {}, "scale": scale}, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": format!("widgets.{GROUP}")}, "spec": {
        "group": GROUP, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.prepare("POST", definitions, &definition);
    let widgets = widgets();
    api.wait_until_served(&widgets);
    for name in ["o", "a"] {
        let widget = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget",
            "metadata": {"name": name}, "spec": {"text": "a"}});
        api.prepare("POST", &widgets, &widget);
    }
}

fn widgets() -> String {
    format!("/apis/{GROUP}/v1/namespaces/corners/widgets")
}

#[test]
fn requests_at_the_corners_of_the_api_are_answered_as_by_kube_apiserver() {
    let api = recorded::start();
    prepare(&api);
    let mut lines = vec![];
    let mut before = String::new();
    let all = LISTS.into_iter().chain(DELETIONS).chain(BODIES).chain(NAMES).chain(MANIFESTS);
    for (method, path, media, accept, body) in all {
        let place = match (path.strip_prefix('N'), path.strip_prefix('W')) {
            (Some(rest), _) => format!("{NAMESPACE}{rest}"),
            (_, Some(rest)) => format!("{}{rest}", widgets()),
            _ => path.to_owned(),
        };
        let headers = format!("Content-Type: {media}\r\nAccept: {accept}\r\n");
        let response = api.send_with(method, &place, &headers, body);
        let shown = shown(&response, &mut before);
        lines.push(format!("{method} {path} {media} {accept} {body} -> {shown}"));
    }
    api.end("request_corners.txt", &lines);
}
