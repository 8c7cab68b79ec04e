//! R-DEF: defaults, and R-LAB on those of labels.

use super::world::{
    DEFINITIONS, DEPLOYMENTS, PODS, SERVICES, WIDGETS, define, deployment, everything, invalid,
    made, read, widget, widget_definition, with_widgets,
};
use super::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, patch, pod, put, server};
use crate::world::{Options, Server, without_accounts};
use keelson_admission::Chain;
use serde_json::{Value, json};

const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";

/// Checks that all values of the first object are in the second: maps may have more members.
fn contained(sent: &Value, stored: &Value, at: &str) {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => {
            for (name, value) in sent {
                contained(value, stored.get(name).unwrap_or(&Value::Null), &format!("{at}.{name}"));
            }
        }
        (Value::Array(sent), Value::Array(stored)) if sent.len() == stored.len() => {
            for (index, (value, other)) in sent.iter().zip(stored).enumerate() {
                contained(value, other, &format!("{at}[{index}]"));
            }
        }
        // Empty lists and texts that may be omitted are.
        (Value::Array(sent), Value::Null) if sent.is_empty() => {}
        (Value::String(sent), Value::Null) if sent.is_empty() => {}
        _ => assert_eq!(sent, stored, "{at}"),
    }
}

/// Every kind: what a client sends is stored as it is.
///
/// Proves: R-DEF-13, R-DEF-14, R-DEF-16.
#[test]
fn defaulting_changes_no_value_that_was_given() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything() {
        let stored = made(&client, &walked.all(), &walked.sample);
        contained(&walked.sample, &stored, &walked.kind);
        assert_eq!(client.delete(&walked.one()).status, 200);
    }
    // Values other than the defaults, and one that is not acceptable.
    let mut obj = deployment("d");
    let own = json!({"replicas": 0, "revisionHistoryLimit": 0, "progressDeadlineSeconds": 7,
        "strategy": {"type": "Recreate"}});
    for (name, value) in own.as_object().expect("a map") {
        obj["spec"][name] = value.clone();
    }
    obj["spec"]["template"]["spec"]["dnsPolicy"] = json!("Default");
    obj["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Never");
    contained(&obj, &made(&client, DEPLOYMENTS, &obj), "Deployment");
    let mut wrong = deployment("wrong");
    wrong["spec"]["strategy"] = json!({"type": "recreate"});
    invalid(&client.post(DEPLOYMENTS, &wrong), &["spec.strategy"]);
    server.stop();
}

/// Proves: R-DEF-01, R-DEF-04, R-DEF-08.
#[test]
fn creates_updates_patches_and_applies_set_defaults() {
    let server = with_widgets();
    let client = server.client();
    let one = format!("{DEPLOYMENTS}/d");
    let limit = |obj: &Value| obj["spec"]["revisionHistoryLimit"].clone();
    assert_eq!(limit(&made(&client, DEPLOYMENTS, &deployment("d"))), 10);
    assert_eq!(limit(&read(&client, &one)), 10);
    assert_eq!(limit(&put(&client, &one, &deployment("d"))), 10);
    let none = json!({"spec": {"revisionHistoryLimit": null}});
    assert_eq!(limit(&patch(&client, &one, MERGE_PATCH, &none)), 10);
    let removed = json!([{"op": "remove", "path": "/spec/revisionHistoryLimit"}]);
    assert_eq!(limit(&patch(&client, &one, JSON_PATCH, &removed)), 10);
    let path = format!("{DEPLOYMENTS}/applied?fieldManager=m");
    let applied = client.call("PATCH", &path, APPLY_PATCH, Some(&deployment("applied")));
    assert_eq!((applied.status, limit(&applied.body)), (201, json!(10)));
    let container = &applied.body["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(applied.body["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    // Custom resources likewise.
    let one = format!("{WIDGETS}/w");
    assert_eq!(made(&client, WIDGETS, &widget("w"))["spec"]["size"], 3);
    let none = json!({"spec": {"size": null}});
    assert_eq!(patch(&client, &one, MERGE_PATCH, &none)["spec"]["size"], 3);
    let mut applied = widget("w");
    applied["spec"]["note"] = json!("n");
    let done = patch(&client, &format!("{one}?fieldManager=m&force=true"), APPLY_PATCH, &applied);
    assert_eq!(done["spec"], json!({"color": "Red", "note": "n", "size": 3}));
    server.stop();
}

/// Proves: R-DEF-05, R-CRD-04.
#[test]
fn a_newer_default_shows_in_older_objects() {
    let server = with_widgets();
    let client = server.client();
    let stored = made(&client, WIDGETS, &widget("old"));
    assert_eq!(stored["spec"].get("note"), None);
    let mut versions = widget_definition()["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["note"]["default"] =
        json!("new");
    let path = format!("{DEFINITIONS}/widgets.example.com");
    patch(&client, &path, MERGE_PATCH, &json!({"spec": {"versions": versions}}));
    let one = format!("{WIDGETS}/old");
    let seen = client.poll(&one, |answer| answer.body["spec"]["note"] == "new").body;
    assert_eq!(seen["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    assert_eq!(read(&client, WIDGETS)["items"][0]["spec"]["note"], "new");
    server.stop();
}

/// Proves: R-DEF-06, R-DEF-07, R-DEF-17.
#[test]
fn a_default_is_a_constant_or_follows_from_its_object_once() {
    let server = server();
    let client = server.client();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let first = made(&client, SERVICES, &service);
    // A constant, derived from the port, and allocated.
    assert_eq!(first["spec"]["sessionAffinity"], "None");
    assert_eq!(first["spec"]["ports"][0]["targetPort"], 80);
    assert!(first["spec"]["clusterIP"].is_string(), "{first}");
    let change = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]);
    let port =
        patch(&client, &format!("{SERVICES}/s"), JSON_PATCH, &change)["spec"]["ports"][0].clone();
    assert_eq!((&port["port"], &port["targetPort"]), (&json!(81), &json!(80)));
    let mut pulled = pod("p");
    pulled["spec"]["containers"][0]["image"] = json!("i:v1");
    assert_eq!(
        made(&client, PODS, &pulled)["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
    let latest = json!({"spec": {"containers": [{"name": "c", "image": "i:latest"}]}});
    let done = client.call("PATCH", &format!("{PODS}/p"), super::STRATEGIC_PATCH, Some(&latest));
    let container = &done.body["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!("i:latest"), &json!("IfNotPresent"))
    );
    // The only member of a union stays unset.
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let rule = json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": "a.example.com"}]}});
    let stored = made(&client, ingresses, &rule);
    assert_eq!(stored["spec"]["rules"], json!([{"host": "a.example.com"}]));
    server.stop();
}

/// Admission sees defaults, and its own depend on other objects.
///
/// Proves: R-DEF-03, R-DEF-09, R-DEF-10, R-DEF-15.
#[test]
fn admission_comes_after_defaults_and_adds_its_own() {
    let server = server();
    let client = server.client();
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["deployments"]}]},
        "validations": [{"expression": "object.spec.revisionHistoryLimit == 10"}]}});
    made(&client, &format!("{group}/validatingadmissionpolicies"), &policy);
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    made(&client, &format!("{group}/validatingadmissionpolicybindings"), &binding);
    let mut other = deployment("other");
    other["spec"]["revisionHistoryLimit"] = json!(9);
    assert_eq!(client.post(DEPLOYMENTS, &other).status, 422);
    made(&client, DEPLOYMENTS, &deployment("d"));
    let class = json!({"metadata": {"name": "fast", "annotations": {
        "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "example.com/p"});
    made(&client, "/apis/storage.k8s.io/v1/storageclasses", &class);
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, more: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let class_of = |obj: Value| obj["spec"]["storageClassName"].clone();
    assert_eq!(class_of(made(&client, claims, &claim("a", json!({})))), "fast");
    assert_eq!(
        class_of(made(&client, claims, &claim("b", json!({"storageClassName": "own"})))),
        "own"
    );
    assert_eq!(class_of(made(&client, claims, &claim("c", json!({"storageClassName": ""})))), "");
    server.stop();
    let off = ["ServiceAccount", "DefaultStorageClass", "Priority", "DefaultTolerationSeconds"];
    let admission = Chain::new(&[], &off.map(str::to_owned)).expect("known plug-ins");
    let server = Server::start_plain(Options::default().with(|options| options.chain = admission));
    let client = server.client();
    made(&client, "/apis/storage.k8s.io/v1/storageclasses", &class);
    assert_eq!(class_of(made(&client, claims, &claim("a", json!({})))), Value::Null);
    let bare = made(&client, PODS, &pod("p"))["spec"].clone();
    assert_eq!((bare.get("priority"), bare.get("tolerations")), (None, None), "{bare}");
    server.stop();
}

/// Proves: R-LAB-01, R-LAB-02.
#[test]
fn a_controller_takes_the_labels_of_its_template_unless_it_has_own() {
    let server = server();
    let client = server.client();
    let of = |name: &str, labels: Value, selector: Value| {
        let template =
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": pod("x")["spec"]});
        let mut spec = json!({"template": template});
        if !selector.is_null() {
            spec["selector"] = selector;
        }
        json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
    };
    let first = made(&client, CONTROLLERS, &of("first", Value::Null, Value::Null));
    let labels = json!({"a": "1", "b": "2"});
    assert_eq!((&first["metadata"]["labels"], &first["spec"]["selector"]), (&labels, &labels));
    let part = made(&client, CONTROLLERS, &of("part", json!({"own": "x"}), json!({"a": "1"})));
    assert_eq!(
        (&part["metadata"]["labels"], &part["spec"]["selector"]),
        (&json!({"own": "x"}), &json!({"a": "1"}))
    );
    let other = of("other", Value::Null, json!({"a": "3"}));
    invalid(&client.post(CONTROLLERS, &other), &["spec.template.metadata.labels"]);
    server.stop();
}

/// Proves: R-LAB-04, R-LAB-07.
#[test]
fn another_version_keeps_labels_and_annotations() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let first = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let second = first.replace("/v1/", "/v2/");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let notes = json!({"plain": "a", "example.com/key-name": "{\"b\": [1]}\n", "autoscaling.example.com/x": ""});
    let scaler = json!({"metadata": {"name": "h", "annotations": notes, "labels": {"example.com/l": "v", "l": ""}},
        "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
    let stored = made(&client, first, &scaler);
    let other = read(&client, &format!("{second}/h"));
    for member in ["annotations", "labels"] {
        assert_eq!(stored["metadata"][member], scaler["metadata"][member]);
        assert_eq!(other["metadata"][member], scaler["metadata"][member]);
    }
    // The same with definitions of several versions.
    let mut definition = widget_definition();
    let mut newer = definition["spec"]["versions"][0].clone();
    newer["name"] = json!("v2");
    newer["storage"] = json!(false);
    definition["spec"]["versions"] = json!([definition["spec"]["versions"][0], newer]);
    define(&client, &definition);
    let mut own = widget("w");
    own["metadata"]["annotations"] = notes.clone();
    made(&client, WIDGETS, &own);
    let other = read(&client, &format!("{}/w", WIDGETS.replace("/v1/", "/v2/")));
    assert_eq!(other["metadata"]["annotations"], notes);
    let mut wrong = widget("x");
    wrong["metadata"]["annotations"] = json!({"Not a domain/x": ""});
    invalid(&client.post(WIDGETS, &wrong), &["metadata.annotations"]);
    server.stop();
}
