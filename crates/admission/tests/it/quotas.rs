//! Quota usage of objects.

use crate::{World, object, with_request};
use keelson_admission::{Amounts, quota};
use keelson_meta::{Object, Value, value};

fn quota(hard: Value, used: Value, spec: Value) -> Object {
    let mut quota = object(value!({"metadata": {"name": "q", "namespace": "n"}}));
    quota.root.insert("spec", spec);
    quota.root.insert("status", value!({"hard": (hard), "used": (used)}));
    quota
}

fn display(amounts: &Amounts) -> String {
    let pairs = amounts.iter().map(|(what, amount)| format!("{what}={amount}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// Returns the new usage of a quota after an object is created, empty if it does not change, or the
/// message of the rejection.
fn charge(quota: &Object, path: &str, value: Value) -> String {
    let obj = object(value);
    let usage = with_request(&World::new(), path, None, |req| {
        quota::check(req, &obj, std::slice::from_ref(quota))?;
        quota::new_usage(req, &obj, quota)
    });
    match usage {
        Ok(Some(used)) => display(&used),
        Ok(None) => String::new(),
        Err(status) => status.message.clone(),
    }
}

fn pod(resources: Value) -> Value {
    value!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "resources": (resources)}]
    }})
}

#[test]
fn requests_are_added_to_the_usage() {
    let hard = value!({"requests.cpu": "1", "pods": "5", "count/pods": "5", "secrets": "1"});
    let used = value!({"requests.cpu": "500m", "pods": "1", "count/pods": "1", "secrets": "0"});
    let quota = quota(hard, used, value!({}));
    let small = pod(value!({"requests": {"cpu": "0.25"}}));
    assert_eq!(charge(&quota, "/pods", small), "count/pods=2,pods=2,requests.cpu=750m,secrets=0");
    assert_eq!(
        charge(&quota, "/pods", pod(value!({"requests": {"cpu": "2"}}))),
        "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: \
         requests.cpu=500m, limited: requests.cpu=1"
    );
    assert_eq!(
        charge(&quota, "/pods", pod(value!({}))),
        "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    let config = value!({"metadata": {"name": "m"}});
    assert_eq!(charge(&quota, "/configmaps", config), "");
}

#[test]
fn a_quota_without_usage_rejects() {
    let quota = quota(value!({"pods": "1"}), value!({}), value!({}));
    assert_eq!(
        charge(&quota, "/pods", pod(value!({}))),
        "pods \"p\" is forbidden: status unknown for quota: q, resources: pods"
    );
}

#[test]
fn scopes_select_pods() {
    let check = |spec: Value, pod: Value, matches: bool| {
        let quota = quota(value!({"pods": "5"}), value!({"pods": "0"}), spec);
        assert_eq!(charge(&quota, "/pods", pod.clone()) == "pods=1", matches, "{pod:?}");
    };
    let scope = |name: &str| value!({"scopes": [name]});
    let busy = || pod(value!({"limits": {"memory": "1"}}));
    check(scope("BestEffort"), pod(value!({})), true);
    check(scope("BestEffort"), busy(), false);
    check(scope("NotBestEffort"), busy(), true);
    check(scope("Terminating"), busy(), false);
    check(scope("NotTerminating"), busy(), true);
    let classes = value!({"scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    ]}});
    let mut high = pod(value!({}));
    check(classes.clone(), high.clone(), false);
    let spec = high.as_object_mut().expect("a map").object_at("spec");
    spec.insert("priorityClassName", "high");
    check(classes, high, true);
}

#[test]
fn scopes_select_claims() {
    let check = |operator: &str, claim: Value, matches: bool| {
        let one = value!({"scopeName": "VolumeAttributesClass", "operator": (operator),
            "values": ["gold"]});
        let spec = value!({"scopeSelector": {"matchExpressions": [one]}});
        let hard = value!({"persistentvolumeclaims": "5"});
        let used = value!({"persistentvolumeclaims": "0"});
        let charged = charge(&quota(hard, used, spec), "/persistentvolumeclaims", claim.clone());
        assert_eq!(
            charged == "persistentvolumeclaims=1",
            matches,
            "{operator} {claim:?}: {charged}"
        );
    };
    let with_class = |class: &str| value!({"spec": {"volumeAttributesClassName": (class)}});
    let with_target_class = |class: &str| {
        let target = value!({"targetVolumeAttributesClassName": (class)});
        value!({"spec": {"volumeAttributesClassName": "tin"}, "status": {"modifyVolumeStatus": (target)}})
    };
    let without = || value!({"spec": {}});
    check("In", with_class("gold"), true);
    check("In", with_target_class("gold"), true);
    check("In", with_class("tin"), false);
    check("In", without(), false);
    check("NotIn", with_class("gold"), false);
    check("NotIn", with_class("tin"), true);
    check("NotIn", without(), true);
    check("Exists", with_class("tin"), true);
    check("Exists", without(), false);
    check("DoesNotExist", without(), true);
}

#[test]
fn usage_depends_on_the_kind() {
    let check = |group: &str, resource: &str, value: Value, want: &str| {
        let class =
            value!({"metadata": {"name": "big"}, "spec": {"extendedResourceName": "e.com/g"}});
        let world = World::new().with("resource.k8s.io", "deviceclasses", class);
        let usage = quota::usage(group, resource, &object(value), &world).expect("stored");
        assert_eq!(display(&usage), want);
    };
    check("apps", "deployments", value!({}), "count/deployments.apps=1");
    check("", "secrets", value!({}), "count/secrets=1,secrets=1");
    check(
        "resource.k8s.io",
        "resourceclaims",
        value!({"spec": {"devices": {"requests": [
            {"exactly": {"deviceClassName": "big", "count": 2}},
            {"exactly": {"deviceClassName": "all", "allocationMode": "All"}},
            {"firstAvailable": [
                {"deviceClassName": "big", "count": 3},
                {"deviceClassName": "big", "count": 1},
                {"deviceClassName": "small"}
            ]}
        ]}}}),
        "all.deviceclass.resource.k8s.io/devices=32,big.deviceclass.resource.k8s.io/devices=5,\
         count/resourceclaims.resource.k8s.io=1,\
         requests.deviceclass.resource.kubernetes.io/all=32,\
         requests.deviceclass.resource.kubernetes.io/big=5,\
         requests.deviceclass.resource.kubernetes.io/small=1,requests.e.com/g=5,\
         small.deviceclass.resource.k8s.io/devices=1",
    );
    check(
        "",
        "services",
        value!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}}),
        "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2",
    );
    check(
        "",
        "persistentvolumeclaims",
        value!({"spec": {"storageClassName": "f", "resources": {"requests": {"storage": "1Gi"}}}}),
        "count/persistentvolumeclaims=1,f.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
         f.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,\
         requests.storage=1Gi",
    );
    check(
        "",
        "pods",
        value!({"spec": {"overhead": {"cpu": "100m"}, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}}
        ]}}),
        "count/pods=1,cpu=1100m,pods=1,requests.cpu=1100m,requests.example.com/gpu=2",
    );
    check("", "pods", value!({"status": {"phase": "Failed"}}), "count/pods=1");
}
