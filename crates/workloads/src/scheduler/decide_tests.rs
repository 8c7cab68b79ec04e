//! Tests of decisions about pods.

use super::*;
use keelson_meta::{Object, Value, value};

fn object(fields: Value) -> Object {
    Object::from_value(fields).unwrap_or_default()
}

fn node(name: &str, zone: &str, cpu: &str, more: Value) -> Node {
    let mut node = object(value!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": zone}},
        "spec": (more), "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "3"}}
    }));
    node.set_meta("uid", name);
    Node::of(&node)
}

/// A pod of the app `app`.
fn pod(name: &str, app: &str, spec: Value) -> Pod {
    let mut object = object(value!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": app}},
        "spec": (spec)
    }));
    object.set_meta("uid", name);
    Pod::of(&object)
}

fn cpu(amount: &str) -> Value {
    value!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]})
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    if let Some(spec) = spec.as_object_mut() {
        spec.insert(field, value);
    }
    spec
}

/// Three nodes in two zones, with pods of the app `web` on `a` and `c`.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.put_node(node("a", "z1", "2", value!({})));
    cluster.put_node(node("b", "z1", "1", value!({})));
    let tainted = value!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    cluster.put_node(node("c", "z2", "4", tainted));
    for (name, node) in [("web-1", "a"), ("web-2", "c")] {
        cluster.put_pod(pod(name, "web", with(cpu("500m"), "nodeName", node.into())));
    }
    cluster
}

/// Returns the node, or the message and the pods that end.
fn decided(cluster: &Cluster, pod: &Pod) -> String {
    let wishes = pod.wishes.as_deref().cloned().unwrap_or_default();
    match decide(cluster, &Vec::new, pod, &wishes, &mut Search::new(1)) {
        Decision::Placed { node, .. } => node.to_string(),
        Decision::Waiting => "waiting".to_owned(),
        Decision::Unschedulable(why) => match why.preemption {
            None => why.message,
            Some(preemption) => {
                let names = preemption.victims.iter().map(|pod| pod.key.1.as_str());
                format!("{} for {}", preemption.node, names.collect::<Vec<&str>>().join(" "))
            }
        },
    }
}

#[test]
fn a_pod_is_placed_where_it_is_allowed() {
    let cluster = cluster();
    let check = |spec: Value, want: &str| {
        assert_eq!(decided(&cluster, &pod("new", "web", spec.clone())), want, "{spec:?}");
    };
    check(cpu("1200m"), "a");
    check(cpu("900m"), "a");
    let tolerated = value!([{"key": "k", "operator": "Exists"}]);
    check(with(cpu("3"), "tolerations", tolerated), "c");
    check(with(cpu("100m"), "nodeSelector", value!({"kubernetes.io/hostname": "b"})), "b");
    let by_name = value!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In",
            "values": ["a"]}]}]}}});
    check(with(cpu("100m"), "affinity", by_name), "a");
    let term = |topology: &str| value!([{"topologyKey": topology, "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let near = value!({"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": (term("kubernetes.io/hostname"))}});
    check(with(cpu("100m"), "affinity", near), "a");
    let apart = value!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": (term("kubernetes.io/hostname"))}});
    check(with(cpu("100m"), "affinity", apart), "b");
    let spread = value!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    check(with(cpu("100m"), "topologySpreadConstraints", spread), "b");
}

#[test]
fn a_message_says_why_no_node_is_allowed() {
    let cluster = cluster();
    let check = |spec: Value, nodes: &str, preemption: &str| {
        let want = format!(
            "0/3 nodes are available: {nodes}. no new claims to deallocate, preemption: \
             {preemption}"
        );
        assert_eq!(decided(&cluster, &pod("new", "web", spec)), want);
    };
    let nobody = "0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    check(cpu("5"), "1 node(s) had untolerated taint(s), 2 Insufficient cpu", nobody);
    let victims = "0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 \
                   Preemption is not helpful for scheduling.";
    check(cpu("1600m"), "1 node(s) had untolerated taint(s), 2 Insufficient cpu", victims);
    let never = with(cpu("5"), "preemptionPolicy", "Never".into());
    let polite = "not eligible due to preemptionPolicy=Never.";
    check(never, "1 node(s) had untolerated taint(s), 2 Insufficient cpu", polite);
    assert_eq!(
        decided(&Cluster::default(), &pod("new", "web", cpu("1"))),
        "no nodes available to schedule pods"
    );
    let claim = value!([{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]);
    assert_eq!(
        decided(&cluster, &pod("new", "web", with(cpu("1"), "volumes", claim))),
        "0/3 nodes are available: persistentvolumeclaim \"x\" not found. not found"
    );
}

#[test]
fn less_important_pods_end_for_more_important_ones() {
    let mut cluster = cluster();
    let low = |amount: &str, node: &str, priority: i64| {
        with(with(cpu(amount), "nodeName", node.into()), "priority", priority.into())
    };
    cluster.put_pod(pod("low", "x", low("1", "a", -5)));
    cluster.put_pod(pod("lower", "x", low("800m", "b", -9)));
    let check = |cluster: &Cluster, amount: &str, want: &str| {
        let spec = with(cpu(amount), "priority", 10.into());
        assert_eq!(decided(cluster, &pod("new", "x", spec)), want);
    };
    check(&cluster, "900m", "b for lower");
    check(&cluster, "1300m", "a for low");
    check(&cluster, "1800m", "a for web-1 low");
    // Room that is made for one pod is not given to another.
    let first = Pod { priority: 20, ..pod("first", "x", cpu("900m")) };
    cluster.nominate(&std::sync::Arc::new(first), "b");
    cluster.remove_pod(&("n".into(), "lower".into()));
    check(&cluster, "900m", "a for low");
}
