//! Writes to custom resources whose managers wrote in other versions: served ones, such that are
//! not served any more, and such that are gone, compared with a kube-apiserver (`recorded.rs`).

use crate::recorded::{self, Recorded, outcome};
use keelson_testkit::api::Response;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GROUP: &str = "versions.test";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// What becomes of the old version.
#[derive(Clone, Copy, Debug)]
enum Old {
    Served,
    Unserved,
    Gone,
}

/// What a new version has beside `a` and `b`.
#[derive(Clone, Copy, Debug)]
enum More {
    Nothing,
    Field,
    Default,
}

/// A new version of a definition.
#[derive(Clone, Copy)]
struct Change {
    plural: &'static str,
    old: Old,
    more: More,
}

impl Change {
    const fn of(plural: &'static str, old: Old, more: More) -> Change {
        Change { plural, old, more }
    }
}

const CHANGES: [Change; 7] = [
    Change::of("one", Old::Served, More::Nothing),
    Change::of("two", Old::Served, More::Field),
    Change::of("three", Old::Served, More::Default),
    Change::of("four", Old::Unserved, More::Nothing),
    Change::of("five", Old::Unserved, More::Field),
    Change::of("six", Old::Unserved, More::Default),
    Change::of("seven", Old::Gone, More::Field),
];

/// Requests in the new version, each to an object of its own: manager, media type (empty: a PUT of
/// what is stored with this spec), and body.
fn requests() -> Vec<(&'static str, &'static str, Value)> {
    let spec = |spec: Value| json!({"spec": spec});
    vec![
        ("m", APPLY, spec(json!({"a": "1"}))),
        ("m", APPLY, spec(json!({"a": "1", "b": "2"}))),
        ("m", APPLY, spec(json!({"a": "1", "c": "5"}))),
        ("other", APPLY, spec(json!({"a": "9"}))),
        ("other", APPLY, spec(json!({"c": "5"}))),
        ("other", APPLY, json!({"metadata": {"labels": {"l": "1"}}})),
        ("x", MERGE, json!({"metadata": {"annotations": {"r": "1"}}})),
        ("x", MERGE, spec(json!({"a": "9"}))),
        ("x", MERGE, spec(json!({"c": "5"}))),
        ("m", MERGE, spec(json!({"b": null}))),
        ("y", "", json!({"a": "7", "c": "8"})),
    ]
}

fn definition(plural: &str, versions: &Value) -> Value {
    let kind = format!("K{plural}");
    json!({"metadata": {"name": format!("{plural}.{GROUP}")}, "spec": {
        "group": GROUP, "scope": "Namespaced",
        "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
        "versions": versions}})
}

fn version(name: &str, old: Old, more: More) -> Value {
    let mut fields = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    match more {
        More::Nothing => {}
        More::Field => fields["c"] = json!({"type": "string"}),
        More::Default => fields["c"] = json!({"type": "string", "default": "x"}),
    }
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": fields}}});
    json!({"name": name, "served": !matches!(old, Old::Unserved), "storage": name == "v1",
        "schema": {"openAPIV3Schema": schema}})
}

/// Replaces the versions of a definition.
fn change(api: &Recorded, plural: &str, versions: &Value) {
    let path = format!("{DEFINITIONS}/{plural}.{GROUP}");
    let patch = json!({"spec": {"versions": versions}}).to_string();
    let changed = api.send("PATCH", &path, MERGE, &patch);
    assert!(changed.is_ok(), "{}", changed.body);
}

fn path_of(plural: &str, version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/{plural}")
}

fn apply(api: &Recorded, path: &str, manager: &str, body: &Value) -> Response {
    api.send("PATCH", &format!("{path}?fieldManager={manager}"), APPLY, &body.to_string())
}

/// Makes the objects in the old version, and the new version. Returns the path of the objects in
/// it.
fn prepare(api: &Recorded, of: Change, objects: usize) -> String {
    let Change { plural, old, more } = of;
    let mut only = version("v1beta1", Old::Served, More::Nothing);
    only["storage"] = json!(true);
    api.prepare("POST", DEFINITIONS, &definition(plural, &json!([only])));
    let before = path_of(plural, "v1beta1");
    api.wait_until_served(&before);
    for number in 0..objects {
        let body = json!({"apiVersion": format!("{GROUP}/v1beta1"), "kind": format!("K{plural}"),
            "metadata": {"name": format!("o{number}")}, "spec": {"a": "1", "b": "2"}});
        let made = apply(api, &format!("{before}/o{number}"), "m", &body);
        assert!(made.is_ok(), "{}", made.body);
    }
    let new = version("v1", Old::Served, more);
    change(api, plural, &json!([version("v1beta1", old, More::Nothing), new]));
    let path = path_of(plural, "v1");
    api.wait_until_served(&path);
    if let Old::Gone = old {
        for number in 0..objects {
            let mark = json!({"metadata": {"annotations": {"z": "1"}}}).to_string();
            let object = format!("{path}/o{number}?fieldManager=z");
            assert!(api.send("PATCH", &object, MERGE, &mark).is_ok(), "stored in the new version");
        }
        let stored = json!({"status": {"storedVersions": ["v1"]}}).to_string();
        let status = format!("{DEFINITIONS}/{plural}.{GROUP}/status");
        assert!(api.send("PATCH", &status, MERGE, &stored).is_ok());
        change(api, plural, &json!([new]));
        let until = Instant::now() + Duration::from_secs(30);
        while api.send("GET", &before, "", "").code != 404 {
            assert!(Instant::now() < until, "{before} is served");
            std::thread::yield_now();
        }
    }
    path
}

/// Returns what an object has after a request, and who owns it, or the error.
fn after(response: &Response) -> String {
    if !response.is_ok() {
        return outcome(response);
    }
    let entries = response.body["metadata"]["managedFields"].as_array().cloned();
    let owner = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let version = text("apiVersion");
        let version = version.rsplit('/').next().unwrap_or_default();
        format!("{} {} {version} {}", text("manager"), text("operation"), entry["fieldsV1"])
    };
    let mut owners: Vec<String> = entries.iter().flatten().map(owner).collect();
    // Their order is that of their times.
    owners.sort();
    format!("{} {}; {}", response.code, response.body["spec"], owners.join("; "))
}

#[test]
fn managers_of_other_versions_are_as_in_kube_apiserver() {
    let api = recorded::start();
    let requests = requests();
    let mut lines = vec![];
    for of in CHANGES {
        let path = prepare(&api, of, requests.len());
        for (number, (manager, media_type, body)) in requests.iter().enumerate() {
            let object = format!("{path}/o{number}");
            let target = format!("{object}?fieldManager={manager}");
            let mut body = body.clone();
            let response = match *media_type {
                "" => {
                    let mut stored = api.send("GET", &object, "", "").body;
                    stored["spec"] = body.clone();
                    api.send("PUT", &target, "application/json", &stored.to_string())
                }
                APPLY => {
                    body["apiVersion"] = json!(format!("{GROUP}/v1"));
                    body["kind"] = json!(format!("K{}", of.plural));
                    api.send("PATCH", &target, APPLY, &body.to_string())
                }
                media_type => api.send("PATCH", &target, media_type, &body.to_string()),
            };
            let Change { old, more, .. } = of;
            let what = if media_type.is_empty() { "PUT" } else { media_type };
            let asked = format!("{old:?} {more:?}: {manager} {what} {body}");
            lines.push(format!("{asked} -> {}", after(&response)));
        }
    }
    api.end("applies_of_versions.txt", &lines);
}
