//! Validates environment variables, and the field references that volumes share with them.

use super::context::Context;
use crate::check::Field;
use crate::gates;
use keelson_meta::names;
use keelson_meta::{ErrorList, Feature, FieldError, Value};

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: &[&str] =
    &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

/// Validates `env` and `envFrom` of a container.
pub(super) fn container(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for variable in at.field("env").items() {
        let name = variable.field("name");
        name.required_rule(errors, names::is_relaxed_env_var_name);
        value_from(&variable, errors);
    }
    let list = at.field("envFrom");
    for source in list.items() {
        from(&source, &list, errors);
    }
}

/// Validates an item of `envFrom`. Errors about its source have the path of the list.
fn from(at: &Field<'_, '_>, list: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("prefix").rule_if_set(errors, names::is_relaxed_env_var_name);
    let mut sources = 0;
    for kind in ["configMapRef", "secretRef"] {
        let reference = at.field(kind);
        if reference.is_set() {
            sources += 1;
            reference.field("name").required_rule(errors, names::is_dns1123_subdomain);
        }
    }
    match sources {
        0 => list.invalid_as(errors, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => list.invalid_as(errors, "", "may not have more than one field specified at a time"),
    }
}

fn value_from(variable: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = variable.field("valueFrom");
    if !at.is_set() {
        return;
    }
    field_ref(&at.field("fieldRef"), FIELDS, errors);
    resource_ref(&at.field("resourceFieldRef"), false, errors);
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let reference = at.field(kind);
        if reference.is_set() {
            reference.field("name").rule(errors, names::is_dns1123_subdomain);
            reference.field("key").required_rule(errors, names::is_config_map_key);
        }
    }
    file_ref(&at.field("fileKeyRef"), errors);
    let sources = SOURCES.iter().filter(|kind| at.has(kind)).count();
    if sources == 0 {
        let words = match gates::is_on(Feature::EnvFiles) {
            true => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
                 `secretKeyRef` or `fileKeyRef`"
            }
            false => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or \
                 `secretKeyRef`"
            }
        };
        at.invalid_as(errors, "", words);
    } else if !variable.str("value").is_empty() {
        at.invalid_as(errors, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        at.invalid_as(errors, "", "may not have more than one field specified at a time");
    }
}

fn file_ref(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    at.field("key").required_rule(errors, names::is_relaxed_env_var_name);
    at.field("volumeName").required_rule(errors, names::is_dns1123_label);
    let path = at.field("path");
    if path.not_empty(errors, "") {
        super::paths::no_backsteps(&path, errors);
    }
}

/// Checks that the files of `fileKeyRef` are in `emptyDir` volumes of the pod.
pub(super) fn files(container: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    for variable in container.field("env").items() {
        let source = variable.field("valueFrom");
        let file = source.field("fileKeyRef");
        if !file.is_set() {
            continue;
        }
        let name = file.field("volumeName");
        match context.volumes.get(name.text()) {
            None => errors.push(FieldError::not_found(&name.path, name.text())),
            Some(volume) if volume.get("emptyDir").is_none_or(Value::is_null) => {
                name.invalid(errors, "referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        }
    }
}

/// Validates a `fieldRef`.
pub(super) fn field_ref(at: &Field<'_, '_>, known: &[&str], errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    let field = at.field("fieldPath");
    if !at.field("apiVersion").not_empty(errors, "") || !field.not_empty(errors, "") {
        return;
    }
    if at.str("apiVersion") != "v1" {
        let words = format!(
            "error converting fieldPath: unsupported pod version: {}",
            at.str("apiVersion")
        );
        return field.invalid(errors, &words);
    }
    match subscript(field.text()) {
        Some((base, key)) => match base {
            "metadata.annotations" => rule(at, &key.to_lowercase(), errors),
            "metadata.labels" => rule(at, key, errors),
            _ => at.invalid_as(errors, base, "does not support subscript"),
        },
        None if is_pod_field(field.text()) => field.one_of(errors, known),
        None => {
            let words =
                format!("error converting fieldPath: field label not supported: {}", field.text());
            field.invalid(errors, &words);
        }
    }
}

fn rule(at: &Field<'_, '_>, key: &str, errors: &mut ErrorList) {
    for why in names::is_qualified_name(key) {
        at.invalid_as(errors, key, &why);
    }
}

/// Splits `metadata.labels['a']` into `metadata.labels` and `a`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (base, rest) = path.strip_suffix("']")?.split_once("['")?;
    Some((base, rest))
}

fn is_pod_field(path: &str) -> bool {
    FIELDS.contains(&path)
        || VOLUME_FIELDS.contains(&path)
        || matches!(
            path,
            "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.hostNetwork"
                | "status.phase"
                | "status.nominatedNodeName"
                | "spec.host"
                | "status.message"
                | "status.reason"
        )
}

/// Validates a `resourceFieldRef`.
pub(super) fn resource_ref(at: &Field<'_, '_>, in_volume: bool, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    if in_volume && at.str("containerName").is_empty() {
        return at.field("containerName").required(errors, "");
    }
    let resource = at.field("resource");
    if !resource.not_empty(errors, "") {
        return;
    }
    let name = resource.text();
    if !RESOURCES.contains(&name) && !is_huge_page_field(name) {
        resource.one_of(errors, RESOURCES);
    }
    let divisor = at.get("divisor").as_str().unwrap_or("0");
    let words = match name.split_once('.').map(|(_, kind)| kind) {
        Some("cpu") if !matches!(divisor, "0" | "1" | "1m") => {
            "only divisor's values 1m and 1 are supported with the cpu resource"
        }
        Some(kind @ ("memory" | "ephemeral-storage")) if !is_byte_divisor(divisor) => match kind {
            "memory" => {
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are \
                 supported with the memory resource"
            }
            _ => {
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are \
                 supported with the local ephemeral storage resource"
            }
        },
        Some(kind) if kind.starts_with("hugepages-") && !is_byte_divisor(divisor) => {
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are \
             supported with the hugepages resource"
        }
        _ => return,
    };
    errors.push(FieldError::invalid(&at.path.field("divisor"), name, words));
}

fn is_huge_page_field(name: &str) -> bool {
    name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-")
}

fn is_byte_divisor(divisor: &str) -> bool {
    matches!(
        divisor,
        "0" | "1"
            | "1k"
            | "1M"
            | "1G"
            | "1T"
            | "1P"
            | "1E"
            | "1Ki"
            | "1Mi"
            | "1Gi"
            | "1Ti"
            | "1Pi"
            | "1Ei"
    )
}

/// Validates a `fieldRef` of a downwardAPI volume.
pub(super) fn volume_field_ref(at: &Field<'_, '_>, errors: &mut ErrorList) {
    field_ref(at, VOLUME_FIELDS, errors);
}
