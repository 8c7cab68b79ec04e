//! NodeDeclaredFeatureValidator; the messages are those of a kube-apiserver 1.36.

use crate::{World, admit, object};
use keelson_meta::{Value, value};

const POD_LEVEL: &str = "InPlacePodLevelResourcesVerticalScaling";
const INIT: &str = "InPlacePodVerticalScalingInitContainers";

/// Returns a pod on the node `m` with cpu requests of the pod, its init container and its sidecar.
fn pod(pod: &str, init: &str, sidecar: &str) -> Value {
    value!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
        "nodeName": "m",
        "resources": {"requests": {"cpu": (pod)}},
        "initContainers": [
            {"name": "i", "resources": {"requests": {"cpu": (init)}}},
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": (sidecar)}}}
        ],
        "containers": [{"name": "c"}]
    }})
}

/// Returns the message about an update of the pod on a node that declares these features.
fn update(path: &str, features: &[&str], after: Value) -> String {
    let features: Vec<Value> = features.iter().map(|name| value!((*name))).collect();
    let node = value!({
        "metadata": {"name": "m", "labels": {"kubernetes.io/os": "linux"}},
        "status": {"declaredFeatures": (features), "allocatable": {"cpu": "8"}}
    });
    let world = World::new().with("", "nodes", node);
    let old = object(pod("1", "1", "1"));
    admit(&world, path, after, Some(&old)).err().unwrap_or_default()
}

fn rejected(features: &str) -> String {
    format!(
        "pods \"p\" is forbidden: pod update requires features {features} which are not available on \
         node \"m\""
    )
}

#[test]
fn a_resize_requires_features_of_the_node() {
    for path in ["/pods/resize", "/pods"] {
        let check = |features: &[&str], after: Value, want: &str| {
            assert_eq!(update(path, features, after), want, "{path} {features:?}");
        };
        check(&[], pod("1", "1", "2"), "");
        check(&[], pod("2", "1", "1"), &rejected(POD_LEVEL));
        check(&[INIT], pod("2", "1", "1"), &rejected(POD_LEVEL));
        check(&[POD_LEVEL], pod("2", "1", "1"), "");
        check(&[POD_LEVEL], pod("1", "2", "1"), &rejected(INIT));
        check(&[INIT], pod("1", "2", "1"), "");
        check(&[], pod("2", "2", "1"), &rejected(&format!("{POD_LEVEL}, {INIT}")));
        check(&[INIT], pod("2", "2", "1"), &rejected(POD_LEVEL));
        check(&[POD_LEVEL, INIT], pod("2", "2", "1"), "");
    }
}

#[test]
fn a_resize_on_an_unknown_node_is_rejected() {
    let old = object(pod("1", "1", "1"));
    let answer = |after: Value| admit(&World::new(), "/pods", after, Some(&old)).err();
    let why = "pods \"p\" is forbidden: node \"m\" not found".to_owned();
    assert_eq!(answer(pod("2", "1", "1")), Some(why));
    assert_eq!(answer(pod("1", "1", "1")), None, "nothing is required of the node");
}

#[test]
fn a_status_update_requires_no_features() {
    assert_eq!(update("/pods/status", &[], pod("2", "2", "1")), "");
}
