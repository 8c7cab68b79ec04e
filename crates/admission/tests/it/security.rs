//! The Pod Security Standards.

use crate::{World, admitted, object};
use keelson_meta::{Value, value};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// What a namespace of this level and version says of a pod of this spec; empty when it takes it.
fn refused(level: &str, version: &str, spec: Value) -> String {
    let world = World::new()
        .labelled(ENFORCE, level)
        .labelled("pod-security.kubernetes.io/enforce-version", version);
    let mut pod = object(value!({"metadata": {"name": "p"}}));
    pod.root.insert("spec", spec);
    let message = admitted(&world, "/pods", pod.into_value(), None).err().unwrap_or_default();
    message
        .split_once(&format!("\"{level}:{version}\": "))
        .map_or(message.clone(), |(_, why)| why.to_owned())
}

fn check(level: &str, version: &str, spec: Value, why: &str) {
    assert_eq!(refused(level, version, spec), why);
}

/// A pod whose only container has this context.
fn with(context: Value) -> Value {
    value!({"containers": [{"name": "c", "securityContext": (context)}]})
}

#[test]
fn baseline_names_each_thing_that_it_forbids() {
    let check = |spec, why| check("baseline", "latest", spec, why);
    check(with(value!({})), "");
    check(
        value!({"hostIPC": true, "containers": [
            {"name": "a", "ports": [{"hostPort": 80}]}, {"name": "b", "ports": [{"hostPort": 81}]}
        ]}),
        "host namespaces (hostIPC=true), hostPort (containers \"a\", \"b\" use hostPorts 80, 81)",
    );
    check(
        value!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "h"}}}]}),
        "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")",
    );
    check(
        with(value!({"procMount": "Unmasked"})),
        "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
    );
    check(
        value!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}, "containers": [
            {"name": "c", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}
        ]}),
        "forbidden AppArmor profile (pod and container \"c\" must not set AppArmor profile type to \
         \"Unconfined\")",
    );
}

#[test]
fn a_version_judges_as_it_did_then() {
    let probe =
        || value!({"containers": [{"name": "c", "livenessProbe": {"tcpSocket": {"host": "h"}}}]});
    check("baseline", "v1.33", probe(), "");
    assert!(refused("baseline", "v1.34", probe()).starts_with("probe or lifecycle host"));
    let sysctl = || value!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}, "containers": []});
    check("baseline", "v1.32", sysctl(), "");
    check("baseline", "v1.31", sysctl(), "forbidden sysctls (net.ipv4.tcp_rmem)");
    let engine = || with(value!({"seLinuxOptions": {"type": "container_engine_t"}}));
    check("baseline", "v1.31", engine(), "");
    let why = "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \
               \"container_engine_t\")";
    check("baseline", "v1.30", engine(), why);
    let mut own_users = with(value!({"procMount": "Unmasked"}));
    own_users.as_object_mut().expect("a map").insert("hostUsers", false);
    check("baseline", "v1.35", own_users.clone(), "");
    assert!(refused("baseline", "v1.34", own_users).starts_with("procMount"));
}

#[test]
fn restricted_asks_for_what_makes_a_pod_safe() {
    let safe = || {
        value!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    };
    let check = |spec, why| check("restricted", "latest", spec, why);
    check(with(safe()), "");
    let mut root = safe();
    root.as_object_mut().expect("a map").insert("runAsUser", 0);
    check(with(root), "runAsUser=0 (container \"c\" must not set runAsUser=0)");
    let mut pod = with(safe());
    let volumes = value!([{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "nfs": {}},
        {"name": "c", "image": {"reference": "i"}}]);
    pod.as_object_mut().expect("a map").insert("volumes", volumes);
    check(
        pod,
        "restricted volume types (volumes \"a\", \"b\" use restricted volume types \"hostPath\", \
         \"nfs\")",
    );
    let windows = value!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true},
        "containers": [{"name": "c"}]});
    check(windows, "");
}

#[test]
fn an_update_that_changes_no_image_is_not_judged_again() {
    let world = World::new().labelled(ENFORCE, "baseline");
    let pod = |image: &str| {
        value!({"metadata": {"name": "p"}, "spec": {"hostPID": true,
            "containers": [{"name": "c", "image": image}]}})
    };
    let old = object(pod("a"));
    assert_eq!(admitted(&world, "/pods", pod("a"), Some(&old)).err(), None);
    assert!(admitted(&world, "/pods", pod("b"), Some(&old)).is_err());
}

#[test]
fn a_stricter_level_warns_of_the_pods_that_are_there() {
    let pod = |name: &str| {
        value!({"metadata": {"name": name, "namespace": "n"}, "spec": {"hostPID": true,
            "containers": []}})
    };
    let world = World::new().with("", "pods", pod("b")).with("", "pods", pod("a"));
    let old = object(value!({"metadata": {"name": "n"}}));
    let new = value!({"metadata": {"name": "n", "labels": {
        "pod-security.kubernetes.io/enforce": "baseline"
    }}});
    let (_, warnings) =
        admitted(&world, "/namespaces", new, Some(&old)).expect("the label is taken");
    assert_eq!(
        warnings,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \
             \"baseline:latest\"",
            "a (and 1 other pod): host namespaces",
        ]
    );
}
