//! What the documents demand of controllers, of those of a simulated cluster: R-SPEC-05, R-EVT,
//! R-LAB and others.

use crate::http::{Client, Server};
use keelson::{AdmissionChain, Keelson, Simulation};
use serde_json::{Value, json};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Creates an object. Returns the stored one.
#[track_caller]
fn made(client: &Client, path: &str, obj: &Value) -> Value {
    let answer = client.post(path, obj);
    assert_eq!(answer.status, 201, "{path} {}: {obj}", answer.body);
    answer.body
}

/// Gets a path that exists.
#[track_caller]
fn read(client: &Client, path: &str) -> Value {
    let answer = client.get(path);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

fn patch(client: &Client, path: &str, media_type: &str, patch: &Value) -> Value {
    let done = client.call("PATCH", path, media_type, Some(patch));
    assert_eq!(done.status, 200, "{patch}: {done:?}");
    done.body
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}
    })
}

/// Returns a Deployment whose pods have the label `app: NAME`.
fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}
            }
        }
    })
}

fn simulated() -> Server {
    let off = ["ServiceAccount".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    let builder = Keelson::builder().with(|builder| builder.admission.chain = admission);
    Server::start_plain(builder.simulate(Simulation { pod_events: true, ..Simulation::default() }))
}

fn condition<'o>(obj: &'o Value, kind: &str) -> Option<&'o Value> {
    obj["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// A Deployment is scaled to 5 and at once to 3: it becomes 3, and its status says what it is
/// about.
///
/// Proves: R-SPEC-05, R-SPEC-12, R-DEF-12, R-COND-10, R-LAB-03.
#[test]
fn controllers_work_towards_the_latest_spec() {
    let server = simulated();
    let client = server.client();
    // Before the scheduler has seen it, a pod has no node and is valid.
    assert_eq!(made(&client, PODS, &pod("alone"))["spec"].get("nodeName"), None);
    client.poll(&format!("{PODS}/alone"), |answer| {
        answer.body["spec"]["nodeName"] == "keelson-node-0"
    });
    let one = format!("{DEPLOYMENTS}/d");
    made(&client, DEPLOYMENTS, &deployment("d"));
    let first = client.poll(&one, |answer| answer.body["status"]["availableReplicas"] == 2).body;
    for kind in ["Available", "Progressing"] {
        assert_eq!(condition(&first, kind).expect("the condition")["status"], "True", "{first}");
    }
    patch(&client, &one, MERGE_PATCH, &json!({"spec": {"replicas": 5}}));
    let last = patch(&client, &one, MERGE_PATCH, &json!({"spec": {"replicas": 3}}));
    let done = client
        .poll(&one, |answer| {
            let status = &answer.body["status"];
            let counts = status["replicas"] == 3 && status["availableReplicas"] == 3;
            counts && status["observedGeneration"] == last["metadata"]["generation"]
        })
        .body;
    assert_eq!(condition(&done, "Available").expect("the condition")["status"], "True");
    let pods = format!("{PODS}?labelSelector=app%3Dd");
    client.poll(&pods, |answer| answer.body["items"].as_array().map(Vec::len) == Some(3));
    // Pods of one template are told apart by a label with a known key, that of a Job by a prefixed
    // one.
    let labels = &read(&client, &pods)["items"][0]["metadata"]["labels"];
    assert!(labels["pod-template-hash"].is_string(), "{labels}");
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"metadata": {"labels": {"own": "1"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job =
        made(&client, jobs, &json!({"metadata": {"name": "j"}, "spec": {"template": template}}));
    let unique = &job["spec"]["selector"]["matchLabels"];
    assert_eq!(unique["batch.kubernetes.io/controller-uid"], job["metadata"]["uid"]);
    let manual = json!({"manualSelector": true, "selector": {"matchLabels": {"own": "1"}}, "template": template});
    let job = made(&client, jobs, &json!({"metadata": {"name": "k"}, "spec": manual}));
    assert_eq!(job["spec"]["selector"]["matchLabels"], json!({"own": "1"}));
    server.stop();
}

/// Returns the events about an object, once there is one of this reason.
fn events_of(client: &Client, name: &str, reason: &str) -> Vec<Value> {
    let path = format!("{EVENTS}?fieldSelector=involvedObject.name%3D{name}");
    let found = client.poll(&path, |answer| {
        answer.body["items"]
            .as_array()
            .is_some_and(|all| all.iter().any(|event| event["reason"] == reason))
    });
    found.body["items"].as_array().cloned().unwrap_or_default()
}

/// A pod whose Secret and ConfigMap are missing, and one that uses a Secret.
///
/// Proves: R-EVT-01, R-EVT-02, R-EVT-03, R-REF-03, R-REF-09.
#[test]
fn events_tell_what_is_missing_and_hold_no_secrets() {
    let server = simulated();
    let client = server.client();
    let hidden = "aGlkZGVuLXZhbHVlLTQ3MTE=";
    let secret = json!({"metadata": {"name": "s"}, "data": {"password": hidden}});
    made(&client, "/api/v1/namespaces/default/secrets", &secret);
    let using = |name: &str, secret: &str| {
        let mut obj = pod(name);
        obj["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": secret}}]);
        obj["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": secret}}]);
        made(&client, PODS, &obj);
    };
    using("good", "s");
    using("bad", "none");
    client.poll(&format!("{PODS}/good"), |answer| answer.body["status"]["phase"] == "Running");
    let events = events_of(&client, "bad", "FailedMount");
    let failed = events.iter().find(|event| event["reason"] == "FailedMount").expect("the event");
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(message.contains("secret \"none\" not found"), "{failed}");
    assert_eq!(failed["type"], "Warning");
    assert_eq!(client.get(&format!("{PODS}/bad")).body["status"]["phase"], "Pending");
    let all = read(&client, EVENTS);
    for event in all["items"].as_array().expect("events") {
        let reason = event["reason"].as_str().unwrap_or_default();
        let is_word = reason.starts_with(|c: char| c.is_ascii_uppercase());
        assert!(is_word && reason.chars().all(|c| c.is_ascii_alphanumeric()), "{event}");
        assert!(event["involvedObject"]["name"].is_string() && event["message"] != "", "{event}");
    }
    for (path, text) in [(EVENTS, all.to_string()), (PODS, read(&client, PODS).to_string())] {
        assert!(!text.contains(hidden) && !text.contains("hidden-value-4711"), "{path}");
    }
    server.stop();
}

/// The keys that components set and that have no domain: the oldest, which clients know.
const PLAIN_KEYS: [&str; 6] =
    ["pod-template-hash", "controller-revision-hash", "component", "provider", "app", "own"];

/// Proves: R-LAB-04, R-LAB-05, R-LAB-06, R-LAB-08, R-REF-08, R-ALLOC-07.
#[test]
fn keys_have_domains_and_controllers_write_narrowly() {
    let server = simulated();
    let client = server.client();
    made(&client, DEPLOYMENTS, &deployment("d"));
    let one = format!("{DEPLOYMENTS}/d");
    client.poll(&one, |answer| answer.body["status"]["availableReplicas"] == 2);
    // An autoscaler changes nothing but the number of replicas, by the scale.
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"minReplicas": 4, "maxReplicas": 5, "scaleTargetRef": target}});
    made(&client, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", &scaler);
    let scaled = client.poll(&one, |answer| answer.body["spec"]["replicas"] == 4).body;
    let owners = scaled["metadata"]["managedFields"].as_array().expect("owners");
    let by_scale: Vec<&Value> =
        owners.iter().filter(|owner| owner["subresource"] == "scale").collect();
    assert_eq!(by_scale.len(), 1, "{owners:?}");
    assert_eq!(by_scale[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    // A claim names a volume, which exists, or does not.
    let size = json!({"storage": "1Gi"});
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"}}});
    made(&client, "/api/v1/persistentvolumes", &volume);
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, volume: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "volumeName": volume, "resources": {"requests": size}}})
    };
    made(&client, claims, &claim("bound", "v"));
    made(&client, claims, &claim("lost", "none"));
    let bound = client
        .poll(&format!("{claims}/bound"), |answer| answer.body["status"]["phase"] == "Bound")
        .body;
    assert_eq!(bound["spec"]["volumeName"], "v");
    let lost = read(&client, &format!("{claims}/lost"));
    assert_eq!(
        (&lost["status"]["phase"], &lost["spec"]["volumeName"]),
        (&json!("Pending"), &json!("none"))
    );
    let paths = [
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/endpoints",
        "/api/v1/services",
        "/api/v1/pods",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/coordination.k8s.io/v1/leases",
        "/api/v1/persistentvolumes",
        "/api/v1/persistentvolumeclaims",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    ];
    let mut seen = 0;
    for path in paths {
        for obj in read(&client, path)["items"].as_array().expect("items") {
            let maps = [&obj["metadata"]["labels"], &obj["metadata"]["annotations"]];
            for key in maps.iter().filter_map(|map| map.as_object()).flat_map(|map| map.keys()) {
                check_key(key);
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "{seen}");
    server.stop();
}

/// Checks that a key has a domain of the project and is made of words.
fn check_key(key: &str) {
    let Some((domain, name)) = key.split_once('/') else {
        assert!(PLAIN_KEYS.contains(&key), "{key}");
        return;
    };
    let ours = domain.ends_with("kubernetes.io")
        || domain.ends_with("k8s.io")
        || domain.ends_with("keelson.dev");
    assert!(ours, "{key}");
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    assert!(name.chars().all(word), "words of {key}");
    // The one key of an alpha field that a kube-controller-manager 1.36 still sets.
    assert!(!domain.contains("alpha.") || key == "node.alpha.kubernetes.io/ttl", "{key}");
}
