//! R-VAL, and what R-TYPE, R-REF and R-NAME demand of values.

use super::world::{
    DEPLOYMENTS, PODS, SERVICES, WIDGETS, deployment, invalid, made, read, widget, with_widgets,
};
use super::{MAPS, map, pod, server};
use crate::world::Client;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";

/// Returns a pod with members added to its spec.
fn pod_with(members: Value) -> Value {
    let mut obj = pod("p");
    for (name, value) in members.as_object().expect("members") {
        obj["spec"][name] = value.clone();
    }
    obj
}

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
}

fn ingress(spec: Value) -> Value {
    json!({"metadata": {"name": "i"}, "spec": spec})
}

/// Checks that an object is refused as invalid, with exactly these causes, as `field: message`, and
/// is not stored.
#[track_caller]
fn check(client: &Client, path: &str, obj: &Value, wanted: &[&str]) {
    let answer = client.post(path, obj);
    let head = (answer.status, &answer.body["status"], &answer.body["reason"]);
    assert_eq!(head, (422, &json!("Failure"), &json!("Invalid")), "{answer:?}");
    let causes = answer.body["details"]["causes"].as_array().expect("causes").iter().map(|cause| {
        let text = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("field"), text("message"))
    });
    assert_eq!(causes.collect::<Vec<_>>(), wanted);
    let name = obj["metadata"]["name"].as_str().unwrap_or_default();
    assert_ne!(client.get(&format!("{path}/{name}")).status, 200, "{path}/{name}");
}

/// The texts are those of a kube-apiserver 1.36, which clients compare.
///
/// Proves: R-VAL-01, R-VAL-02, R-VAL-03, R-VAL-04, R-VAL-05, R-VAL-06, R-VAL-07, R-VAL-08,
/// R-VAL-09, R-VAL-10, R-TYPE-03, R-TYPE-07, R-TYPE-09, R-TYPE-11, R-TYPE-12, R-TYPE-14.
#[test]
fn invalid_values_are_refused_in_the_words_of_the_conventions() {
    let server = server();
    let client = server.client();
    let mut below = deployment("d");
    below["spec"]["replicas"] = json!(-1);
    let text = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    check(&client, DEPLOYMENTS, &below, &[text]);
    let mut other = deployment("d");
    other["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
    let text = "spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does not match template `labels`";
    check(&client, DEPLOYMENTS, &other, &[text]);
    let text = |port: i64| {
        [
            format!(
                "spec.ports[0].port: Invalid value: {port}: must be between 1 and 65535, inclusive"
            ),
            format!(
                "spec.ports[0].targetPort: Invalid value: {port}: must be between 1 and 65535, inclusive"
            ),
        ]
    };
    for port in [65536, -1] {
        let [first, second] = text(port);
        check(&client, SERVICES, &service(json!({"ports": [{"port": port}]})), &[&first, &second]);
    }
    let two = json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]);
    let text = "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type";
    check(&client, PODS, &pod_with(json!({"volumes": two})), &[text]);
    let up = json!([{"name": "v", "hostPath": {"path": "/../x"}}]);
    let text = "spec.volumes[0].hostPath.path: Invalid value: \"/../x\": must not contain '..'";
    check(&client, PODS, &pod_with(json!({"volumes": up})), &[text]);
    let text =
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive";
    check(&client, PODS, &pod_with(json!({"activeDeadlineSeconds": 0})), &[text]);
    let text = "spec.dnsPolicy: Unsupported value: \"clusterFirst\": supported values: \
                \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"";
    check(&client, PODS, &pod_with(json!({"dnsPolicy": "clusterFirst"})), &[text]);
    let text = "spec.sessionAffinity: Unsupported value: \"clientip\": supported values: \"ClientIP\", \"None\"";
    let affine = json!({"ports": [{"port": 80}], "sessionAffinity": "clientip"});
    check(&client, SERVICES, &service(affine), &[text]);
    let zero = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}});
    let text = "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0";
    check(&client, LEASES, &zero, &[text]);
    // A union needs its only member.
    let probe = json!([{"name": "c", "image": "i", "livenessProbe": {"periodSeconds": 1}}]);
    let text = "spec.containers[0].livenessProbe: Required value: must specify a handler type";
    check(&client, PODS, &pod_with(json!({"containers": probe})), &[text]);
    let text = "spec.defaultBackend: Invalid value: \"\": resource or service backend is required";
    check(&client, INGRESSES, &ingress(json!({"defaultBackend": {}})), &[text]);
    server.stop();
}

/// Proves: R-TYPE-01, R-TYPE-02, R-TYPE-03, R-TYPE-04, R-TYPE-05, R-TYPE-06.
#[test]
fn numbers_and_quantities_have_their_width() {
    let server = with_widgets();
    let client = server.client();
    let refused = |path: &str, obj: &Value, words: &str| {
        let answer = client.post(path, obj);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(answer.status == 400 && message.contains(words), "{answer:?}");
    };
    for (value, words) in [
        (
            "2147483648",
            "cannot unmarshal number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        ("1.5", "cannot unmarshal number 1.5 into"),
        ("\"2\"", "cannot unmarshal string into"),
    ] {
        let mut obj = deployment("d");
        obj["spec"]["replicas"] = serde_json::from_str(value).expect("JSON");
        refused(DEPLOYMENTS, &obj, words);
    }
    let lease = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": "15s"}});
    refused(
        LEASES,
        &lease,
        "cannot unmarshal string into Go struct field LeaseSpec.spec.leaseDurationSeconds",
    );
    let limits = |cpu: Value| {
        pod_with(
            json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}]}),
        )
    };
    refused(PODS, &limits(json!("1.5x")), "quantities must match the regular expression");
    // A quantity is text, for numbers of any size.
    let large = made(&client, PODS, &limits(json!("123456789012345678")));
    assert_eq!(large["spec"]["containers"][0]["resources"]["limits"]["cpu"], "123456789012345678");
    // A kube-apiserver 1.36 keeps integers of 64 bits exactly and has no bound at 53 bits.
    let mut exact = pod_with(json!({"terminationGracePeriodSeconds": 9_007_199_254_740_993_i64}));
    exact["metadata"]["name"] = json!("exact");
    assert_eq!(
        made(&client, PODS, &exact)["spec"]["terminationGracePeriodSeconds"],
        9_007_199_254_740_993_i64
    );
    let mut wide = pod("wide");
    wide["spec"]["terminationGracePeriodSeconds"] =
        serde_json::from_str("9223372036854775808").expect("JSON");
    refused(PODS, &wide, "of type int64");
    let mut own = widget("w");
    own["spec"]["size"] = json!(10);
    invalid(&client.post(WIDGETS, &own), &["spec.size"]);
    // The path of the scale must not lead to a negative number, either.
    own["spec"]["size"] = json!(-1);
    invalid(&client.post(WIDGETS, &own), &["spec.size", ".spec.size"]);
    server.stop();
}

/// Proves: R-NAME-01, R-NAME-04, R-REF-04.
#[test]
fn names_never_have_a_meaning_in_paths() {
    let server = server();
    let client = server.client();
    for name in ["..", ".", "../x", "a/b", "a%2Fb", "a%"] {
        invalid(&client.post(MAPS, &map(name, "1")), &["metadata.name"]);
    }
    // Kinds whose names are free otherwise.
    for name in ["..", ".", "a/b", "a%b"] {
        invalid(&client.post(ROLES, &json!({"metadata": {"name": name}})), &["metadata.name"]);
    }
    made(&client, ROLES, &json!({"metadata": {"name": "system:Free_name"}}));
    for (name, code) in [("..", 400), ("%2e%2e", 400), ("a%2Fb", 404), ("../pods", 404)] {
        assert_eq!(client.get(&format!("{MAPS}/{name}")).status, code, "{name}");
    }
    for name in ["Upper", "a.b", "a_b"] {
        invalid(
            &client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})),
            &["metadata.name"],
        );
    }
    // Names in references become parts of paths of controllers and kubelets.
    let key = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "../x", "key": "k"}}}]);
    let containers = json!([{"name": "c", "image": "i", "env": key}]);
    let field = "spec.containers[0].env[0].valueFrom.secretKeyRef.name";
    invalid(&client.post(PODS, &pod_with(json!({"containers": containers}))), &[field]);
    invalid(&client.post(PODS, &pod_with(json!({"nodeName": "../x"}))), &["spec.nodeName"]);
    let backend = json!({"defaultBackend": {"service": {"name": "../x", "port": {"number": 80}}}});
    invalid(&client.post(INGRESSES, &ingress(backend)), &["spec.defaultBackend.service.name"]);
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "../x", "name": "../y"});
    let scaler =
        json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
    invalid(
        &client.post(scalers, &scaler),
        &["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"],
    );
    server.stop();
}

/// Proves: R-NAME-02.
#[test]
fn system_namespaces_begin_with_kube() {
    let server = server();
    let client = server.client();
    for name in ["kube-system", "kube-public", "kube-node-lease"] {
        client.poll(&format!("/api/v1/namespaces/{name}"), |answer| answer.status == 200);
    }
    let spaces = read(&client, "/api/v1/namespaces");
    for name in super::names(&spaces) {
        assert!(name == "default" || name.starts_with("kube-"), "{name}");
    }
    // The server needs them, so that the oldest cannot be deleted.
    assert_eq!(client.delete("/api/v1/namespaces/kube-system").status, 403);
    server.stop();
}

/// Proves: R-REF-01, R-REF-03, R-REF-06, R-REF-07, R-REF-10.
#[test]
fn references_stay_in_their_namespace_and_may_point_to_nothing() {
    let server = server();
    let client = server.client();
    // No field takes another namespace: an unknown field is dropped, and refused if asked so.
    let mut owned = map("owned", "1");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "none", "uid": "u", "namespace": "other"});
    owned["metadata"]["ownerReferences"] = json!([owner]);
    let strict = client.post(&format!("{MAPS}?fieldValidation=Strict"), &owned);
    let message = strict.body["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("unknown field \"metadata.ownerReferences[0].namespace\""),
        "{strict:?}"
    );
    let stored = made(&client, MAPS, &owned);
    assert_eq!(stored["metadata"]["ownerReferences"][0].get("namespace"), None);
    // None of these objects exists.
    let spec = json!({
        "priorityClassName": "system-node-critical", "imagePullSecrets": [{"name": "none"}],
        "volumes": [{"name": "v", "secret": {"secretName": "none"}}, {"name": "w", "configMap": {"name": "none"}}],
        "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "none"}}]}]
    });
    made(&client, PODS, &pod_with(spec));
    let backend = json!({"ingressClassName": "none", "defaultBackend": {"service": {"name": "none", "port": {"number": 80}}}});
    made(&client, INGRESSES, &ingress(backend));
    // A field reference has a version and the path of one value.
    let from = |field: Value| {
        pod_with(
            json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": {"fieldRef": field}}]}]}),
        )
    };
    let field = "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath";
    for wrong in [
        json!({"fieldPath": "metadata.none"}),
        json!({"fieldPath": "metadata"}),
        json!({"apiVersion": "v2", "fieldPath": "metadata.name"}),
        json!({"fieldPath": ".metadata.name"}),
    ] {
        invalid(&client.post(PODS, &from(wrong)), &[field]);
    }
    let mut right = from(json!({"fieldPath": "metadata.labels['a']"}));
    right["metadata"]["name"] = json!("right");
    let stored = made(&client, PODS, &right);
    let reference = &stored["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"];
    assert_eq!(*reference, json!({"apiVersion": "v1", "fieldPath": "metadata.labels['a']"}));
    // An event is about any object: in its own namespace, or of the cluster.
    let events = "/api/v1/namespaces/default/events";
    let event =
        |name: &str, about: Value| json!({"metadata": {"name": name}, "involvedObject": about});
    made(&client, events, &event("a", json!({"kind": "Node", "name": "n"})));
    made(
        &client,
        events,
        &event(
            "b",
            json!({"apiVersion": "example.com/v1", "kind": "X", "name": "x", "namespace": "default"}),
        ),
    );
    let other = json!({"kind": "Pod", "name": "p", "namespace": "other"});
    invalid(&client.post(events, &event("c", other)), &["involvedObject.namespace"]);
    server.stop();
}
