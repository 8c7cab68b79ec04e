//! Rules of containers.

use super::context::Context;
use super::probes;
use super::{env, resources, security, volumes};
use crate::check::At;
use keelson_meta::names;
use keelson_meta::{ErrorList, FieldError, Seen};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const RESTART_RULES_MAX: usize = 20;
const RULES_WITHOUT_POLICY: &str = "must specify restartPolicy when restart rules are used";
const EXIT_CODES_MAX: usize = 255;

/// The containers that run for as long as the pod does.
pub(super) fn regular(spec: &At<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let list = spec.field("containers");
    if list.array().is_empty() {
        return list.required(errors, "");
    }
    let mut seen: Seen<&str> = Seen::new();
    for at in list.items() {
        common(&at, context, errors);
        unique_name(&at, &mut seen, errors);
        probes::all(&at, context, errors);
        restart_policy(&at, errors);
        env::files(&at, context, errors);
    }
    port_conflicts(list.items(), errors);
}

/// The containers that run before the others, or beside them when they are restarted always.
pub(super) fn init(spec: &At<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let mut seen: Seen<&str> = names_of(spec, "containers").collect();
    let list = spec.field("initContainers");
    for at in list.items() {
        common(&at, context, errors);
        unique_name(&at, &mut seen, errors);
        port_conflicts(std::iter::once(at), errors);
        if at.has("restartPolicy") || at.get("restartPolicyRules").is_empty() {
            restart_policy(&at, errors);
        } else {
            // The rules are not looked at, other than those of regular containers.
            at.field("restartPolicy").required(errors, RULES_WITHOUT_POLICY);
        }
        if at.str("restartPolicy") == "Always" {
            probes::all(&at, context, errors);
            continue;
        }
        for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if at.has(name) {
                let words = "may not be set for init containers without restartPolicy=Always";
                at.field(name).forbidden(errors, words);
            }
        }
        for policy in at.field("resizePolicy").items() {
            let restart = policy.field("restartPolicy");
            if restart.text() == "RestartContainer" {
                let words = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                restart.invalid(errors, words);
            }
        }
    }
}

/// The containers that are added to a pod that runs.
pub(super) fn ephemeral(spec: &At<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    const ALLOWED: &[&str] = &[
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "env",
        "envFrom",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
        "targetContainerName",
    ];
    if spec.get("ephemeralContainers").is_empty() {
        return;
    }
    let mut seen: Seen<&str> = names_of(spec, "containers").collect();
    seen.extend(names_of(spec, "initContainers"));
    let others = seen.clone();
    for at in spec.field("ephemeralContainers").items() {
        common(&at, context, errors);
        unique_name(&at, &mut seen, errors);
        let target = at.field("targetContainerName");
        if !target.text().is_empty() && !others.contains(&target.text()) {
            errors.push(FieldError::not_found(&target.path, target.text()));
        }
        for (name, value) in at.value.as_object().into_iter().flat_map(keelson_meta::Map::iter) {
            let is_given = !value.is_empty() || value.as_array().is_some();
            if !ALLOWED.contains(&name.as_str()) && is_given {
                at.field(name).forbidden(errors, "cannot be set for an Ephemeral Container");
            }
        }
        for mount in at.field("volumeMounts").items() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.str(name).is_empty() {
                    mount.field(name).forbidden(errors, "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

fn names_of<'a>(spec: &At<'a, '_>, list: &str) -> impl Iterator<Item = &'a str> {
    let items = spec.get(list).as_array().unwrap_or_default();
    items.iter().map(|item| item.str_at(&["name"]).unwrap_or_default())
}

fn unique_name<'a>(at: &At<'a, '_>, seen: &mut Seen<&'a str>, errors: &mut ErrorList) {
    let name = at.str("name");
    if !seen.insert(name) {
        at.field("name").duplicate(errors);
    }
}

/// A pod without a service account has no tokens of one.
fn no_tokens(volumes: &At<'_, '_>, errors: &mut ErrorList) {
    for volume in volumes.items() {
        let projected = volume.field("projected");
        for source in projected.field("sources").items() {
            let token = source.field("serviceAccountToken");
            if token.is_set() {
                token.forbidden(errors, "must not be specified when serviceAccountName is not set");
            }
        }
    }
}

/// What pods, not templates of them, are told: of spaces around images, and of tokens of nobody.
pub(super) fn images(spec: &At<'_, '_>, errors: &mut ErrorList) {
    if spec.str("serviceAccountName").is_empty() {
        no_tokens(&spec.field("volumes"), errors);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.field(list).items() {
            let image = container.field("image");
            if image.text().trim().len() != image.text().len() {
                image.invalid(errors, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// What all containers share.
fn common(at: &At<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    at.field("name").required_rule(errors, names::is_dns1123_label);
    at.field("image").not_empty(errors, "");
    let policies = &["File", "FallbackToLogsOnError"];
    at.field("terminationMessagePolicy").required_one_of(errors, policies);
    ports(&at.field("ports"), errors);
    env::container(at, errors);
    volumes::mounts(at, context, errors);
    volumes::devices(at, context, errors);
    at.field("imagePullPolicy").required_one_of(errors, &["Always", "IfNotPresent", "Never"]);
    resources::container(&at.field("resources"), context, errors);
    resize_policy(at, context, errors);
    security::container(&at.field("securityContext"), context, errors);
}

fn ports(list: &At<'_, '_>, errors: &mut ErrorList) {
    let mut seen: Seen<&str> = Seen::new();
    for at in list.items() {
        let name = at.field("name");
        if !name.text().is_empty() {
            let faults = names::is_valid_port_name(name.text());
            if faults.is_empty() && !seen.insert(name.text()) {
                name.duplicate(errors);
            }
            faults.iter().for_each(|why| name.invalid(errors, why));
        }
        let port = at.field("containerPort");
        if port.not_empty(errors, "") {
            port.port(errors);
        }
        if at.int("hostPort").is_some_and(|port| port != 0) {
            at.field("hostPort").port(errors);
        }
        at.field("protocol").required_one_of(errors, PROTOCOLS);
    }
}

/// Two containers cannot have one port of the host.
fn port_conflicts<'v, 'p>(containers: impl Iterator<Item = At<'v, 'p>>, errors: &mut ErrorList) {
    let mut seen: Seen<(&str, &str, i64)> = Seen::new();
    for container in containers {
        for at in container.field("ports").items() {
            let Some(port) = at.int("hostPort").filter(|port| *port != 0) else { continue };
            if !seen.insert((at.str("protocol"), at.str("hostIP"), port)) {
                let words = format!("{}/{}/{port}", at.str("protocol"), at.str("hostIP"));
                errors.push(FieldError::duplicate(&at.path.field("hostPort"), words));
            }
        }
    }
}

fn restart_policy(at: &At<'_, '_>, errors: &mut ErrorList) {
    let policy = at.field("restartPolicy");
    policy.one_of_if_set(errors, &["Always", "Never", "OnFailure"]);
    let rules = at.field("restartPolicyRules");
    let count = rules.array().len();
    if count == 0 {
        return;
    }
    if !policy.is_set() {
        policy.required(errors, RULES_WITHOUT_POLICY);
    }
    if count > RESTART_RULES_MAX {
        errors.push(FieldError::too_many(&rules.path, count, RESTART_RULES_MAX));
    }
    for rule in rules.items() {
        rule.field("action").one_of(errors, &["Restart", "RestartAllContainers"]);
        let codes = rule.field("exitCodes");
        if !codes.is_set() {
            codes.required(errors, "must be specified");
            continue;
        }
        codes.field("operator").one_of(errors, &["In", "NotIn"]);
        let values = codes.field("values");
        if values.array().len() > EXIT_CODES_MAX {
            errors.push(FieldError::too_many(&values.path, values.array().len(), EXIT_CODES_MAX));
        }
    }
}

/// The faults of all policies stand at the list, but for those that stand twice.
fn resize_policy(at: &At<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let mut seen: Seen<&str> = Seen::new();
    let list = at.field("resizePolicy");
    for policy in list.items() {
        let name = At { value: policy.get("resourceName"), path: list.path };
        if !seen.insert(name.text()) {
            errors.push(FieldError::duplicate(&policy.path, name.text()));
        }
        name.required_one_of(errors, &["cpu", "memory"]);
        let restart = At { value: policy.get("restartPolicy"), path: list.path };
        restart.required_one_of(errors, &["NotRequired", "RestartContainer"]);
        if context.restart_policy == "Never" && restart.text() != "NotRequired" {
            let words = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            restart.invalid_as(errors, restart.text(), words);
        }
    }
}
