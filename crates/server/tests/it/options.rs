//! The options of requests: every field of every kind of options with empty, wrong and repeated
//! values, in the query and the body of each verb that reads them, compared with a kube-apiserver
//! (`recorded.rs`).

use crate::recorded::{self, Recorded, outcome};
use keelson_meta::GroupVersionKind;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::canonicalize;
use keelson_schema::{json, proto};
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/options";
const MAP: &str = "/api/v1/namespaces/options/configmaps/a";
const POD: &str = "/api/v1/namespaces/options/pods/p";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Fields of DeleteOptions, and names that are none.
const DELETE_FIELDS: [&str; 11] = [
    "gracePeriodSeconds",
    "preconditions",
    "orphanDependents",
    "propagationPolicy",
    "dryRun",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "kind",
    "apiVersion",
    "uid",
    "resourceVersion",
    "unknown",
];

/// Fields of CreateOptions, UpdateOptions and PatchOptions, and names that are none.
const WRITE_FIELDS: [&str; 8] = [
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "pretty",
    "timeout",
    "timeoutSeconds",
    "unknown",
];

/// Fields of ListOptions, and names that are none.
const LIST_FIELDS: [&str; 10] = [
    "labelSelector",
    "fieldSelector",
    "allowWatchBookmarks",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "limit",
    "continue",
    "sendInitialEvents",
    "unknown",
];

/// Fields of GetOptions, and names that are none.
const GET_FIELDS: [&str; 4] = ["resourceVersion", "pretty", "export", "unknown"];

/// Values in a query.
const TEXTS: [&str; 22] = [
    "",
    "abc",
    "1",
    "0",
    "-1",
    "%2B5",
    "true",
    "false",
    "FALSE",
    "f",
    "0x1",
    "1.5",
    "9223372036854775808",
    "18446744073709551616",
    "%20",
    "All",
    "Orphan",
    "Exact",
    "NotOlderThan",
    "Ignore",
    "Strict",
    "99999999999",
];

/// Values of a parameter that is given twice.
const PAIRS: [(&str, &str); 5] =
    [("1", "2"), ("", "1"), ("1", ""), ("All", "x"), ("false", "true")];

/// Values in a body.
const VALUES: [&str; 18] = [
    "\"\"",
    "\"x\"",
    "\"1\"",
    "1",
    "0",
    "-1",
    "1.5",
    "true",
    "false",
    "null",
    "[]",
    "{}",
    "[\"All\"]",
    "[\"x\"]",
    "[1]",
    "[\"\"]",
    "\"All\"",
    "\"Orphan\"",
];

/// Returns the queries with all values of some fields.
fn queries(fields: &[&str]) -> Vec<String> {
    let mut queries = vec![];
    for field in fields {
        queries.push((*field).to_owned());
        queries.extend(TEXTS.iter().map(|text| format!("{field}={text}")));
        queries.extend(PAIRS.iter().map(|(one, two)| format!("{field}={one}&{field}={two}")));
    }
    queries
}

/// Returns bodies of DeleteOptions.
fn delete_bodies() -> Vec<String> {
    let mut bodies = vec![];
    for field in DELETE_FIELDS {
        bodies.extend(VALUES.iter().map(|value| format!("{{\"{field}\":{value}}}")));
        bodies.push(format!("{{\"{field}\":null,\"{field}\":\"b\"}}"));
        bodies.push(format!("{{\"{}\":1}}", field.to_uppercase()));
    }
    for field in ["uid", "resourceVersion", "unknown"] {
        let within = |body: String| format!("{{\"preconditions\":{body}}}");
        bodies.extend(VALUES.iter().map(|value| within(format!("{{\"{field}\":{value}}}"))));
        bodies.push(within(format!("{{\"{field}\":\"a\",\"{field}\":\"b\"}}")));
    }
    let others = [
        "null",
        "[]",
        "1",
        "\"x\"",
        "{",
        "{}x",
        " ",
        r#"{"orphanDependents":true,"propagationPolicy":""}"#,
        r#"{"orphanDependents":true,"propagationPolicy":"Orphan"}"#,
        r#"{"dryRun":["All","All"]}"#,
        r#"{"dryRun":["All","x"],"propagationPolicy":"x"}"#,
    ];
    bodies.extend(others.map(str::to_owned));
    bodies
}

/// Returns bodies of several kinds and group versions.
fn delete_kinds() -> Vec<String> {
    let versions = [
        "v1",
        "meta.k8s.io/v1",
        "meta.k8s.io/v1beta1",
        "apps/v1",
        "apps/v9",
        "policy/v1beta1",
        "x/v1",
        "",
        "a/b/c",
    ];
    let kinds = [
        "DeleteOptions",
        "",
        "ConfigMap",
        "ListOptions",
        "GetOptions",
        "CreateOptions",
        "UpdateOptions",
        "PatchOptions",
        "Table",
        "TableOptions",
        "PartialObjectMetadata",
        "PartialObjectMetadataList",
        "Status",
        "WatchEvent",
        "APIGroup",
        "List",
    ];
    let body = |kind: &str, version: &str| {
        json!({"kind": kind, "apiVersion": version, "preconditions": {"uid": "x"}}).to_string()
    };
    kinds.iter().flat_map(|kind| versions.iter().map(move |version| body(kind, version))).collect()
}

/// Encodes DeleteOptions in protobuf, in a group version.
fn protobuf(api_version: &str, body: &str) -> String {
    let kind = GroupVersionKind::new("", "v1", "DeleteOptions");
    let mut schema = Catalogue::shared().schema(&kind).expect("a schema");
    let value = json::parse(body.as_bytes()).expect("JSON").value;
    let options = canonicalize(&schema, value).expect("options").object;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    schema.gvk = GroupVersionKind::new(group, version, "DeleteOptions");
    let mut bytes = vec![];
    proto::encode(&schema, &options, &mut bytes).expect("protobuf");
    String::from_utf8(bytes).expect("only small lengths")
}

fn start() -> Recorded {
    let api = recorded::start();
    api.prepare("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "options"}}));
    let account = json!({"metadata": {"name": "default"}});
    api.prepare("POST", &format!("{NAMESPACE}/serviceaccounts"), &account);
    api
}

/// Creates the object of a path, sends the request, and returns a line with its outcome and what
/// became of the object.
fn one(api: &Recorded, object: (&str, &Value), request: (&str, &str, &str, &str)) -> String {
    let (path, body) = object;
    let (collection, _) = path.rsplit_once('/').expect("a path of an object");
    api.prepare("POST", collection, body);
    // Lists of any version may lag behind the create. This read waits for it.
    api.send("GET", path, JSON, "");
    let (method, target, media, sent) = request;
    let response = api.send(method, target, media, sent);
    let left = api.send("GET", path, JSON, "");
    let fate = match (left.code, &left.body["metadata"]["deletionTimestamp"]) {
        (404, _) => "gone",
        (_, Value::Null) => "kept",
        _ => "marked",
    };
    if fate == "marked" {
        api.prepare("PATCH", path, &json!({"metadata": {"finalizers": null}}));
        api.prepare("DELETE", path, &json!({"gracePeriodSeconds": 0}));
    }
    let (_, shown) = target.split_once(NAMESPACE).unwrap_or(("", target));
    let name = media.rsplit(['/', '.']).next().unwrap_or_default();
    let sent = match (media, method) {
        (PROTOBUF | YAML, _) => format!("{sent:?}"),
        (_, "PUT" | "PATCH") => String::new(),
        _ => sent.to_owned(),
    };
    format!("{method} {shown} {name} {sent} -> {} {fate}", outcome(&response))
}

fn config_map() -> Value {
    json!({"metadata": {"name": "a"}})
}

#[test]
fn delete_options_decide_as_in_kube_apiserver() {
    let api = start();
    let object = (MAP, &config_map());
    let mut lines = vec![];
    for query in queries(&DELETE_FIELDS) {
        lines.push(one(&api, object, ("DELETE", &format!("{MAP}?{query}"), JSON, "")));
    }
    for body in delete_bodies().iter().chain(&delete_kinds()) {
        lines.push(one(&api, object, ("DELETE", MAP, JSON, body)));
    }
    // A body replaces the query.
    lines.push(one(&api, object, ("DELETE", &format!("{MAP}?uid=x"), JSON, "{}")));
    for field in &DELETE_FIELDS[..6] {
        for value in ["\"\"", "\"x\"", "0", "true", "[\"x\"]", "{\"uid\": \"\"}"] {
            let body = format!("{field}: {value}\n");
            lines.push(one(&api, object, ("DELETE", MAP, YAML, &body)));
        }
    }
    let typed = [
        r#"{"preconditions":{"uid":""}}"#,
        r#"{"preconditions":{"resourceVersion":""}}"#,
        r#"{"preconditions":{}}"#,
        r#"{"propagationPolicy":""}"#,
        r#"{"propagationPolicy":"x"}"#,
        r#"{"dryRun":["All"]}"#,
        r#"{"dryRun":[""]}"#,
        r#"{"gracePeriodSeconds":0,"preconditions":{"uid":"x"}}"#,
    ];
    for version in ["v1", "meta.k8s.io/v1", "apps/v1", "x/v9"] {
        for body in typed {
            let body = protobuf(version, body);
            lines.push(one(&api, object, ("DELETE", MAP, PROTOBUF, &body)));
        }
    }
    api.end("delete_options.txt", &lines);
}

#[test]
fn options_of_deletecollection_decide_as_in_kube_apiserver() {
    let api = start();
    let object = (MAP, &config_map());
    let mut lines = vec![];
    let path = format!("{NAMESPACE}/configmaps");
    for query in queries(&LIST_FIELDS).into_iter().chain(queries(&DELETE_FIELDS[..6])) {
        let path = format!("{path}?fieldSelector=metadata.name%3Da&{query}");
        lines.push(one(&api, object, ("DELETE", &path, JSON, "")));
    }
    for query in ["resourceVersion=abc", "uid=x", "limit=", "fieldSelector=x"] {
        lines.push(one(&api, object, ("DELETE", &format!("{path}?{query}"), JSON, "")));
    }
    for body in delete_bodies().iter().filter(|body| body.contains("preconditions")) {
        let path = format!("{path}?fieldSelector=metadata.name%3Da");
        lines.push(one(&api, object, ("DELETE", &path, JSON, body)));
    }
    api.end("deletecollection_options.txt", &lines);
}

#[test]
fn options_of_reads_decide_as_in_kube_apiserver() {
    let api = start();
    let object = (MAP, &config_map());
    let mut lines = vec![];
    for query in queries(&GET_FIELDS) {
        lines.push(one(&api, object, ("GET", &format!("{MAP}?{query}"), JSON, "")));
    }
    for query in queries(&LIST_FIELDS) {
        let path = format!("{NAMESPACE}/configmaps?{query}");
        lines.push(one(&api, object, ("GET", &path, JSON, "")));
        if query.starts_with("timeoutSeconds") {
            continue;
        }
        // A negative timeout ends the watch at once.
        let path = format!("{NAMESPACE}/secrets?watch=1&timeoutSeconds=-1&{query}");
        let line = one(&api, object, ("GET", &path, JSON, ""));
        // Upstream's watches end with an error event if their context ends first.
        lines.push(line.replace(" InternalError \"context deadline exceeded\" []", ""));
    }
    for query in ["resourceVersion=abc&resourceVersionMatch=Exact", "resourceVersion=abc&limit=1"] {
        let path = format!("{NAMESPACE}/configmaps?{query}");
        lines.push(one(&api, object, ("GET", &path, JSON, "")));
    }
    api.end("read_options.txt", &lines);
}

#[test]
fn options_of_writes_decide_as_in_kube_apiserver() {
    let api = start();
    let object = (MAP, &config_map());
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let mut lines = vec![];
    for query in queries(&WRITE_FIELDS) {
        let other = body.replace("\"a\"", "\"c\"");
        let path = format!("{NAMESPACE}/configmaps?{query}");
        lines.push(one(&api, object, ("POST", &path, JSON, &other)));
        api.prepare("DELETE", &format!("{NAMESPACE}/configmaps/c"), &Value::Null);
        for (method, media) in [
            ("PUT", JSON),
            ("PATCH", "application/merge-patch+json"),
            ("PATCH", "application/json-patch+json"),
            ("PATCH", "application/apply-patch+yaml"),
        ] {
            let sent = if media.contains("json-patch") { "[]" } else { body.as_str() };
            lines.push(one(&api, object, (method, &format!("{MAP}?{query}"), media, sent)));
        }
        let path = format!("{MAP}?fieldManager=m&{query}");
        lines.push(one(&api, object, ("PATCH", &path, "application/apply-patch+yaml", &body)));
    }
    api.end("write_options.txt", &lines);
}

#[test]
fn options_of_evictions_decide_as_in_kube_apiserver() {
    let api = start();
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let path = format!("{POD}/eviction");
    let mut lines = vec![];
    let mut evict = |version: &str, options: &str, metadata: &str| {
        let body = format!(
            "{{\"apiVersion\":\"{version}\",\"kind\":\"Eviction\",\"metadata\":{metadata},\
             \"deleteOptions\":{options}}}"
        );
        lines.push(one(&api, (POD, &pod), ("POST", &path, JSON, &body)));
    };
    let name = r#"{"name":"p"}"#;
    for options in
        delete_bodies().iter().filter(|body| body.ends_with("}") && body.starts_with('{'))
    {
        evict("policy/v1", options, name);
    }
    for version in ["policy/v1beta1", "v1", "policy/v9", "apps/v1", ""] {
        evict(version, "{}", name);
        evict(version, r#"{"propagationPolicy":"x"}"#, name);
        evict(version, r#"{"preconditions":{"uid":"x"}}"#, name);
    }
    for metadata in [
        r#"{"name":"p","uid":"x"}"#,
        r#"{"name":"p","resourceVersion":"1"}"#,
        r#"{"name":"q"}"#,
        "{}",
        r#"{"name":"p","namespace":"other"}"#,
    ] {
        evict("policy/v1", "{}", metadata);
    }
    for query in queries(&WRITE_FIELDS) {
        let body = format!("{{\"metadata\":{name}}}");
        lines.push(one(&api, (POD, &pod), ("POST", &format!("{path}?{query}"), JSON, &body)));
    }
    api.end("eviction_options.txt", &lines);
}
