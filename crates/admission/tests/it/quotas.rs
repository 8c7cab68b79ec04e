//! What objects use up of quotas.

use crate::{World, asked, object};
use keelson_admission::{Amounts, quota};
use keelson_meta::{Object, Value, value};

fn quota(hard: Value, used: Value, spec: Value) -> Object {
    let mut quota = object(value!({"metadata": {"name": "q", "namespace": "n"}}));
    quota.root.insert("spec", spec);
    quota.root.insert("status", value!({"hard": (hard), "used": (used)}));
    quota
}

fn shown(amounts: &Amounts) -> String {
    let pairs = amounts.iter().map(|(what, amount)| format!("{what}={amount}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// What a quota says of a new object: what is used then, nothing, or why not.
fn charge(quota: &Object, path: &str, value: Value) -> String {
    let obj = object(value);
    let charged = asked(&World::new(), path, None, |req| quota::charged(req, &obj, quota));
    match charged {
        Ok(Some(used)) => shown(&used),
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
fn what_is_used_is_added_up() {
    let hard = value!({"requests.cpu": "1", "pods": "5", "count/pods": "5", "secrets": "1"});
    let used = value!({"requests.cpu": "500m", "pods": "1", "count/pods": "1", "secrets": "0"});
    let quota = quota(hard, used, value!({}));
    let asks = pod(value!({"requests": {"cpu": "0.25"}}));
    assert_eq!(charge(&quota, "/pods", asks), "count/pods=2,pods=2,requests.cpu=750m,secrets=0");
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
fn a_quota_that_is_not_counted_yet_refuses() {
    let quota = quota(value!({"pods": "1"}), value!({}), value!({}));
    assert_eq!(
        charge(&quota, "/pods", pod(value!({}))),
        "pods \"p\" is forbidden: status unknown for quota: q, resources: pods"
    );
}

#[test]
fn scopes_choose_the_pods_that_count() {
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
fn every_kind_counts_for_its_own_names() {
    let check = |group: &str, resource: &str, value: Value, want: &str| {
        assert_eq!(shown(&quota::usage(group, resource, &object(value))), want);
    };
    check("apps", "deployments", value!({}), "count/deployments.apps=1");
    check("", "secrets", value!({}), "count/secrets=1,secrets=1");
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
