//! The checks of the Pod Security Standards, with the version from which each applies.

use super::{Level, Standard};
use crate::plug_ins::pod::CONTAINER_LISTS;
use keelson_meta::Value;
use keelson_meta::status::quote;
use std::collections::BTreeSet;

/// Metadata and spec of a pod or a pod template.
pub(super) struct Template<'o> {
    pub metadata: Option<&'o Value>,
    pub spec: &'o Value,
}

/// A violation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub reason: &'static str,
    pub detail: String,
}

/// A check at a minor version of the standard.
type Check = fn(&Template<'_>, minor: u32) -> Option<Violation>;

/// The checks of baseline. A restricted check with the same name replaces a named one from its
/// version on.
const BASELINE: [(u32, Check, &str); 12] = [
    (0, apparmor, ""),
    (0, baseline_capabilities, "capabilities"),
    (0, host_namespaces, ""),
    (0, host_paths, "volumes"),
    (0, host_ports, ""),
    (34, probe_hosts, ""),
    (0, privileged, ""),
    (0, baseline_proc_mount, "procMount"),
    (0, selinux, ""),
    (0, baseline_seccomp, "seccomp"),
    (0, sysctls, ""),
    (0, windows_host_process, ""),
];

const RESTRICTED: [(u32, Check, &str); 7] = [
    (8, privilege_escalation, ""),
    (22, restricted_capabilities, "capabilities"),
    (35, restricted_proc_mount, "procMount"),
    (0, restricted_volumes, "volumes"),
    (0, run_as_non_root, ""),
    (23, run_as_user, ""),
    (19, restricted_seccomp, "seccomp"),
];

/// Returns the violations of a standard in the order of upstream's message.
pub(super) fn violations(standard: Standard, template: &Template<'_>) -> Vec<Violation> {
    if standard.level == Level::Privileged {
        return vec![];
    }
    let minor = standard.minor.unwrap_or(u32::MAX);
    let restricted = standard.level == Level::Restricted;
    let is_replaced = |name: &str| {
        restricted
            && !name.is_empty()
            && RESTRICTED.iter().any(|(since, _, other)| *other == name && *since <= minor)
    };
    let baseline = BASELINE.iter().filter(|(_, _, name)| !is_replaced(name));
    let restricted_checks = RESTRICTED.iter().filter(|_| restricted);
    let applicable = baseline.chain(restricted_checks).filter(|(since, _, _)| *since <= minor);
    applicable.filter_map(|(_, check, _)| check(template, minor)).collect()
}

/// From this version on, Windows pods are exempt from Linux-only checks.
const WINDOWS_EXEMPT: u32 = 25;
/// From this version on, pods in their own user namespace may be root in it.
const USER_NAMESPACES: u32 = 35;

impl Template<'_> {
    fn containers(&self) -> impl Iterator<Item = &Value> {
        CONTAINER_LISTS.iter().flat_map(|list| self.spec.array_at(&[list]))
    }

    fn security_context_field(&self, names: &[&str]) -> Option<&Value> {
        security_context_field(self.spec, names)
    }

    /// Returns the names of the containers for which `predicate` returns true.
    fn container_names(&self, predicate: impl Fn(&Value) -> bool) -> Vec<&str> {
        self.containers().filter(|container| predicate(container)).map(name_of).collect()
    }

    fn is_windows(&self) -> bool {
        self.spec.str_at(&["os", "name"]) == Some("windows")
    }

    fn has_user_namespace(&self) -> bool {
        self.spec.get("hostUsers").and_then(Value::as_bool) == Some(false)
    }

    fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let map = self.metadata.and_then(|m| m.get("annotations")).and_then(Value::as_object);
        let sorted = map.map(|map| map.sorted()).unwrap_or_default();
        sorted.into_iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }
}

fn name_of(container: &Value) -> &str {
    container.str_at(&["name"]).unwrap_or_default()
}

/// Returns a field below `securityContext`.
fn security_context_field<'v>(object: &'v Value, names: &[&str]) -> Option<&'v Value> {
    object.get("securityContext")?.at(names).filter(|value| !value.is_null())
}

/// Returns whether a boolean below `securityContext` is set to `expected`.
fn has_bool(object: &Value, names: &[&str], expected: bool) -> bool {
    security_context_field(object, names).and_then(Value::as_bool) == Some(expected)
}

fn security_context_str<'v>(object: &'v Value, names: &[&str]) -> Option<&'v str> {
    security_context_field(object, names).and_then(Value::as_str)
}

fn quoted<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    texts.into_iter().map(quote).collect::<Vec<_>>().join(", ")
}

/// Formats `container "a"` or `containers "a", "b"`.
fn quoted_names(noun: &str, names: &[&str]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{noun}{plural} {}", quoted(names.iter().copied()))
}

/// Formats `pod`, `container "a"` or `pod and container "a"`.
fn pod_and_containers(pod: bool, containers: &[&str]) -> String {
    match (pod, containers.is_empty()) {
        (true, true) => "pod".to_owned(),
        (true, false) => format!("pod and {}", quoted_names("container", containers)),
        (false, _) => quoted_names("container", containers),
    }
}

fn use_or_uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

fn apparmor(template: &Template<'_>, _: u32) -> Option<Violation> {
    const KEY: &str = "container.apparmor.security.beta.kubernetes.io/";
    const PROFILE_TYPE: [&str; 2] = ["appArmorProfile", "type"];
    let mut values: BTreeSet<&str> = BTreeSet::new();
    let is_forbidden =
        |kind: Option<&str>| !matches!(kind, None | Some("RuntimeDefault" | "Localhost"));
    let pod = template
        .security_context_field(&PROFILE_TYPE)
        .and_then(Value::as_str)
        .filter(|kind| is_forbidden(Some(kind)));
    let containers = template
        .container_names(|container| is_forbidden(security_context_str(container, &PROFILE_TYPE)));
    values.extend(pod);
    values.extend(
        template
            .containers()
            .filter_map(|c| security_context_str(c, &PROFILE_TYPE))
            .filter(|kind| is_forbidden(Some(kind))),
    );
    let annotations: Vec<String> = template
        .annotations()
        .filter(|(key, value)| {
            let allowed =
                matches!(*value, "" | "runtime/default") || value.starts_with("localhost/");
            key.starts_with(KEY) && !allowed
        })
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    let mut subjects: Vec<String> = vec![];
    if pod.is_some() || !containers.is_empty() {
        subjects.push(pod_and_containers(pod.is_some(), &containers));
    }
    if !annotations.is_empty() {
        subjects.push(if annotations.len() == 1 { "annotation" } else { "annotations" }.to_owned());
    }
    let shown: Vec<&str> =
        values.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    let reason =
        if shown.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    (!subjects.is_empty()).then(|| Violation {
        reason,
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            subjects.join(" and "),
            quoted(shown)
        ),
    })
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Returns the added capabilities that are not allowed.
fn added_capabilities<'v>(container: &'v Value, allowed: &[&str]) -> Vec<&'v str> {
    let add = security_context_field(container, &["capabilities", "add"])
        .and_then(Value::as_array)
        .unwrap_or_default();
    add.iter().filter_map(Value::as_str).filter(|name| !allowed.contains(name)).collect()
}

/// Returns the containers and the forbidden capabilities that they add.
fn forbidden_capabilities(template: &Template<'_>, allowed: &[&str]) -> Option<String> {
    let containers =
        template.container_names(|container| !added_capabilities(container, allowed).is_empty());
    let names: BTreeSet<&str> = template
        .containers()
        .flat_map(|container| added_capabilities(container, allowed))
        .collect();
    (!containers.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            quoted_names("container", &containers),
            quoted(names)
        )
    })
}

fn baseline_capabilities(template: &Template<'_>, _: u32) -> Option<Violation> {
    let detail = forbidden_capabilities(template, &DEFAULT_CAPABILITIES)?;
    Some(Violation { reason: "non-default capabilities", detail })
}

fn restricted_capabilities(template: &Template<'_>, minor: u32) -> Option<Violation> {
    if minor >= WINDOWS_EXEMPT && template.is_windows() {
        return None;
    }
    let without_drop = template.container_names(|container| {
        let drop =
            security_context_field(container, &["capabilities", "drop"]).and_then(Value::as_array);
        !drop.unwrap_or_default().iter().any(|name| name.as_str() == Some("ALL"))
    });
    let mut details = vec![];
    if !without_drop.is_empty() {
        let subject = quoted_names("container", &without_drop);
        details.push(format!("{subject} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    details.extend(forbidden_capabilities(template, &["NET_BIND_SERVICE"]));
    (!details.is_empty())
        .then(|| Violation { reason: "unrestricted capabilities", detail: details.join("; ") })
}

fn host_namespaces(template: &Template<'_>, _: u32) -> Option<Violation> {
    let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| template.spec.get(name).and_then(Value::as_bool) == Some(true))
        .map(|name| format!("{name}=true"))
        .collect();
    (!set.is_empty()).then(|| Violation { reason: "host namespaces", detail: set.join(", ") })
}

fn volumes<'t>(template: &'t Template<'_>) -> &'t [Value] {
    template.spec.array_at(&["volumes"])
}

fn host_paths(template: &Template<'_>, _: u32) -> Option<Violation> {
    let paths =
        volumes(template).iter().filter(|v| v.get("hostPath").is_some_and(|p| !p.is_null()));
    let names: BTreeSet<&str> = paths.map(name_of).collect();
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty())
        .then(|| Violation { reason: "hostPath volumes", detail: quoted_names("volume", &names) })
}

fn restricted_volumes(template: &Template<'_>, _: u32) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let (mut names, mut kinds): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for volume in volumes(template) {
        let members = volume.as_object().into_iter().flat_map(|map| map.iter());
        let kind = members
            .filter(|(member, value)| *member != "name" && !value.is_null())
            .map(|(member, _)| member.as_str())
            .next();
        if kind.is_none_or(|kind| !ALLOWED.contains(&kind)) {
            names.insert(name_of(volume));
            kinds.insert(kind.unwrap_or("unknown"));
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    let plural = if kinds.len() == 1 { "" } else { "s" };
    (!names.is_empty()).then(|| Violation {
        reason: "restricted volume types",
        detail: format!(
            "{} {} restricted volume type{plural} {}",
            quoted_names("volume", &names),
            use_or_uses(names.len()),
            quoted(kinds)
        ),
    })
}

fn host_ports(template: &Template<'_>, _: u32) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<String> {
        let ports = container.array_at(&["ports"]).iter();
        let used = ports.filter_map(|port| port.int_at(&["hostPort"])).filter(|port| *port != 0);
        used.map(|port| port.to_string()).collect()
    };
    let containers = template.container_names(|container| !ports(container).is_empty());
    let all: BTreeSet<String> = template.containers().flat_map(ports).collect();
    let plural = if all.len() == 1 { "" } else { "s" };
    (!containers.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!(
            "{} {} hostPort{plural} {}",
            quoted_names("container", &containers),
            use_or_uses(containers.len()),
            all.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

fn probe_hosts(template: &Template<'_>, _: u32) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let (mut names, mut hosts): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for container in template.containers() {
        let handlers = HANDLERS.iter().filter_map(|path| container.at(path));
        let found = handlers
            .flat_map(|handler| {
                ["httpGet", "tcpSocket"].map(|action| handler.str_at(&[action, "host"]))
            })
            .flatten()
            .filter(|host| !host.is_empty());
        for host in found {
            names.insert(name_of(container));
            hosts.insert(host);
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    let plural = if hosts.len() == 1 { "" } else { "s" };
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} probe or lifecycle host{plural} {}",
            quoted_names("container", &names),
            use_or_uses(names.len()),
            quoted(hosts)
        ),
    })
}

fn privileged(template: &Template<'_>, _: u32) -> Option<Violation> {
    let names = template.container_names(|container| has_bool(container, &["privileged"], true));
    (!names.is_empty()).then(|| Violation {
        reason: "privileged",
        detail: format!(
            "{} must not set securityContext.privileged=true",
            quoted_names("container", &names)
        ),
    })
}

fn restricted_proc_mount(template: &Template<'_>, _: u32) -> Option<Violation> {
    fn mount(container: &Value) -> Option<&str> {
        security_context_str(container, &["procMount"]).filter(|mount| *mount != "Default")
    }
    let names = template.container_names(|container| mount(container).is_some());
    let mounts: BTreeSet<&str> = template.containers().filter_map(mount).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "procMount",
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            quoted_names("container", &names),
            quoted(mounts)
        ),
    })
}

fn baseline_proc_mount(template: &Template<'_>, minor: u32) -> Option<Violation> {
    if minor >= USER_NAMESPACES && template.has_user_namespace() {
        return None;
    }
    restricted_proc_mount(template, minor)
}

fn selinux(template: &Template<'_>, minor: u32) -> Option<Violation> {
    const ENGINE_SINCE: u32 = 31;
    fn selinux_type(object: &Value) -> &str {
        security_context_str(object, &["seLinuxOptions", "type"]).unwrap_or_default()
    }
    let is_forbidden_type = |object: &Value| match selinux_type(object) {
        "" | "container_t" | "container_init_t" | "container_kvm_t" => false,
        "container_engine_t" => minor < ENGINE_SINCE,
        _ => true,
    };
    let sets = |object: &Value, member| {
        security_context_str(object, &["seLinuxOptions", member])
            .is_some_and(|text| !text.is_empty())
    };
    let is_forbidden =
        |object: &Value| is_forbidden_type(object) || sets(object, "user") || sets(object, "role");
    let pod = is_forbidden(template.spec);
    let containers = template.container_names(is_forbidden);
    if !pod && containers.is_empty() {
        return None;
    }
    let all = || std::iter::once(template.spec).chain(template.containers());
    let kinds: BTreeSet<&str> =
        all().filter(|object| is_forbidden_type(object)).map(selinux_type).collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    let mut data = vec![];
    if !kinds.is_empty() {
        data.push(quoted_names("type", &kinds));
    }
    for member in ["user", "role"] {
        if all().any(|object| sets(object, member)) {
            data.push(format!("{member} may not be set"));
        }
    }
    Some(Violation {
        reason: "seLinuxOptions",
        detail: format!(
            "{} set forbidden securityContext.seLinuxOptions: {}",
            pod_and_containers(pod, &containers),
            data.join("; ")
        ),
    })
}

const SECCOMP: [&str; 2] = ["seccompProfile", "type"];
const SECCOMP_FIELD_SINCE: u32 = 19;

fn seccomp_kind(object: &Value) -> Option<&str> {
    security_context_str(object, &SECCOMP)
}

fn is_forbidden_seccomp(object: &Value) -> bool {
    !matches!(seccomp_kind(object), None | Some("RuntimeDefault" | "Localhost"))
}

/// Returns the pod and containers with a forbidden seccomp profile.
fn seccomp_violation(template: &Template<'_>) -> Option<Violation> {
    let pod = is_forbidden_seccomp(template.spec);
    let containers = template.container_names(is_forbidden_seccomp);
    let all = std::iter::once(template.spec).chain(template.containers());
    let kinds: BTreeSet<&str> =
        all.filter(|object| is_forbidden_seccomp(object)).filter_map(seccomp_kind).collect();
    (pod || !containers.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "{} must not set securityContext.seccompProfile.type to {}",
            pod_and_containers(pod, &containers),
            quoted(kinds)
        ),
    })
}

fn baseline_seccomp(template: &Template<'_>, minor: u32) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    if minor >= SECCOMP_FIELD_SINCE {
        return seccomp_violation(template);
    }
    let is_seccomp = |key: &str| {
        let container = key.strip_prefix(CONTAINER);
        key == POD
            || container.is_some_and(|name| template.containers().any(|c| name_of(c) == name))
    };
    let allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let annotations: Vec<String> = template
        .annotations()
        .filter(|(key, value)| is_seccomp(key) && !allowed(value))
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    let plural = if annotations.len() == 1 { "" } else { "s" };
    (!annotations.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!("forbidden annotation{plural} {}", annotations.join(", ")),
    })
}

fn restricted_seccomp(template: &Template<'_>, minor: u32) -> Option<Violation> {
    if minor >= WINDOWS_EXEMPT && template.is_windows() {
        return None;
    }
    if let Some(violation) = seccomp_violation(template) {
        return Some(violation);
    }
    let pod = seccomp_kind(template.spec).is_some();
    let unset = template.container_names(|container| !pod && seccomp_kind(container).is_none());
    (!unset.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\"",
            quoted_names("container", &unset)
        ),
    })
}

/// Allowed sysctls with the version from which each is allowed.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(template: &Template<'_>, minor: u32) -> Option<Violation> {
    let all =
        template.security_context_field(&["sysctls"]).and_then(Value::as_array).unwrap_or_default();
    let allowed = |name: &str| SYSCTLS.iter().any(|(safe, since)| *safe == name && *since <= minor);
    let forbidden: Vec<&str> = all.iter().map(name_of).filter(|name| !allowed(name)).collect();
    (!forbidden.is_empty())
        .then(|| Violation { reason: "forbidden sysctls", detail: forbidden.join(", ") })
}

fn windows_host_process(template: &Template<'_>, _: u32) -> Option<Violation> {
    let sets = |object: &Value| has_bool(object, &["windowsOptions", "hostProcess"], true);
    let pod = sets(template.spec);
    let containers = template.container_names(sets);
    (pod || !containers.is_empty()).then(|| Violation {
        reason: "hostProcess",
        detail: format!(
            "{} must not set securityContext.windowsOptions.hostProcess=true",
            pod_and_containers(pod, &containers)
        ),
    })
}

fn privilege_escalation(template: &Template<'_>, minor: u32) -> Option<Violation> {
    if minor >= WINDOWS_EXEMPT && template.is_windows() {
        return None;
    }
    let unset = template
        .container_names(|container| !has_bool(container, &["allowPrivilegeEscalation"], false));
    (!unset.is_empty()).then(|| Violation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            quoted_names("container", &unset)
        ),
    })
}

fn run_as_non_root(template: &Template<'_>, minor: u32) -> Option<Violation> {
    if minor >= USER_NAMESPACES && template.has_user_namespace() {
        return None;
    }
    let is_set_to = |object: &Value, expected| has_bool(object, &["runAsNonRoot"], expected);
    let containers = template.container_names(|container| is_set_to(container, false));
    let pod = is_set_to(template.spec, false);
    let is_set_for_pod = is_set_to(template.spec, true);
    let is_unset = |container: &Value| !is_set_to(container, true) && !is_set_to(container, false);
    let unset = template.container_names(|container| !is_set_for_pod && is_unset(container));
    let detail = if pod || !containers.is_empty() {
        let subject = pod_and_containers(pod, &containers);
        format!("{subject} must not set securityContext.runAsNonRoot=false")
    } else if unset.is_empty() {
        return None;
    } else {
        let subject = quoted_names("container", &unset);
        format!("pod or {subject} must set securityContext.runAsNonRoot=true")
    };
    Some(Violation { reason: "runAsNonRoot != true", detail })
}

fn run_as_user(template: &Template<'_>, minor: u32) -> Option<Violation> {
    if minor >= USER_NAMESPACES && template.has_user_namespace() {
        return None;
    }
    let root = |object: &Value| {
        security_context_field(object, &["runAsUser"]).and_then(Value::as_int) == Some(0)
    };
    let pod = root(template.spec);
    let containers = template.container_names(root);
    (pod || !containers.is_empty()).then(|| Violation {
        reason: "runAsUser=0",
        detail: format!("{} must not set runAsUser=0", pod_and_containers(pod, &containers)),
    })
}
