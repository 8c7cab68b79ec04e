//! Facts about single built-in resources that OpenAPI does not have: storage prefixes and versions, deprecations, and
//! the versions from which tables are printed.

use keelson_meta::{GroupVersionKind, Object, Str, Value};

/// Returns the warning for every request to a deprecated version (apiserver `endpoints/deprecation`). `kind` is the
/// kind of the resource.
pub fn deprecation(group: &str, version: &str, resource: &str, kind: &str) -> Option<Str> {
    let api = format!("{group}/{version}");
    let (since, until) = match (api.as_str(), resource) {
        ("certificates.k8s.io/v1alpha1", "clustertrustbundles")
        | ("networking.k8s.io/v1beta1", "ipaddresses" | "servicecidrs")
        | ("storage.k8s.io/v1beta1", "volumeattributesclasses") => (34, 37),
        ("admissionregistration.k8s.io/v1alpha1", _)
        | ("coordination.k8s.io/v1alpha2", _)
        | ("resource.k8s.io/v1beta1", _) => (35, 38),
        ("coordination.k8s.io/v1beta1", _)
        | ("resource.k8s.io/v1alpha3", "devicetaintrules")
        | (
            "resource.k8s.io/v1beta2",
            "deviceclasses" | "resourceclaims" | "resourceclaimtemplates" | "resourceslices",
        ) => (36, 39),
        ("/v1", _) => return core_deprecation(resource).map(Str::new_static),
        _ => return None,
    };
    let mut text = format!("{api} {kind} is deprecated in v1.{since}+, unavailable in v1.{until}+");
    if api == "storage.k8s.io/v1beta1" {
        text.push_str("; use storage.k8s.io/v1 VolumeAttributesClass");
    }
    Some(text.into())
}

/// Returns the older versions in which the body of a subresource of this kind may be, with the same fields.
#[must_use]
pub fn older_body_versions(kind: &GroupVersionKind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("policy", "Eviction") => &["v1beta1"],
        _ => &[],
    }
}

fn core_deprecation(resource: &str) -> Option<&'static str> {
    match resource {
        "componentstatuses" => Some("v1 ComponentStatus is deprecated in v1.19+"),
        "endpoints" => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

/// Returns the storage prefix of a resource below `/registry/`. It is that of kube-apiserver, so that data can be
/// migrated in both directions.
pub fn storage_prefix(group: &str, resource: &str) -> String {
    match (group, resource) {
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("events.k8s.io", "events") => "events".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("policy", "podsecuritypolicies") => "podsecuritypolicy".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", name) => format!("{group}/{name}"),
        (_, name) => name.to_owned(),
    }
}

/// Returns the kind of another group as which a resource is stored. Only Events share their objects.
pub fn shared_storage_kind(group: &str, resource: &str) -> Option<GroupVersionKind> {
    let is_event = (group, resource) == ("events.k8s.io", "events");
    is_event.then(|| GroupVersionKind::new("", "v1", "Event"))
}

/// Returns the version in which kube-apiserver stores a resource, if it is not the first of its group. The previous
/// release must be able to read what this one writes.
pub fn stored_version(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies" | "mutatingadmissionpolicybindings",
        )
        | ("apiextensions.k8s.io", "customresourcedefinitions") => Some("v1beta1"),
        ("resource.k8s.io", "devicetaintrules") => Some("v1alpha3"),
        _ => None,
    }
}

/// Returns whether tables of a version are printed from the newest version: upstream prints the internal type.
pub fn has_printed_form(gvk: &GroupVersionKind) -> bool {
    gvk.group == "autoscaling" && gvk.version == "v1" && gvk.kind == "HorizontalPodAutoscaler"
}

/// Converts an object that is not stored to the version from which its table is printed, if [`has_printed_form`].
pub fn printed_form(gvk: &GroupVersionKind, obj: &Object) -> Option<Object> {
    has_printed_form(gvk).then(|| {
        let newest = GroupVersionKind { version: "v2".into(), ..gvk.clone() };
        crate::convert(obj.clone(), gvk, &newest)
    })
}

/// Annotations that conversion to a version adds. Upstream prints tables from the internal type, which has none.
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
        "status" => (group, resource) != ("resource.k8s.io", "resourceclaims"),
        _ => true,
    }
}
