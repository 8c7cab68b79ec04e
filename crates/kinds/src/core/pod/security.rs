//! Validates security contexts, host namespaces and OS-specific fields.

use super::context::Context;
use super::defaults::CONTAINER_LISTS;
use crate::check::{Field, Go, GoMembers, as_go};
use crate::gates;
use keelson_meta::{ErrorList, Feature, FieldError, SmallSet, value};

const ID_MAX: i64 = 2_147_483_647;

/// The security context of a container as error messages show it.
const CONTEXT: GoMembers = &[
    ("Capabilities", Go::Struct(&[("Add", Go::Pointer), ("Drop", Go::Pointer)])),
    ("Privileged", Go::Pointer),
    (
        "SELinuxOptions",
        Go::Struct(&[
            ("User", Go::Text),
            ("Role", Go::Text),
            ("Type", Go::Text),
            ("Level", Go::Text),
        ]),
    ),
    (
        "WindowsOptions",
        Go::Struct(&[
            ("GMSACredentialSpecName", Go::Pointer),
            ("GMSACredentialSpec", Go::Pointer),
            ("RunAsUserName", Go::Pointer),
            ("HostProcess", Go::Pointer),
        ]),
    ),
    ("RunAsUser", Go::Pointer),
    ("RunAsGroup", Go::Pointer),
    ("RunAsNonRoot", Go::Pointer),
    ("ReadOnlyRootFilesystem", Go::Pointer),
    ("AllowPrivilegeEscalation", Go::Pointer),
    ("ProcMount", Go::Pointer),
    ("SeccompProfile", Go::Struct(PROFILE)),
    ("AppArmorProfile", Go::Struct(PROFILE)),
];
const PROFILE: GoMembers = &[("Type", Go::Text), ("LocalhostProfile", Go::Pointer)];

/// Validates the security context of a container.
pub(super) fn container(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    if at.flag("privileged") && !gates::allows_privileged() {
        at.field("privileged").forbidden(errors, "disallowed by cluster policy");
    }
    at.field("runAsUser").in_range_if_set(errors, 0, ID_MAX);
    at.field("runAsGroup").in_range_if_set(errors, 0, ID_MAX);
    let mount = at.field("procMount");
    if mount.is_set() {
        mount.one_of(errors, &["Default", "Unmasked"]);
        if context.host_users && mount.text() == "Unmasked" {
            mount.invalid(errors, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(&at.field("seccompProfile"), errors);
    if at.get("allowPrivilegeEscalation").as_bool() == Some(false) {
        if at.flag("privileged") {
            let words = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            at.invalid_as(errors, as_go(at.value, CONTEXT), words);
        }
        let added = at.value.array_at(&["capabilities", "add"]);
        if added.iter().any(|capability| capability.as_str() == Some("CAP_SYS_ADMIN")) {
            let words = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                         CAP_SYS_ADMIN";
            at.invalid_as(errors, as_go(at.value, CONTEXT), words);
        }
    }
    windows_options(&at.field("windowsOptions"), errors);
    app_armor(&at.field("appArmorProfile"), errors);
}

/// Validates the security context of a pod.
pub(super) fn pod(spec: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    if spec.flag("hostNetwork") {
        host_network_ports(spec, context, errors);
    }
    let at = spec.field("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        at.field(name).in_range_if_set(errors, 0, ID_MAX);
    }
    at.field("supplementalGroups").items().for_each(|group| group.in_range(errors, 0, ID_MAX));
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let words = "ShareProcessNamespace and HostPID cannot both be enabled";
        let place = at.path.field("shareProcessNamespace");
        errors.push(FieldError::invalid(&place, true, words));
    }
    sysctls(&at.field("sysctls"), spec, errors);
    at.field("fsGroupChangePolicy").one_of_if_set(errors, &["Always", "OnRootMismatch"]);
    seccomp(&at.field("seccompProfile"), errors);
    windows_options(&at.field("windowsOptions"), errors);
    app_armor(&at.field("appArmorProfile"), errors);
    at.field("supplementalGroupsPolicy").one_of_if_set(errors, &["Merge", "Strict"]);
    at.field("seLinuxChangePolicy").one_of_if_set(errors, &["Recursive"]);
}

fn host_network_ports(spec: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    for container in spec.field("containers").items() {
        for port in container.field("ports").items() {
            let host = port.int("hostPort").unwrap_or(0);
            let inside = port.int("containerPort").unwrap_or(0);
            if (context.is_pod || host != 0) && host != inside {
                let words = "must match `containerPort` when `hostNetwork` is true";
                port.field("hostPort").invalid_as(errors, host, words);
            }
        }
    }
}

fn sysctls(list: &Field<'_, '_>, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    const PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen: SmallSet<&str> = SmallSet::new();
    for item in list.items() {
        let at = item.field("name");
        let name = at.text();
        if !at.not_empty(errors, "") {
            continue;
        }
        let is_new = seen.insert(name);
        if !is_sysctl(name) {
            let words = format!("must have at most 253 characters and match regex {PATTERN}");
            at.invalid(errors, &words);
        } else if !is_new {
            at.duplicate(errors);
        }
        let plain = name.replace('/', ".");
        if spec.flag("hostNetwork") && plain.starts_with("net.") {
            at.invalid(errors, "may not be specified when 'hostNetwork' is true");
        }
        let of_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter();
        if spec.flag("hostIPC")
            && (plain == "kernel.sem" || of_ipc.clone().any(|p| plain.starts_with(p)))
        {
            at.invalid(errors, "may not be specified when 'hostIPC' is true");
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|b| alphanumeric(*b))
            && bytes.last().is_some_and(|b| alphanumeric(*b))
            && bytes.iter().all(|b| alphanumeric(*b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_part)
}

fn seccomp(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    let kind = at.field("type");
    if !kind.not_empty(errors, "type is required when seccompProfile is set") {
        return;
    }
    kind.one_of(errors, &["Localhost", "RuntimeDefault", "Unconfined"]);
    let profile = at.field("localhostProfile");
    if kind.text() == "Localhost" {
        if !profile.is_set() {
            profile.required(errors, "must be set when seccomp type is Localhost");
        } else {
            super::paths::descending(&profile, errors);
        }
    } else if profile.is_set() {
        // The message shows the Go struct.
        let shown = value!({"Type": (kind.text()), "LocalhostProfile": (profile.text())});
        profile.invalid_as(errors, shown, "can only be set when seccomp type is Localhost");
    }
}

fn app_armor(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const PROFILE_BYTES_MAX: usize = 4095;
    if !at.is_set() {
        return;
    }
    let kind = at.field("type");
    let profile = at.field("localhostProfile");
    match kind.text() {
        "Localhost" if !profile.is_set() => {
            profile.required(errors, "must be set when AppArmor type is Localhost");
        }
        "Localhost" => {
            let text = profile.text().trim();
            if text != profile.text() {
                profile.invalid(errors, "must not be padded with whitespace");
            } else if text.is_empty() {
                profile.required(errors, "must be set when AppArmor type is Localhost");
            }
            if profile.text().len() > PROFILE_BYTES_MAX {
                errors.push(FieldError::too_long(&profile.path, PROFILE_BYTES_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" if profile.is_set() => {
            profile.invalid(errors, "can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => kind.required(errors, "type is required when appArmorProfile is set"),
        _ => kind.not_supported(errors, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

fn windows_options(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const SPEC_BYTES_MAX: usize = 64 * 1024;
    let spec = at.field("gmsaCredentialSpec");
    if spec.is_set() {
        if spec.text().is_empty() {
            spec.invalid(errors, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.text().len() > SPEC_BYTES_MAX {
            spec.invalid(errors, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    let name = at.field("gmsaCredentialSpecName");
    if name.is_set() {
        name.rule(errors, keelson_meta::names::is_dns1123_subdomain);
    }
    let user = at.field("runAsUserName");
    if user.is_set() && user.text().is_empty() {
        user.invalid(errors, "runAsUserName cannot be an empty string");
    } else if user.is_set() {
        windows_user(&user, errors);
    }
}

/// Validates Windows HostProcess containers, which need the host network.
pub(super) fn host_process(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    const OPTION: &[&str] = &["securityContext", "windowsOptions", "hostProcess"];
    let of_pod = spec.value.at(OPTION).and_then(keelson_meta::Value::as_bool);
    let mut containers = 0;
    let mut processes = 0;
    for list in CONTAINER_LISTS {
        for container in spec.value.array_at(&[list]) {
            containers += 1;
            let own = container.at(OPTION).and_then(keelson_meta::Value::as_bool);
            processes += usize::from(own.or(of_pod) == Some(true));
        }
    }
    if processes == 0 {
        return;
    }
    if processes != containers {
        let words = "If pod contains any hostProcess containers then all containers must be \
                     HostProcess containers";
        spec.invalid_as(errors, "", words);
    }
    if !spec.flag("hostNetwork") {
        let words = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.field("hostNetwork").invalid_as(errors, false, words);
    }
}

/// Checks that a pod in its own user namespace uses no other host namespace.
pub(super) fn host_users(spec: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    const WORDS: &str = "when `hostUsers` is false";
    if context.host_users {
        return;
    }
    for (name, shown) in
        [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
    {
        let may = name == "hostNetwork" && gates::is_on(Feature::UserNamespacesHostNetworkSupport);
        if spec.flag(name) && !may {
            errors.push(FieldError::forbidden(&spec.path.field(shown), WORDS));
        }
    }
    for list in CONTAINER_LISTS {
        for container in spec.field(list).items() {
            let devices = container.field("volumeDevices");
            if !devices.array().is_empty() {
                devices.forbidden(errors, WORDS);
            }
        }
    }
}

/// Validates the fields that the pod's `os.name` does not support.
pub(super) fn operating_system(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = spec.field("os");
    if !at.is_set() {
        return;
    }
    match at.str("name") {
        "" => at.field("name").required(errors, ""),
        "linux" => on_linux(spec, errors),
        "windows" => on_windows(spec, errors),
        other => errors.push(FieldError::not_supported(&at.path, other, &["linux", "windows"])),
    }
}

fn on_linux(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let refuse = |at: &Field<'_, '_>, errors: &mut ErrorList| {
        let options = at.field("windowsOptions");
        if options.is_set() {
            options.forbidden(errors, "windows options cannot be set for a linux pod");
        }
    };
    refuse(&spec.field("securityContext"), errors);
    for list in CONTAINER_LISTS {
        for container in spec.field(list).items() {
            refuse(&container.field("securityContext"), errors);
        }
    }
}

fn on_windows(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    const OF_POD: &[(bool, &str)] = &[
        (true, "appArmorProfile"),
        (true, "seLinuxOptions"),
        (false, "hostUsers"),
        (false, "hostPID"),
        (false, "hostIPC"),
        (true, "seccompProfile"),
        (true, "fsGroup"),
        (true, "fsGroupChangePolicy"),
        (true, "sysctls"),
        (false, "shareProcessNamespace"),
        (true, "runAsUser"),
        (true, "runAsGroup"),
        (true, "supplementalGroups"),
        (true, "supplementalGroupsPolicy"),
    ];
    const OF_CONTAINER: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let refuse = |at: &Field<'_, '_>, name: &str, errors: &mut ErrorList| {
        if at.has(name) && at.get(name).as_array().is_none_or(|items| !items.is_empty()) {
            at.field(name).forbidden(errors, "cannot be set for a windows pod");
        }
    };
    let context = spec.field("securityContext");
    for (inside, name) in OF_POD {
        refuse(if *inside { &context } else { spec }, name, errors);
    }
    for list in CONTAINER_LISTS {
        for container in spec.field(list).items() {
            let context = container.field("securityContext");
            OF_CONTAINER.iter().for_each(|name| refuse(&context, name, errors));
        }
    }
}

/// Validates `runAsUserName`: `USER` or `DOMAIN\\USER`.
fn windows_user(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const DOMAIN_BYTES_MAX: usize = 256;
    const USER_BYTES_MAX: usize = 104;
    const BAD: &str = "\"/\\:;|=,+*?<>@[]";
    let text = at.text();
    if text.bytes().any(|b| b.is_ascii_control()) {
        return at.invalid(errors, "runAsUserName cannot contain control characters");
    }
    if text.matches('\\').count() > 1 {
        return at.invalid(errors, "runAsUserName cannot contain more than one backslash");
    }
    let (domain, user) = match text.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_BYTES_MAX) {
        let words =
            format!("runAsUserName's Domain length must be under {DOMAIN_BYTES_MAX} characters");
        at.invalid(errors, &words);
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns_domain(domain)) {
        at.invalid(errors, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        at.invalid(errors, "runAsUserName's User cannot be empty");
    } else if user.len() > USER_BYTES_MAX {
        let words = format!(
            "runAsUserName's User length must not be longer than {USER_BYTES_MAX} characters"
        );
        at.invalid(errors, &words);
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        at.invalid(errors, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c| BAD.contains(c)) {
        let words = format!("runAsUserName's User cannot contain the following characters: {BAD}");
        at.invalid(errors, &words);
    }
}

/// Returns whether a domain is a NetBIOS name.
fn is_net_bios(domain: &str) -> bool {
    const CHARACTERS_MAX: usize = 15;
    let count = domain.chars().count();
    (1..=CHARACTERS_MAX).contains(&count)
        && !domain.starts_with('.')
        && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_dns_domain(domain: &str) -> bool {
    const LABEL_BYTES_MAX: usize = 63;
    domain.split('.').all(|label| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}
