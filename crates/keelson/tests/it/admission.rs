//! Admission with the controllers that it needs, and the flags that enable and disable plug-ins.

use crate::http::{Client, POLL_TIMEOUT, Response, Server, without_controllers};
use keelson::{AdmissionChain, Keelson};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Instant;

const PODS: &str = "/api/v1/namespaces/a/pods";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn namespace(client: &Client, name: &str, labels: &Value) {
    let body = json!({"metadata": {"name": name, "labels": labels}});
    assert_eq!(client.post("/api/v1/namespaces", &body).status, 201);
}

/// Sends a request until its response satisfies a condition.
fn wait_for(ask: impl Fn() -> Response, is: impl Fn(&Response) -> bool) -> Response {
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let answer = ask();
        if is(&answer) || Instant::now() > deadline {
            return answer;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_pod_in_a_new_namespace_waits_for_its_service_account() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    namespace(&client, "a", &json!({}));
    let made = client.post(PODS, &pod("p"));
    assert_eq!((made.status, &made.body["spec"]["serviceAccount"]), (201, &json!("default")));
    let mount = &made.body["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(mount["name"], made.body["spec"]["volumes"][0]["name"]);
    let owned = made.body["metadata"]["managedFields"][0]["fieldsV1"].to_string();
    assert!(!owned.contains("volume") && !owned.contains("toleration"), "{owned}");
    server.stop();
}

#[test]
fn a_deleted_default_service_account_is_recreated() {
    const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    let first = wait_for(|| client.get(ACCOUNT), |answer| answer.status == 200);
    let uid = first.body["metadata"]["uid"].clone();
    assert_eq!(client.delete(ACCOUNT).status, 200);
    let other = |answer: &Response| answer.status == 200 && answer.body["metadata"]["uid"] != uid;
    let second = wait_for(|| client.get(ACCOUNT), other);
    assert!(other(&second), "{second:?}");
    server.stop();
}

#[test]
fn quota_usage_is_counted_charged_and_released() {
    const QUOTA: &str = "/api/v1/namespaces/a/resourcequotas/q";
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    namespace(&client, "a", &json!({}));
    assert_eq!(client.post(PODS, &pod("before")).status, 201);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}});
    assert_eq!(client.post("/api/v1/namespaces/a/resourcequotas", &quota).status, 201);
    let used = |wanted: &'static str| {
        move |answer: &Response| answer.body["status"]["used"]["pods"] == wanted
    };
    let counted = wait_for(|| client.get(QUOTA), used("1"));
    assert!(used("1")(&counted), "{counted:?}");
    let dry = client.post(&format!("{PODS}?dryRun=All"), &pod("p"));
    assert_eq!((dry.status, used("1")(&client.get(QUOTA))), (201, true));
    assert_eq!(client.post(PODS, &pod("p")).status, 201);
    assert!(used("2")(&client.get(QUOTA)));
    let refused = client.post(PODS, &pod("more"));
    assert_eq!(
        (refused.status, refused.body["message"].as_str()),
        (
            403,
            Some(
                "pods \"more\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, \
                 limited: pods=2"
            )
        )
    );
    let now = json!({"gracePeriodSeconds": 0});
    client.call("DELETE", &format!("{PODS}/p"), "application/json", Some(&now));
    let freed = wait_for(|| client.get(QUOTA), used("1"));
    assert!(used("1")(&freed), "{freed:?}");
    assert_eq!(client.post(PODS, &pod("more")).status, 201);
    server.stop();
}

#[test]
fn pod_security_labels_of_a_namespace_warn_and_reject() {
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/warn": "restricted"
    });
    namespace(&client, "a", &labels);
    let mut body = pod("p");
    let warned = client.post(PODS, &body);
    let text = warned.header("warning").unwrap_or_default().to_owned();
    assert_eq!((warned.status, text.contains("would violate PodSecurity")), (201, true), "{text}");
    body["spec"]["hostNetwork"] = json!(true);
    let refused = client.post(PODS, &body);
    assert_eq!(refused.status, 403, "{refused:?}");
    let bad = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "safe"}}});
    let patched =
        client.call("PATCH", "/api/v1/namespaces/a", "application/merge-patch+json", Some(&bad));
    assert_eq!(
        (patched.status, patched.body["details"]["causes"][0]["field"].as_str()),
        (422, Some("metadata.labels[pod-security.kubernetes.io/enforce]"))
    );
    server.stop();
}

/// Proves: R-DEF-10.
#[test]
fn a_disabled_plug_in_does_nothing() {
    let off = ["ServiceAccount".to_owned(), "Priority".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("known plug-ins");
    let builder =
        Keelson::builder().no_controllers().with(|builder| builder.admission.chain = admission);
    let server = Server::start_plain(builder);
    let made = server.client().post("/api/v1/namespaces/default/pods", &pod("p"));
    let spec = &made.body["spec"];
    assert_eq!(
        (made.status, &spec["priority"], &spec["volumes"]),
        (201, &json!(null), &json!(null))
    );
    assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(2));
    server.stop();
}

pub fn check_refused(flags: &[&str], words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["serve", "--durability=memory", "--secure-port=0", "--data-dir=/dev/null/data"])
        .args(flags)
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    for word in words {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn an_unknown_plug_in_is_an_error_that_names_the_flag() {
    let unknown = "plugin \"Nope\" is unknown";
    for flag in ["enable-admission-plugins", "disable-admission-plugins"] {
        let argument = format!("--{flag}=Priority,Nope");
        check_refused(&[&argument], &[flag, unknown]);
    }
    check_refused(
        &["--enable-admission-plugins=Priority", "--disable-admission-plugins=Priority"],
        &["[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"],
    );
    let images = ["ImagePolicyWebhook needs an entry in --admission-control-config-file"];
    check_refused(&["--enable-admission-plugins=ImagePolicyWebhook"], &images);
}

/// A pod that gets a deadline comes into the scope of another quota, which is charged by this write
/// (kube-apiserver 1.36: `podEvaluator.Handles`).
#[test]
fn a_pod_with_a_new_deadline_is_charged_to_the_quota_of_its_scope() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    namespace(&client, "a", &json!({}));
    for scope in ["Terminating", "NotTerminating"] {
        let name = scope.to_lowercase();
        let quota = json!({"metadata": {"name": name}, "spec": {
            "hard": {"pods": "1"}, "scopes": [scope]
        }});
        assert_eq!(client.post("/api/v1/namespaces/a/resourcequotas", &quota).status, 201);
        client.poll(&format!("/api/v1/namespaces/a/resourcequotas/{name}"), |answer| {
            answer.body["status"]["used"]["pods"] == "0"
        });
    }
    let pod = |name: &str, deadline: Value| {
        json!({"metadata": {"name": name}, "spec": {
            "activeDeadlineSeconds": deadline, "containers": [{"name": "c", "image": "i"}]
        }})
    };
    assert_eq!(client.post(PODS, &pod("first", json!(null))).status, 201);
    let deadline = json!({"spec": {"activeDeadlineSeconds": 3600}});
    let merge = "application/merge-patch+json";
    let changed = client.call("PATCH", &format!("{PODS}/first"), merge, Some(&deadline));
    assert_eq!(changed.status, 200, "{changed:?}");
    let refused = client.post(PODS, &pod("second", json!(3600)));
    let message = "pods \"second\" is forbidden: exceeded quota: terminating, requested: pods=1, \
                   used: pods=1, limited: pods=1";
    assert_eq!((refused.status, &refused.body["message"]), (403, &json!(message)));
    // The place in the other one is free when it is counted again.
    client.poll("/api/v1/namespaces/a/resourcequotas/notterminating", |answer| {
        answer.body["status"]["used"]["pods"] == "0"
    });
    let third = client.post(PODS, &pod("third", json!(null)));
    assert_eq!(third.status, 201);
    let refused = client.call("PATCH", &format!("{PODS}/third"), merge, Some(&deadline));
    let message = message.replace("second", "third");
    assert_eq!((refused.status, &refused.body["message"]), (403, &json!(message)));
    server.stop();
}

#[test]
fn an_uncountable_quota_does_not_stop_other_quotas() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    namespace(&client, "a", &json!({}));
    namespace(&client, "b", &json!({}));
    // With its counts it would exceed the maximum size of an object.
    let names = (0..16_000).map(|n| (format!("count/n{n:05}.example.com"), json!("1")));
    let hard: serde_json::Map<_, _> = names.collect();
    let quota = json!({"metadata": {"name": "huge"}, "spec": {"hard": hard}});
    let made = client.post("/api/v1/namespaces/a/resourcequotas", &quota);
    assert_eq!(made.status, 201, "{:?}", made.body["message"]);
    let hard = json!({"count/secrets": "2"});
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": hard}});
    assert_eq!(client.post("/api/v1/namespaces/b/resourcequotas", &quota).status, 201);
    let small = || client.get("/api/v1/namespaces/b/resourcequotas/small");
    let used = |answer: &Response| answer.body["status"]["used"]["count/secrets"] == "0";
    let counted = wait_for(small, used);
    assert!(used(&counted), "{counted:?}");
    let huge = client.get("/api/v1/namespaces/a/resourcequotas/huge");
    assert_eq!(huge.body["status"], json!({}), "it was counted: it tests nothing");
    server.stop();
}

#[test]
fn a_quota_counts_custom_objects() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    namespace(&client, "a", &json!({}));
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "versions": [version],
        "names": {"plural": "toys", "kind": "Toy"}});
    let definition = json!({"metadata": {"name": "toys.example.com"}, "spec": spec});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(client.post(definitions, &definition).status, 201);
    let quota =
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/toys.example.com": "1"}}});
    assert_eq!(client.post("/api/v1/namespaces/a/resourcequotas", &quota).status, 201);
    let counts = |want: &str| {
        client.poll("/api/v1/namespaces/a/resourcequotas/q", |answer| {
            answer.body["status"]["used"]["count/toys.example.com"] == want
        });
    };
    counts("0");
    let toys = "/apis/example.com/v1/namespaces/a/toys";
    let toy = |name: &str| {
        let toy =
            json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}});
        client.post(toys, &toy)
    };
    client.poll(toys, |answer| answer.status == 200);
    assert_eq!(toy("a").status, 201);
    let refused = toy("b");
    assert_eq!(refused.status, 403);
    let message = "toys.example.com \"b\" is forbidden: exceeded quota: q, requested: \
                   count/toys.example.com=1, used: count/toys.example.com=1, limited: \
                   count/toys.example.com=1";
    assert_eq!(refused.body["message"], message);
    assert_eq!(client.delete(&format!("{toys}/a")).status, 200);
    counts("0");
    server.stop();
}
