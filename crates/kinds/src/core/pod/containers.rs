//! Validates containers.

use super::context::Context;
use super::probes;
use super::{env, resources, security, volumes};
use crate::check::Field;
use crate::gates;
use crate::strategy::RESTART_ALL;
use keelson_meta::names;
use keelson_meta::{ErrorList, Feature, FieldError, SmallSet};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const RESTART_RULES_MAX: usize = 20;
const RULES_WITHOUT_POLICY: &str = "must specify restartPolicy when restart rules are used";
const EXIT_CODES_MAX: usize = 255;

/// Validates `containers`.
pub(super) fn regular(spec: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let list = spec.field("containers");
    if list.array().is_empty() {
        return list.required(errors, "");
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for at in list.items() {
        common(&at, context, errors);
        unique_name(&at, &mut seen, errors);
        probes::all(&at, context, errors);
        restart_policy(&at, errors);
        env::files(&at, context, errors);
    }
    port_conflicts(list.items(), errors);
}

/// Validates `initContainers`.
pub(super) fn init(spec: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = names_of(spec, "containers").collect();
    let list = spec.field("initContainers");
    for at in list.items() {
        common(&at, context, errors);
        // Init containers without a name are no duplicates of each other.
        if !at.str("name").is_empty() || seen.contains(&"") {
            unique_name(&at, &mut seen, errors);
        }
        port_conflicts(std::iter::once(at), errors);
        if at.has("restartPolicy") || at.get("restartPolicyRules").is_empty() {
            restart_policy(&at, errors);
        } else {
            // Unlike those of regular containers, the rules are not validated then.
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

/// Validates `ephemeralContainers`.
pub(super) fn ephemeral(spec: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
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
    let mut seen: SmallSet<&str> = names_of(spec, "containers").collect();
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

fn names_of<'a>(spec: &Field<'a, '_>, list: &str) -> impl Iterator<Item = &'a str> {
    let items = spec.get(list).as_array().unwrap_or_default();
    items.iter().map(|item| item.str_at(&["name"]).unwrap_or_default())
}

fn unique_name<'a>(at: &Field<'a, '_>, seen: &mut SmallSet<&'a str>, errors: &mut ErrorList) {
    let name = at.str("name");
    if !seen.insert(name) {
        at.field("name").duplicate(errors);
    }
}

/// Checks that a pod without a service account projects no service account tokens.
fn no_tokens(volumes: &Field<'_, '_>, errors: &mut ErrorList) {
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

/// Validates what only pods, not templates, must have: images without surrounding spaces, and a
/// service account for tokens.
pub(super) fn images(spec: &Field<'_, '_>, errors: &mut ErrorList) {
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

/// Validates the fields that all containers share.
fn common(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
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

fn ports(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for at in list.items() {
        let name = at.field("name");
        if !name.text().is_empty() {
            let messages = names::is_valid_port_name(name.text());
            if messages.is_empty() && !seen.insert(name.text()) {
                name.duplicate(errors);
            }
            messages.iter().for_each(|why| name.invalid(errors, why));
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

/// Checks that no two containers use the same host port.
fn port_conflicts<'v, 'p>(containers: impl Iterator<Item = Field<'v, 'p>>, errors: &mut ErrorList) {
    let mut seen: SmallSet<(&str, &str, i64)> = SmallSet::new();
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

fn restart_policy(at: &Field<'_, '_>, errors: &mut ErrorList) {
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
        let actions: &[&str] = match gates::is_on(Feature::RestartAllContainersOnContainerExits) {
            true => &["Restart", RESTART_ALL],
            false => &["Restart"],
        };
        rule.field("action").one_of(errors, actions);
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

/// Validates `resizePolicy`. Errors have the path of the list, except for duplicates.
fn resize_policy(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    let list = at.field("resizePolicy");
    for policy in list.items() {
        let name = Field { value: policy.get("resourceName"), path: list.path };
        if !seen.insert(name.text()) {
            errors.push(FieldError::duplicate(&policy.path, name.text()));
        }
        name.required_one_of(errors, &["cpu", "memory"]);
        let restart = Field { value: policy.get("restartPolicy"), path: list.path };
        restart.required_one_of(errors, &["NotRequired", "RestartContainer"]);
        if context.restart_policy == "Never" && restart.text() != "NotRequired" {
            let words = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            restart.invalid_as(errors, restart.text(), words);
        }
    }
}
