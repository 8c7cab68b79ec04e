//! R-COND, R-FIN and R-GEN: conditions, deletion and generation.

use super::world::{
    DEPLOYMENTS, PODS, WIDGETS, Walked, deployment, everything, invalid, made, read, widget,
    with_widgets,
};
use super::{MERGE_PATCH, patch, pod, refused, seconds, server};
use crate::world::Client;
use serde_json::{Value, json};

const TIME: &str = "2024-01-01T00:00:00Z";

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": TIME})
}

fn set(client: &Client, walked: &Walked, conditions: Value) -> crate::world::Response {
    let mut status = json!({"conditions": conditions});
    if walked.resource == "poddisruptionbudgets" {
        for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status[count] = json!(0);
        }
    }
    let path = format!("{}/status", walked.one());
    client.call("PATCH", &path, MERGE_PATCH, Some(&json!({"status": status})))
}

/// The kinds whose conditions have the newer form, in full.
///
/// Proves: R-COND-01, R-COND-02, R-COND-04, R-COND-05, R-COND-06, R-COND-08, R-COND-12.
#[test]
fn newer_conditions_are_validated() {
    let server = with_widgets();
    let client = server.client();
    // A kube-apiserver 1.36 validates the conditions of these two kinds.
    let kinds = ["poddisruptionbudgets", "validatingadmissionpolicies"];
    let mut seen = 0;
    for walked in everything().iter().filter(|walked| kinds.contains(&&*walked.resource)) {
        seen += 1;
        made(&client, &walked.all(), &walked.sample);
        let check = |conditions: Value, fields: &[&str]| {
            invalid(&set(&client, walked, conditions), fields);
        };
        let at = |member: &str| format!("status.conditions[0].{member}");
        check(
            json!([condition("A", "True", "R"), condition("A", "False", "R")]),
            &["status.conditions[1].type"],
        );
        check(json!([condition("A", "Maybe", "R")]), &[&at("status")]);
        check(json!([condition("A", "", "R")]), &[&at("status")]);
        check(json!([condition("A", "True", "")]), &[&at("reason")]);
        check(json!([condition("A", "True", "not a word")]), &[&at("reason")]);
        check(json!([condition("a b", "True", "R")]), &[&at("type")]);
        let mut timeless = condition("A", "True", "R");
        timeless.as_object_mut().expect("a map").remove("lastTransitionTime");
        check(json!([timeless]), &[&at("lastTransitionTime")]);
        let mut negative = condition("A", "True", "R");
        negative["observedGeneration"] = json!(-1);
        check(json!([negative]), &[&at("observedGeneration")]);
        // Types of others are kept as they are, with a generation that may be behind.
        let mut own = condition("foo.example.com/CamelCase", "Unknown", "Because");
        own["observedGeneration"] = json!(1);
        let done = set(&client, walked, json!([own, condition("Other", "False", "R")]));
        assert_eq!(done.status, 200, "{done:?}");
        assert_eq!(
            done.body["status"]["conditions"],
            json!([own, condition("Other", "False", "R")])
        );
        assert_eq!(read(&client, &walked.one())["status"], done.body["status"]);
        assert_eq!(client.delete(&walked.one()).status, 200);
    }
    assert_eq!(seen, kinds.len());
    // A custom resource has them by its schema.
    let widget = everything().pop().expect("widgets are the last");
    made(&client, &widget.all(), &widget.sample);
    let twice = json!([{"type": "A", "status": "True"}, {"type": "A", "status": "True"}]);
    invalid(&set(&client, &widget, twice), &["status.conditions[1]"]);
    let maybe = set(&client, &widget, json!([{"type": "A", "status": "Maybe"}]));
    assert_eq!(maybe.status, 422, "{maybe:?}");
    server.stop();
}

/// Proves: R-COND-03, R-COND-09, R-COND-11, R-COND-12.
#[test]
fn older_conditions_need_only_type_and_status() {
    let server = server();
    let client = server.client();
    made(&client, "/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    // What is not known is shown as such.
    let table = client.table("/api/v1/nodes").body;
    assert_eq!(table["rows"][0]["cells"][1], "Unknown");
    let own = json!([{"type": "example.com/Own", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null}]);
    let body = json!({"status": {"conditions": own, "phase": "Running"}});
    let done = patch(&client, "/api/v1/nodes/n/status", MERGE_PATCH, &body);
    assert_eq!(
        (&done["status"]["conditions"], &done["status"]["phase"]),
        (&own, &json!("Running"))
    );
    made(&client, PODS, &pod("p"));
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let done = patch(&client, &format!("{PODS}/p/status"), MERGE_PATCH, &ready);
    assert_eq!(done["status"]["conditions"][0]["type"], "Ready");
    server.stop();
}

/// Every kind keeps an object with a finalizer until it is removed.
///
/// Proves: R-FIN-02, R-FIN-03, R-FIN-04, R-SPEC-08.
#[test]
fn objects_with_finalizers_are_deleted_when_the_last_one_is_removed() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything().iter().filter(|walked| walked.resource != "namespaces") {
        let mut obj = walked.sample.clone();
        obj["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
        made(&client, &walked.all(), &obj);
        let one = walked.one();
        assert_eq!(client.delete(&one).status, 200, "{one}");
        let first = read(&client, &one)["metadata"]["deletionTimestamp"].clone();
        assert!(seconds(&first) > 0, "{one}");
        // Neither a second deletion nor a write unsets or moves it.
        client.delete(&one);
        let rest = json!({"metadata": {"finalizers": ["example.com/two"]}});
        let held = patch(&client, &one, MERGE_PATCH, &rest);
        assert_eq!(held["metadata"]["deletionTimestamp"], first, "{one}");
        assert_eq!(read(&client, &one)["metadata"]["deletionTimestamp"], first);
        let more = json!({"metadata": {"finalizers": ["example.com/two", "example.com/three"]}});
        let late = client.call("PATCH", &one, MERGE_PATCH, Some(&more));
        assert_eq!(late.status, 422, "{late:?}");
        client.call("PATCH", &one, MERGE_PATCH, Some(&json!({"metadata": {"finalizers": null}})));
        client.poll(&one, |answer| answer.status == 404);
        assert!(
            !super::names(&read(&client, &walked.all())).contains(&walked.name.as_str()),
            "{one}"
        );
    }
    server.stop();
}

/// Proves: R-FIN-01, R-FIN-02, R-FIN-04, R-FIN-05.
#[test]
fn a_graceful_deletion_has_a_time_that_only_comes_nearer() {
    let server = server();
    let client = server.client();
    let mut obj = pod("p");
    obj["spec"]["nodeName"] = json!("n");
    let stored = made(&client, PODS, &obj);
    let one = format!("{PODS}/p");
    let now = seconds(&stored["metadata"]["creationTimestamp"]);
    assert_eq!(client.delete(&format!("{one}?gracePeriodSeconds=60")).status, 200);
    let time = |obj: &Value| seconds(&obj["metadata"]["deletionTimestamp"]);
    let first = time(&read(&client, &one));
    assert!((now + 60..now + 80).contains(&first), "{first}");
    assert_eq!(super::names(&read(&client, PODS)), ["p"]);
    client.delete(&format!("{one}?gracePeriodSeconds=90"));
    assert_eq!(time(&read(&client, &one)), first);
    client.delete(&format!("{one}?gracePeriodSeconds=5"));
    let nearer = time(&read(&client, &one));
    assert!(nearer < first, "{nearer} {first}");
    let unset = json!({"metadata": {"deletionTimestamp": null, "labels": {"l": "1"}}});
    assert_eq!(time(&patch(&client, &one, MERGE_PATCH, &unset)), nearer);
    // Its kubelet may end it before.
    assert_eq!(client.delete(&format!("{one}?gracePeriodSeconds=0")).status, 200);
    refused(&client.get(&one), 404, "NotFound", "pods \"p\" not found");
    server.stop();
}

/// Proves: R-GEN-01, R-GEN-02.
#[test]
fn the_generation_grows_with_the_spec_only() {
    let server = with_widgets();
    let client = server.client();
    for (path, obj, spec) in [
        (DEPLOYMENTS, deployment("g"), json!({"replicas": 7})),
        (WIDGETS, widget("g"), json!({"size": 7})),
    ] {
        let one = format!("{path}/g");
        let generation = |obj: Value| obj["metadata"]["generation"].as_i64().expect("a generation");
        assert_eq!(generation(made(&client, path, &obj)), 1);
        let changes = [
            (one.clone(), json!({"metadata": {"labels": {"l": "1"}}}), 1),
            (
                format!("{one}/status"),
                json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "R"}]}}),
                1,
            ),
            (one.clone(), json!({"spec": spec}), 2),
            (one.clone(), json!({"spec": spec}), 2),
            (one.clone(), json!({"metadata": {"generation": 1}}), 2),
            (format!("{one}/scale"), json!({"spec": {"replicas": 1}}), 3),
        ];
        for (path, body, wanted) in changes {
            let answer = client.call("PATCH", &path, MERGE_PATCH, Some(&body));
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(generation(read(&client, &one)), wanted, "{path} {body}");
        }
    }
    server.stop();
}
