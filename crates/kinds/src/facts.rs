//! Facts about single built-in resources that OpenAPI does not have: what their rows say of storage
//! and deprecation, and the versions from which tables are printed.

use crate::built_in::row;
use keelson_meta::{GroupVersionKind, Object, Str, Value};

/// Returns the warning for every request to a deprecated version (apiserver
/// `endpoints/deprecation`). `kind` is the kind of the resource.
pub fn deprecation(group: &str, version: &str, resource: &str, kind: &str) -> Option<Str> {
    let row = row(group, resource)?;
    let found = row.deprecations.iter().find(|deprecation| deprecation.version == version)?;
    let slash = if group.is_empty() { "" } else { "/" };
    let mut text = format!("{group}{slash}{version} {kind} is deprecated in v1.{}+", found.since);
    if let Some(until) = found.until {
        text.push_str(&format!(", unavailable in v1.{until}+"));
    }
    if let Some(replacement) = found.replacement {
        text.push_str(&format!("; use {replacement}"));
    }
    Some(text.into())
}

/// Returns the older versions in which the body of a subresource of this kind may be, with the same
/// fields.
#[must_use]
pub fn older_body_versions(kind: &GroupVersionKind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("policy", "Eviction") => &["v1beta1"],
        _ => &[],
    }
}

/// Returns the storage prefix of a resource below `/registry/`.
pub fn storage_prefix<'a>(group: &str, resource: &'a str) -> &'a str {
    let prefix = row(group, resource).map_or("", |row| row.storage_prefix);
    if prefix.is_empty() { resource } else { prefix }
}

/// Returns the kind of another group as which a resource is stored. Only Events share their
/// objects.
pub fn shared_storage_kind(group: &str, resource: &str) -> Option<GroupVersionKind> {
    let (group, version, kind) = row(group, resource)?.stored_as?;
    Some(GroupVersionKind::new(group, version, kind))
}

/// Returns the version in which kube-apiserver stores a resource, if it is not the first of its
/// group.
pub fn stored_version(group: &str, resource: &str) -> Option<&'static str> {
    row(group, resource)?.stored_version
}

/// Returns whether tables of a version are printed from the newest version: upstream prints the
/// internal type.
pub fn has_printed_form(gvk: &GroupVersionKind) -> bool {
    gvk.group == "autoscaling" && gvk.version == "v1" && gvk.kind == "HorizontalPodAutoscaler"
}

/// Converts an object that is not stored to the version from which its table is printed, if
/// [`has_printed_form`].
pub fn printed_form(gvk: &GroupVersionKind, obj: &Object) -> Option<Object> {
    has_printed_form(gvk).then(|| {
        let newest = GroupVersionKind { version: "v2".into(), ..gvk.clone() };
        crate::convert(obj.clone(), gvk, &newest)
    })
}

/// Annotations that conversion to a version adds. Upstream prints tables from the internal type,
/// which has none.
const CONVERTED_ANNOTATIONS: &[(&str, &str, &str)] = &[
    ("apps/v1", "DaemonSet", "deprecated.daemonset.template.generation"),
    ("autoscaling/v1", "HorizontalPodAutoscaler", "autoscaling.alpha.kubernetes.io/metrics"),
    ("autoscaling/v1", "HorizontalPodAutoscaler", "autoscaling.alpha.kubernetes.io/behavior"),
    (
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        "autoscaling.alpha.kubernetes.io/current-metrics",
    ),
    ("autoscaling/v1", "HorizontalPodAutoscaler", "autoscaling.alpha.kubernetes.io/conditions"),
];

/// Removes the annotations that conversion to a version has added, for tables.
pub fn drop_converted_annotations(gvk: &GroupVersionKind, obj: &mut Object) {
    for (version, kind, annotation) in CONVERTED_ANNOTATIONS {
        if gvk.kind != *kind || gvk.api_version() != *version {
            continue;
        }
        let metadata = obj.metadata_mut();
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        if let Some(annotations) = annotations {
            annotations.remove(annotation);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
}

/// Returns whether a subresource can be returned as a table, as upstream.
pub fn has_table(group: &str, resource: &str, subresource: &str) -> bool {
    match subresource {
        "ephemeralcontainers" | "resize" | "approval" => false,
        "status" => row(group, resource).is_none_or(|row| row.has_status_table),
        _ => true,
    }
}
