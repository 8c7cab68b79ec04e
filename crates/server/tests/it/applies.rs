//! What is left of an object when a manager applies less than before, and what becomes of nulls,
//! compared with a kube-apiserver 1.36.3 (`recorded.rs`).

use crate::recorded::{self, Recorded, outcome};
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";
const GROUP: &str = "applies.test";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn text() -> Value {
    json!({"type": "string"})
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// The fields of the spec: maps and lists of all kinds.
fn fields() -> Value {
    let item = json!({"n": text(), "v": text(), "o": object(&json!({"s": text()}))});
    let items = json!({"type": "object", "required": ["n"], "properties": item});
    json!({
        "a": object(&json!({"s": text(), "t": text()})),
        "b": object(&json!({"l": {"type": "array", "items": text()}, "s": text()})),
        "c": object(&json!({"m": {"type": "object", "additionalProperties": text()}})),
        "d": object(&json!({"k": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"], "items": items}})),
        "e": object(&json!({"p": open()})),
        "f": object(&json!({"set": {"type": "array", "x-kubernetes-list-type": "set",
            "items": text()}})),
        "g": object(&json!({"at": {"type": "object", "x-kubernetes-map-type": "atomic",
            "properties": {"s": text(), "p": open()}}})),
        "h": {"type": "object", "additionalProperties": text()},
        "i": object(&json!({"o": object(&json!({"o": object(&json!({"s": text()}))}))})),
        "l": {"type": "array", "items": object(&json!({"s": text(), "p": open(),
            "any": {"x-kubernetes-preserve-unknown-fields": true}}))},
        "p": open(),
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "either": {"x-kubernetes-int-or-string": true},
    })
}

/// A value of each field of [`fields`].
fn whole() -> Value {
    json!({
        "a": {"s": "x", "t": "y"}, "b": {"l": ["x"], "s": "y"}, "c": {"m": {"x": "y"}},
        "d": {"k": [{"n": "1", "v": "2", "o": {"s": "x"}}]}, "e": {"p": {"x": {"y": 1}}},
        "f": {"set": ["x"]}, "g": {"at": {"s": "x", "p": {"x": 1}}}, "h": {"x": "y"},
        "i": {"o": {"o": {"s": "x"}}}, "l": [{"s": "x", "p": {"x": 1}, "any": 1}],
        "p": {"l": ["a"], "x": {"y": "z"}}, "any": {"x": 1}, "either": 1,
    })
}

/// What is applied instead, by field.
fn changes() -> Value {
    json!({
        "a": [{}, {"s": "x"}, {"s": null}, null],
        "b": [{}, {"l": []}, {"s": "y"}, {"l": null}, {"l": [null]}],
        "c": [{}, {"m": {}}, {"m": null}, {"m": {"x": null}}],
        "d": [{}, {"k": []}, {"k": [{"n": "1"}]}, {"k": [{"n": "1", "o": {}}]},
            {"k": [{"n": "1", "o": null}]}, {"k": [null]}],
        "e": [{}, {"p": {}}, {"p": {"x": {}}}, {"p": null}, {"p": {"x": null}}],
        "f": [{}, {"set": []}, {"set": null}],
        "g": [{}, {"at": {}}, {"at": {"p": null}}, {"at": {"s": null}}, {"at": null}],
        "h": [{}, {"x": null}, null],
        "i": [{}, {"o": {}}, {"o": {"o": {}}}],
        "l": [[], [{}], [{"p": null}], [{"any": null}], [{"s": null}], null],
        "p": [{}, {"x": {}}, {"l": []}, {"x": {}, "l": []}, {"x": null}, null],
        "any": [{}, {"x": null}, null],
        "either": [null],
    })
}

/// Defines a resource with a spec of [`fields`]; returns the path of its objects.
fn define(api: &Recorded, plural: &str, are_nullable: bool) -> String {
    let mut fields = fields();
    if are_nullable {
        fields.as_object_mut().expect("fields").values_mut().for_each(|it| {
            it["nullable"] = json!(true);
        });
    }
    let kind = format!("K{plural}");
    let schema = object(&json!({"spec": object(&fields)}));
    let definition = json!({"metadata": {"name": format!("{plural}.{GROUP}")}, "spec": {
        "group": GROUP, "scope": "Namespaced",
        "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.prepare("POST", definitions, &definition);
    let path = format!("/apis/{GROUP}/v1/namespaces/default/{plural}");
    api.wait_until_served(&path);
    path
}

/// Who writes the whole value before less of it is applied.
const WRITERS: [&str; 4] = ["m", "another creates", "another applies less", "nobody"];

/// Returns what is left of the spec and who owns it, or the error.
fn left(api: &Recorded, path: &str, kind: &str, writer: &str, values: [&Value; 2]) -> String {
    let [whole, less] = values;
    let body = |spec: &Value| {
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": "o"},
            "spec": spec})
    };
    let apply = |manager: &str, spec: &Value| {
        let target = format!("{path}/o?fieldManager={manager}&force=true");
        api.send("PATCH", &target, APPLY, &body(spec).to_string())
    };
    api.prepare("DELETE", &format!("{path}/o"), &Value::Null);
    match writer {
        "m" => drop(apply("m", whole)),
        "another creates" => {
            api.prepare("POST", &format!("{path}?fieldManager=o"), &body(whole));
            apply("m", whole);
        }
        "another applies less" => {
            apply("o", less);
            apply("m", whole);
        }
        _ => {}
    }
    let response = match writer {
        "another applies less" => apply("m", &json!({})),
        _ => apply("m", less),
    };
    if !response.is_ok() {
        return outcome(&response);
    }
    let entries = response.body["metadata"]["managedFields"].as_array().cloned();
    let owner = |entry: &Value| {
        format!("{} {}", entry["manager"].as_str().unwrap_or_default(), entry["fieldsV1"])
    };
    let mut owners: Vec<String> = entries.iter().flatten().map(owner).collect();
    // Their order is that of their times.
    owners.sort();
    format!("{} {}; {}", response.code, response.body["spec"], owners.join("; "))
}

#[test]
fn what_is_left_after_an_apply_is_as_in_kube_apiserver() {
    let api = recorded::start();
    let mut lines = vec![];
    for (plural, are_nullable) in [("strict", false), ("nullable", true)] {
        let path = define(&api, plural, are_nullable);
        let kind = format!("K{plural}");
        for (field, changes) in changes().as_object().expect("changes") {
            for change in changes.as_array().expect("a list") {
                for writer in WRITERS {
                    let values = [&json!({field: whole()[field]}), &json!({field: change})];
                    let left = left(&api, &path, &kind, writer, values);
                    lines.push(format!("{plural} {field} {change}, {writer} -> {left}"));
                }
            }
        }
    }
    api.end("applies.txt", &lines);
}

/// Applies a pod's spec, then less of it. Returns what is left of the changed part, or the error.
fn left_of_pod(api: &Recorded, is_created: bool, specs: [&Value; 2]) -> String {
    let body = |spec: &Value| {
        let labels = json!({"app": "b"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "left"},
            "spec": {"selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec}}})
    };
    let path = format!("{DEPLOYMENTS}/left");
    api.prepare("DELETE", &path, &Value::Null);
    if is_created {
        api.prepare("POST", &format!("{DEPLOYMENTS}?fieldManager=o"), &body(specs[0]));
    }
    let apply = |spec: &Value| {
        let target = format!("{path}?fieldManager=m&force=true");
        api.send("PATCH", &target, APPLY, &body(spec).to_string())
    };
    apply(specs[0]);
    let response = apply(specs[1]);
    if !response.is_ok() {
        return outcome(&response);
    }
    let mut spec = response.body["spec"]["template"]["spec"].clone();
    for name in ["dnsPolicy", "restartPolicy", "schedulerName", "terminationGracePeriodSeconds"] {
        spec[name].take();
    }
    spec.to_string()
}

#[test]
fn what_is_left_of_a_pod_after_an_apply_is_as_in_kube_apiserver() {
    let api = recorded::start();
    let with = |field: &str, value: Value| json!({"containers": [{"name": "b", "image": "i", field: value}]});
    let env = |from: Value| with("env", json!([{"name": "E", "valueFrom": from}]));
    let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    let key = json!({"configMapKeyRef": {"name": "x", "key": "y"}});
    let terms = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
        "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]});
    let command = json!({"exec": {"command": ["a"]}});
    let of_pod = |field: &str, value: Value| json!({"containers": [{"name": "b", "image": "i"}], field: value});
    let plain = of_pod("hostNetwork", json!(false));
    let pairs = [
        (of_pod("affinity", json!({"nodeAffinity": terms})), of_pod("affinity", json!({}))),
        (
            of_pod("affinity", json!({"nodeAffinity": terms})),
            of_pod("affinity", json!({"nodeAffinity": {}})),
        ),
        (of_pod("affinity", json!({"nodeAffinity": terms})), plain.clone()),
        (of_pod("securityContext", json!({"runAsUser": 1})), of_pod("securityContext", json!({}))),
        (of_pod("dnsConfig", json!({"nameservers": ["1.2.3.4"]})), of_pod("dnsConfig", json!({}))),
        (of_pod("nodeSelector", json!({"a": "b"})), of_pod("nodeSelector", json!({}))),
        (env(field.clone()), env(json!({}))),
        (env(field.clone()), with("env", json!([]))),
        (env(field.clone()), with("env", json!([{"name": "E"}]))),
        (env(field), plain.clone()),
        (env(key.clone()), env(json!({}))),
        (env(key), plain.clone()),
        (with("livenessProbe", command.clone()), with("livenessProbe", json!({"exec": {}}))),
        (with("livenessProbe", command.clone()), with("livenessProbe", json!({}))),
        (with("lifecycle", json!({"preStop": command})), with("lifecycle", json!({"preStop": {}}))),
        (with("lifecycle", json!({"preStop": command})), with("lifecycle", json!({}))),
        (with("resources", json!({"limits": {"cpu": "1"}})), with("resources", json!({}))),
        (
            with("securityContext", json!({"capabilities": {"add": ["A"]}})),
            with("securityContext", json!({"capabilities": {}})),
        ),
        (with("ports", json!([{"containerPort": 1}])), with("ports", json!([]))),
        (with("args", json!(["a"])), with("args", json!([]))),
    ];
    let mut lines = vec![];
    for (before, after) in &pairs {
        for is_created in [false, true] {
            let left = left_of_pod(&api, is_created, [before, after]);
            let who = if is_created { "another created it" } else { "alone" };
            lines.push(format!("{before} {after}, {who} -> {left}"));
        }
    }
    api.end("applies_to_pods.txt", &lines);
}
