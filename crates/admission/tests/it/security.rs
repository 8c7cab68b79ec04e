//! The Pod Security Standards.

use crate::{World, admit, admit_with_config, object};
use keelson_admission::{Chain, PlugInConfig};
use keelson_meta::{Value, value};
use std::path::Path;

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Returns the violations of a pod in a namespace with this level and version; empty if it is
/// admitted.
fn violations(level: &str, version: &str, spec: Value) -> String {
    let world = World::new()
        .labelled(ENFORCE, level)
        .labelled("pod-security.kubernetes.io/enforce-version", version);
    let mut pod = object(value!({"metadata": {"name": "p"}}));
    pod.root.insert("spec", spec);
    let message = admit(&world, "/pods", pod.into_value(), None).err().unwrap_or_default();
    message
        .split_once(&format!("\"{level}:{version}\": "))
        .map_or(message.clone(), |(_, why)| why.to_owned())
}

fn check(level: &str, version: &str, spec: Value, why: &str) {
    assert_eq!(violations(level, version, spec), why);
}

/// Returns the spec of a pod with one container with this security context.
fn with(context: Value) -> Value {
    value!({"containers": [{"name": "c", "securityContext": (context)}]})
}

#[test]
fn baseline_reports_all_violations() {
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
fn checks_depend_on_the_version_of_the_standard() {
    let probe =
        || value!({"containers": [{"name": "c", "livenessProbe": {"tcpSocket": {"host": "h"}}}]});
    check("baseline", "v1.33", probe(), "");
    assert!(violations("baseline", "v1.34", probe()).starts_with("probe or lifecycle host"));
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
    assert!(violations("baseline", "v1.34", own_users).starts_with("procMount"));
}

#[test]
fn restricted_requires_hardening() {
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
fn an_update_without_a_new_image_is_not_checked() {
    let world = World::new().labelled(ENFORCE, "baseline");
    let pod = |image: &str| {
        value!({"metadata": {"name": "p"}, "spec": {"hostPID": true,
            "containers": [{"name": "c", "image": image}]}})
    };
    let old = object(pod("a"));
    assert_eq!(admit(&world, "/pods", pod("a"), Some(&old)).err(), None);
    assert!(admit(&world, "/pods", pod("b"), Some(&old)).is_err());
}

#[test]
fn a_stricter_level_warns_of_existing_pods() {
    let pod = |name: &str| {
        value!({"metadata": {"name": name, "namespace": "n"}, "spec": {"hostPID": true,
            "containers": []}})
    };
    let world = World::new().with("", "pods", pod("b")).with("", "pods", pod("a"));
    let old = object(value!({"metadata": {"name": "n"}}));
    let new = value!({"metadata": {"name": "n", "labels": {
        "pod-security.kubernetes.io/enforce": "baseline"
    }}});
    let (_, warnings) = admit(&world, "/namespaces", new, Some(&old)).expect("the label is taken");
    assert_eq!(
        warnings,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \
             \"baseline:latest\"",
            "a (and 1 other pod): host namespaces",
        ]
    );
}

/// Returns the audit annotations of PodSecurity without the common prefix of their keys.
fn annotations(labels: &[(&str, &str)], config: &PlugInConfig, path: &str, spec: Value) -> String {
    let class = value!({"metadata": {"name": "sandbox"}, "handler": "h"});
    let world = World::new().with("node.k8s.io", "runtimeclasses", class);
    let world = labels.iter().fold(world, |world, (mode, value)| {
        world.labelled(&format!("pod-security.kubernetes.io/{mode}"), value)
    });
    let object = match path {
        "/pods" => value!({"metadata": {"name": "p"}, "spec": (spec)}),
        _ => value!({"metadata": {"name": "d"}, "spec": {"template": {"spec": (spec)}}}),
    };
    let (_, recorder) = admit_with_config(&world, config, path, object, None);
    let shown = recorder.annotations.iter().map(|(key, value)| {
        let key = key.strip_prefix("pod-security.kubernetes.io/").expect("one of PodSecurity");
        format!("{key}: {value}")
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[test]
fn audit_annotations_contain_policy_and_violations() {
    let plain = || value!({"containers": [{"name": "c"}]});
    let unsafe_one = || value!({"hostNetwork": true, "containers": [{"name": "c"}]});
    let none = PlugInConfig::none();
    let baseline = ("enforce", "baseline");
    let audit = ("audit", "baseline");
    let pods = "/pods";
    let deployments = "apps/deployments";
    let would = "audit-violations: would violate PodSecurity \"baseline:latest\": host namespaces \
                 (hostNetwork=true)";
    for (labels, path, spec, want) in [
        (&[][..], pods, unsafe_one(), "enforce-policy: privileged:latest".to_owned()),
        (&[], deployments, unsafe_one(), String::new()),
        (&[baseline], pods, plain(), "enforce-policy: baseline:latest".into()),
        // The reason of a refusal is no annotation.
        (&[baseline], pods, unsafe_one(), "enforce-policy: baseline:latest".into()),
        (&[baseline], deployments, unsafe_one(), String::new()),
        (&[audit], pods, plain(), "enforce-policy: privileged:latest".into()),
        (&[audit], pods, unsafe_one(), format!("enforce-policy: privileged:latest; {would}")),
        (&[audit], deployments, unsafe_one(), would.into()),
        (&[baseline, audit], pods, unsafe_one(), format!("enforce-policy: baseline:latest; {would}")),
        (
            &[("warn", "most")],
            pods,
            plain(),
            "error: Failed to parse policy: metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \
             \"most\": must be one of privileged, baseline, restricted; enforce-policy: privileged:latest"
                .into(),
        ),
    ] {
        assert_eq!(annotations(labels, none, path, spec), want, "{labels:?} {path}");
    }
}

/// Returns a configuration of PodSecurity with exemptions.
fn exempting(folder: &Path, exemptions: &str) -> PlugInConfig {
    let file = folder.join("admission.yaml");
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{{name: \
         PodSecurity, configuration: {{exemptions: {{{exemptions}}}}}}}]}}"
    );
    std::fs::write(&file, text).expect("written");
    Chain::read_config(&file).expect("read")
}

#[test]
fn exemptions_are_strings() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("admission.yaml");
    let text = "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [
        {name: PodSecurity, configuration: {exemptions: {namespaces: [n]}}}]}";
    std::fs::write(&file, text).expect("written");
    let error = Chain::read_config(&file).expect_err("`n` is a boolean in YAML").to_string();
    assert!(
        error.ends_with("PodSecurity: exemptions.namespaces: an item is no string: quote it"),
        "{error}"
    );
}

#[test]
fn audit_annotations_contain_the_exemption() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = || value!({"runtimeClassName": "sandbox", "hostNetwork": true, "containers": []});
    let restricted = [("enforce", "restricted"), ("audit", "restricted")];
    for (exemptions, want) in [
        ("namespaces: [\"n\"]", "exempt: namespace"),
        ("namespaces: [\"n\"], usernames: [u], runtimeClasses: [sandbox]", "exempt: namespace"),
        ("usernames: [u], runtimeClasses: [sandbox]", "exempt: user"),
        ("runtimeClasses: [sandbox]", "exempt: runtimeClass"),
    ] {
        let config = exempting(folder.path(), exemptions);
        for path in ["/pods", "apps/deployments"] {
            assert_eq!(annotations(&restricted, &config, path, spec()), want);
        }
    }
}

#[test]
fn exempt_pods_are_not_in_the_warning_of_a_stricter_level() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = exempting(folder.path(), "runtimeClasses: [sandbox]");
    let pod = |name: &str, class: Value| {
        value!({"metadata": {"name": (name), "namespace": "n"},
                "spec": {"hostNetwork": true, "containers": [], "runtimeClassName": (class)}})
    };
    let world = World::new()
        .with("", "pods", pod("b", value!("sandbox")))
        .with("", "pods", pod("c", value!("other")))
        .with("", "pods", pod("d", Value::Null));
    let namespace = |level: &str| value!({"metadata": {"name": "n", "labels": {"pod-security.kubernetes.io/enforce": (level)}}});
    let old = object(namespace("privileged"));
    let (_, recorder) =
        admit_with_config(&world, &config, "/namespaces", namespace("baseline"), Some(&old));
    let want = [
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "c (and 1 other pod): host namespaces",
    ];
    assert_eq!(recorder.warnings, want);
}

#[test]
fn level_labels_of_an_exempt_namespace_cause_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = exempting(folder.path(), "namespaces: [\"n\"]");
    let levels = |enforce: &str, warn: &str| {
        value!({"metadata": {"name": "n", "labels": {"pod-security.kubernetes.io/enforce": (enforce),
                                                     "pod-security.kubernetes.io/warn": (warn)}}})
    };
    let warnings = |enforce, warn| {
        admit_with_config(&World::new(), &config, "/namespaces", levels(enforce, warn), None)
            .1
            .warnings
    };
    assert_eq!(warnings("privileged", "privileged"), Vec::<String>::new());
    // A level that forbids nothing is not listed.
    let want = "namespace \"n\" is exempt from Pod Security, and the policy (warn=baseline:latest) will be ignored";
    assert_eq!(warnings("privileged", "baseline"), [want]);
}
