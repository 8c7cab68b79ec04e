//! The spec of PersistentVolumeClaims and of their templates, and the metadata of templates.

use crate::check::Field;
use keelson_meta::object_meta::validate_annotations;
use keelson_meta::{ErrorList, FieldError, Map, Value, names};

const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const NOT_POSITIVE: &str = "must be greater than zero";
pub(crate) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

/// Validates the spec of a claim. `any_group`: whether to accept any API group of data sources.
pub(crate) fn claim_spec(spec: &Field<'_, '_>, any_group: bool, errors: &mut ErrorList) {
    let modes = spec.field("accessModes");
    modes.not_empty(errors, "at least 1 access mode is required");
    spec.field("selector").label_selector(errors);
    access_modes(&modes, errors);
    let resources = spec.field("resources");
    let place = resources.path.key("storage");
    match resources.get("requests").get("storage") {
        None => errors.push(FieldError::required(&place, "")),
        Some(amount) => positive(&Field { value: amount, path: place }, errors),
    }
    spec.field("storageClassName").rule_if_set(errors, names::is_dns1123_subdomain);
    spec.field("volumeMode").one_of_if_set(errors, VOLUME_MODES);
    for name in ["dataSource", "dataSourceRef"] {
        data_source(&spec.field(name), any_group, errors);
    }
    spec.field("volumeAttributesClassName").rule_if_set(errors, names::is_dns1123_subdomain);
    let source = spec.field("dataSource");
    let reference = spec.field("dataSourceRef");
    let same = |name: &str| source.str(name) == reference.str(name);
    let alike = ["apiGroup", "kind", "name"].iter().all(|name| same(name));
    // Upstream shows an empty struct as the value.
    let refuse = |words: &str| FieldError::invalid(&spec.path, Map::new(), words);
    if !reference.str("namespace").is_empty() && source.is_set() {
        errors.push(refuse("may not be specified when dataSourceRef.namespace is specified"));
    } else if source.is_set() && reference.is_set() && !alike {
        errors.push(refuse("must match dataSourceRef"));
    }
}

pub(crate) fn access_modes(modes: &Field<'_, '_>, errors: &mut ErrorList) {
    for mode in modes.items().filter(|mode| !ACCESS_MODES.contains(&mode.text())) {
        errors.push(FieldError::not_supported(&modes.path, mode.text(), ACCESS_MODES));
    }
    let single = |mode: &Value| mode.as_str() == Some("ReadWriteOncePod");
    let other = |mode: &Value| !single(mode) && ACCESS_MODES.contains(&mode.as_str().unwrap_or(""));
    if modes.array().iter().any(single) && modes.array().iter().any(other) {
        modes.forbidden(errors, "may not use ReadWriteOncePod with other access modes");
    }
}

pub(crate) fn positive(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.quantity().is_some_and(|amount| amount.sign() <= 0) {
        at.invalid(errors, NOT_POSITIVE);
    }
}

fn data_source(at: &Field<'_, '_>, any_group: bool, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    at.field("name").not_empty(errors, "");
    at.field("kind").not_empty(errors, "");
    let group = at.str("apiGroup");
    if group.is_empty() && at.str("kind") != "PersistentVolumeClaim" {
        let words = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        at.invalid_as(errors, at.str("kind"), words);
    }
    if !any_group {
        at.field("apiGroup").rule_if_set(errors, names::is_dns1123_subdomain);
    }
    at.field("namespace").rule_if_set(errors, names::is_dns1123_label);
}

/// Validates the metadata of a claim template, which may have only labels and annotations.
pub(crate) fn template_metadata(metadata: &Field<'_, '_>, errors: &mut ErrorList) {
    const FORBIDDEN: &[(&str, &str)] = &[
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("selfLink", "selfLink"),
        ("uid", "uID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
        ("managedFields", "managedFields"),
    ];
    let annotations = metadata.field("annotations");
    errors.extend(validate_annotations(annotations.value.as_object(), &annotations.path));
    metadata.field("labels").labels(errors);
    for (name, shown) in FORBIDDEN {
        if is_given(name, metadata.get(name)) {
            metadata.field(shown).forbidden(errors, "cannot be set");
        }
    }
}

/// Returns whether a field of metadata is set; a grace period of 0 seconds is.
fn is_given(name: &str, value: &Value) -> bool {
    match (name, value) {
        ("deletionGracePeriodSeconds", value) | (_, value @ Value::Array(_)) => !value.is_null(),
        (_, Value::Int(number)) => *number != 0,
        _ => !value.is_empty(),
    }
}
