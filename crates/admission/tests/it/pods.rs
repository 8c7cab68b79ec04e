//! Defaults of new pods: service account, priority, tolerations, runtime class.

use crate::{World, admit, object, rejection};
use keelson_meta::{Value, value};

fn pod(spec: Value) -> Value {
    let mut pod = value!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
        "containers": [{"name": "c", "image": "i"}]
    }});
    let target = pod.as_object_mut().expect("a map").object_at("spec");
    for (key, value) in spec.as_object().expect("a map").iter() {
        target.insert(key.clone(), value.clone());
    }
    pod
}

/// Returns a field of the admitted pod.
fn at(world: &World, spec: Value, path: &[&str]) -> Value {
    let (pod, _) = admit(world, "/pods", pod(spec), None).expect("the pod is admitted");
    pod.at(path).cloned().unwrap_or_default()
}

#[test]
fn a_token_is_mounted_unless_pod_or_account_disables_it() {
    let world = World::new();
    let mounts = |world: &World, spec| {
        let containers = at(world, spec, &["spec", "containers"]);
        containers.as_array().expect("containers")[0].array_at(&["volumeMounts"]).len()
    };
    assert_eq!(mounts(&world, value!({})), 1);
    assert_eq!(mounts(&world, value!({"automountServiceAccountToken": false})), 0);
    let quiet = value!({
        "metadata": {"name": "quiet", "namespace": "n"}, "automountServiceAccountToken": false,
        "imagePullSecrets": [{"name": "pull"}]
    });
    let world = world.with("", "serviceaccounts", quiet);
    let spec = || value!({"serviceAccountName": "quiet"});
    assert_eq!(mounts(&world, spec()), 0);
    assert_eq!(at(&world, spec(), &["spec", "imagePullSecrets"]), value!([{"name": "pull"}]));
    let loud = value!({"serviceAccountName": "quiet", "automountServiceAccountToken": true});
    assert_eq!(mounts(&world, loud), 1);
}

#[test]
fn an_account_may_limit_the_secrets_of_its_pods() {
    let strict = value!({
        "metadata": {"name": "strict", "namespace": "n",
            "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "mine"}]
    });
    let world = World::new().with("", "serviceaccounts", strict);
    let mounting = |secret: &str| {
        pod(value!({"serviceAccountName": "strict",
            "volumes": [{"name": "v", "secret": {"secretName": secret}}]}))
    };
    assert_eq!(rejection(&world, "/pods", mounting("mine")), "");
    assert_eq!(
        rejection(&world, "/pods", mounting("other")),
        "volume with secret.secretName=\"other\" is not allowed because service account strict does \
         not reference that secret"
    );
    let env = pod(value!({"serviceAccountName": "strict", "containers": [{"name": "c", "env": [
        {"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
    ]}]}));
    assert_eq!(
        rejection(&world, "/pods", env),
        "container c with envVar E referencing secret.secretName=\"other\" is not allowed because \
         service account strict does not reference that secret"
    );
}

#[test]
fn a_mirror_pod_must_not_refer_to_api_objects() {
    let mirror = |spec: Value| {
        let mut pod = object(pod(spec));
        let annotations = pod.metadata_mut().object_at("annotations");
        annotations.insert("kubernetes.io/config.mirror", "x");
        pod.into_value()
    };
    let world = World::new();
    assert_eq!(rejection(&world, "/pods", mirror(value!({}))), "");
    let spec = value!({"serviceAccountName": "default"});
    let why = "a mirror pod may not reference service accounts";
    assert_eq!(rejection(&world, "/pods", mirror(spec)), why);
    let spec = value!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    assert_eq!(rejection(&world, "/pods", mirror(spec)), "a mirror pod may not reference secrets");
}

#[test]
fn priority_comes_from_the_class_or_the_default_one() {
    let class = |name: &str, value: i64, default: bool| {
        value!({"metadata": {"name": name}, "value": value, "globalDefault": default,
            "preemptionPolicy": "Never"})
    };
    let group = "scheduling.k8s.io";
    let resource = "priorityclasses";
    let world = World::new();
    assert_eq!(at(&world, value!({}), &["spec", "priority"]), Value::Int(0));
    let world = world.with(group, resource, class("high", 7, false));
    let named = || value!({"priorityClassName": "high"});
    assert_eq!(at(&world, named(), &["spec", "priority"]), Value::Int(7));
    assert_eq!(at(&world, named(), &["spec", "preemptionPolicy"]), value!("Never"));
    let world = world.with(group, resource, class("usual", 3, true));
    assert_eq!(at(&world, value!({}), &["spec", "priorityClassName"]), value!("usual"));
    assert_eq!(
        rejection(&world, "scheduling.k8s.io/priorityclasses", class("other", 1, true)),
        "PriorityClass usual is already marked as default. Only one default can exist"
    );
}

#[test]
fn an_update_may_omit_what_admission_set() {
    let world = World::new();
    let (made, _) = admit(&world, "/pods", pod(value!({})), None).expect("admitted");
    let (after, _) =
        admit(&world, "/pods", pod(value!({})), Some(&made)).expect("the update is admitted");
    for name in ["priority", "preemptionPolicy", "tolerations"] {
        assert_eq!(after.at(&["spec", name]), made.at(&["spec", name]), "{name}");
    }
}

#[test]
fn existing_tolerations_are_kept() {
    let world = World::new();
    let own = value!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let path = ["spec", "tolerations"];
    let all = at(&world, value!({"tolerations": (own)}), &path);
    let keys: Vec<_> =
        all.as_array().unwrap_or_default().iter().filter_map(|t| t.str_at(&["key"])).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    let every = value!({"tolerations": [{"operator": "Exists"}]});
    assert_eq!(at(&world, every, &path), value!([{"operator": "Exists"}]));
}

#[test]
fn a_bound_pod_gets_the_zone_label_of_its_node() {
    let node = value!({"metadata": {"name": "m", "labels": {"topology.kubernetes.io/zone": "z",
        "other": "x"}}});
    let world = World::new().with("", "nodes", node);
    let labels = at(&world, value!({"nodeName": "m"}), &["metadata", "labels"]);
    assert_eq!(labels, value!({"topology.kubernetes.io/zone": "z"}));
}

#[test]
fn invalid_names_are_rejected_without_a_lookup() {
    let world = World::new();
    let named = |name: &str| pod(value!({"runtimeClassName": name}));
    let why = "invalid resource name \"a/b\": [may not contain '/']";
    assert_eq!(rejection(&world, "/pods", named("a/b")), why);
    let whose = pod(value!({"serviceAccountName": "a/b"}));
    let why = format!("error looking up service account n/a/b: {why}");
    assert_eq!(rejection(&world, "/pods", whose), why);
}
