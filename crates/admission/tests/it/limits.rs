//! Limit ranges and storage classes.

use crate::{World, admit, object, rejection};
use keelson_meta::{Map, Value, value};

fn world(limits: Value) -> World {
    let range = value!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": (limits)}});
    World::new().with("", "limitranges", range)
}

fn pod(resources: Value) -> Value {
    value!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "resources": (resources)}]
    }})
}

fn check(limits: Value, resources: Value, why: &str) {
    assert_eq!(rejection(&world(limits), "/pods", pod(resources)), why);
}

/// Proves: R-DEF-15.
#[test]
fn containers_get_default_requests_and_limits() {
    let world = world(value!([{"type": "Container", "default": {"cpu": "1"},
        "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}]));
    let given = pod(value!({"requests": {"memory": "2Gi"}}));
    let (pod, _) = admit(&world, "/pods", given, None).expect("admitted");
    let container = &pod.array_at(&["spec", "containers"])[0];
    let want = value!({"requests": {"memory": "2Gi", "cpu": "500m"}, "limits": {"cpu": "1"}});
    assert_eq!(container.get("resources"), Some(&want));
    assert_eq!(
        pod.annotation("kubernetes.io/limit-ranger"),
        Some("LimitRanger plugin set: cpu request for container c; cpu limit for container c")
    );
}

#[test]
fn messages_contain_the_bound_and_the_amount() {
    let min = value!([{"type": "Container", "min": {"cpu": "100m"}}]);
    check(min.clone(), value!({"requests": {"cpu": "0.1"}}), "");
    check(
        min.clone(),
        value!({"requests": {"cpu": "50m"}}),
        "minimum cpu usage per Container is 100m, but request is 50m",
    );
    check(min, value!({}), "minimum cpu usage per Container is 100m.  No request is specified");
    let max = value!([{"type": "Pod", "max": {"memory": "1Gi"}}]);
    check(
        max,
        value!({"limits": {"memory": "1025Mi"}}),
        "maximum memory usage per Pod is 1Gi, but limit is 1025Mi",
    );
    let ratio = value!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}}]);
    check(
        ratio,
        value!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
        "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
    );
}

/// Proves: R-DEF-09.
#[test]
fn a_claim_gets_the_newest_default_class_and_is_protected() {
    let class = |name: &str, made: &str| {
        value!({"metadata": {"name": name, "creationTimestamp": made,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}})
    };
    let world = World::new()
        .with("storage.k8s.io", "storageclasses", class("old", "2026-01-01T00:00:00Z"))
        .with("storage.k8s.io", "storageclasses", class("new", "2026-01-02T00:00:00Z"));
    let path = "/persistentvolumeclaims";
    let (claim, _) =
        admit(&world, path, value!({"metadata": {"name": "v"}}), None).expect("admitted");
    assert_eq!(claim.str_at(&["spec", "storageClassName"]), "new");
    assert_eq!(claim.finalizers().collect::<Vec<_>>(), ["kubernetes.io/pvc-protection"]);
    let none = value!({"metadata": {"name": "v"}, "spec": {"storageClassName": ""}});
    let (claim, _) = admit(&world, path, none, None).expect("admitted");
    assert_eq!(claim.str_at(&["spec", "storageClassName"]), "");
}

#[test]
fn a_claim_grows_only_where_its_class_allows_it() {
    let claim = |size: &str, phase: &str| {
        value!({"metadata": {"name": "v"}, "status": {"phase": phase}, "spec": {
            "storageClassName": "fast", "resources": {"requests": {"storage": size}}}})
    };
    let class = |allows: bool| {
        let class = value!({"metadata": {"name": "fast"}, "allowVolumeExpansion": allows});
        World::new().with("storage.k8s.io", "storageclasses", class)
    };
    let resize = |world: &World, phase: &str| {
        let old = object(claim("1Gi", phase));
        let new = claim("2Gi", phase);
        admit(world, "/persistentvolumeclaims", new, Some(&old)).err().unwrap_or_default()
    };
    assert_eq!(resize(&class(true), "Bound"), "");
    assert!(resize(&class(true), "Pending").contains("Only bound persistent volume claims"));
    assert!(resize(&class(false), "Bound").contains("must support resize"));
}

/// The product of containers and defaults is bounded in comparisons; their names make the bytes.
#[test]
fn defaults_and_errors_of_many_containers_have_a_budget_in_bytes() {
    let name = |at: usize| format!("example.com/{}{at:03}", "x".repeat(50));
    let amounts: Map = (0..250).map(|at| (name(at).into(), Value::from("1"))).collect();
    let containers: Vec<Value> =
        (0..2_000).map(|at| value!({"name": (format!("c{at}"))})).collect();
    let pod = value!({"metadata": {"name": "p"}, "spec": {"containers": (containers)}});
    let defaults = value!([{"type": "Container", "default": (amounts.clone())}]);
    let refused = rejection(&world(defaults), "/pods", pod.clone());
    assert_eq!(refused, "etcdserver: request is too large");
    let minima = value!([{"type": "Container", "min": (amounts)}]);
    let refused = rejection(&world(minima), "/pods", pod);
    assert!(refused.len() < 6 << 20, "{} bytes", refused.len());
}
