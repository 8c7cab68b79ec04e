//! The kinds of `storage.k8s.io`.

mod csi;

use super::check::{Field, default};
use crate::core::claims;
use crate::core::pod::warnings::{collect_warnings, node_label_expressions};
use crate::equality::{self, go};
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::row::{Deprecation, Row};
use crate::strategy::{Check, Generation, StatusMetadata, Strategy};
use keelson_meta::Feature;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Map, Object, Value, names};
use std::collections::{BTreeMap, BTreeSet};

const GATED_DRIVER: &[GatedField] =
    &[gate(Feature::VolumeLimitScaling, &[&["preventPodSchedulingIfMissing"]])];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "csidrivers",
        strategy: csi::driver(Strategy {
            generation: Generation::OnSpecChangeFromNone,
            unconditional_update: false,
            returns_deleted: true,
            gated: &[GatedFields { root: &["spec"], fields: GATED_DRIVER }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "csinodes",
        strategy: csi::node(Strategy {
            unconditional_update: false,
            returns_deleted: true,
            update_checks: &[Check::Metadata, Check::Rules, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "csistoragecapacities",
        strategy: capacity(Strategy {
            unconditional_update: false,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "storageclasses",
        strategy: class(Strategy {
            returns_deleted: true,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "volumeattachments",
        strategy: attachment(Strategy {
            unconditional_update: false,
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::Rules, Check::Change],
            status_checks: &[Check::Metadata, Check::Rules],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "volumeattributesclasses",
        strategy: attributes_class(Strategy {
            returns_deleted: true,
            update_checks: &[Check::MetadataChange, Check::Change, Check::Metadata, Check::Rules],
            ..Strategy::GENERIC
        }),
        deprecations: &[Deprecation {
            version: "v1beta1",
            since: 34,
            until: Some(37),
            replacement: Some("storage.k8s.io/v1 VolumeAttributesClass"),
        }],
        ..Row::PLAIN
    },
];

const PARAMETERS_BYTES_MAX: usize = 256 * 1024;
const PARAMETERS_MAX: usize = 512;
/// Topology terms that each term is compared with.
const TERMS_COMPARED_MAX: usize = 1_000;
const ERROR_BYTES_MAX: usize = 1024;
/// Maximum size of the keys and values of `status.attachmentMetadata`.
const ATTACHMENT_BYTES_MAX: usize = 256 * 1024;

/// StorageClasses.
pub(super) const fn class(base: Strategy) -> Strategy {
    Strategy {
        default: |class| {
            default(&mut class.root, "reclaimPolicy", "Delete");
            default(&mut class.root, "volumeBindingMode", "Immediate");
        },
        validate: |new, _| validate_class(new),
        warnings: |new, _| {
            collect_warnings(|warnings| {
                for term in Field::of(new, "allowedTopologies").items() {
                    for expression in term.field("matchLabelExpressions").items() {
                        let key = expression.field("key");
                        warnings.push_renamed_label(&key.path, key.text());
                    }
                }
            })
        },
        validate_change: |new, old| {
            unchanged(
                new,
                old,
                &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
            )
        },
        ..base
    }
}

fn validate_class(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    driver(&Field::of(new, "provisioner"), &mut errors);
    parameters(&Field::of(new, "parameters"), false, &mut errors);
    let policy = Field::of(new, "reclaimPolicy");
    if !policy.text().is_empty() {
        policy.one_of(&mut errors, &["Delete", "Retain"]);
    }
    let modes = &["Immediate", "WaitForFirstConsumer"];
    Field::of(new, "volumeBindingMode").one_of_if_set(&mut errors, modes);
    topologies(&Field::of(new, "allowedTopologies"), &mut errors);
    errors
}

/// Checks that fields do not change.
fn unchanged(new: &Object, old: Option<&Object>, members: &[&str]) -> ErrorList {
    let mut errors = ErrorList::new();
    for name in members {
        let stored = old.and_then(|old| old.get(name)).unwrap_or(&Value::Null);
        match *name {
            // Names are strings in Go, the other fields pointers.
            "provisioner" | "storageClassName" => {
                Field::of(new, name).unchanged_value(&mut errors, stored);
            }
            _ => Field::of(new, name).unchanged(&mut errors, stored),
        }
    }
    errors
}

fn driver(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.not_empty(errors, "") {
        let lower = at.text().to_lowercase();
        for why in names::is_qualified_name(&lower) {
            at.invalid_as(errors, lower.as_str(), &why);
        }
    }
}

fn parameters(at: &Field<'_, '_>, required: bool, errors: &mut ErrorList) {
    let entries = at.value.as_object();
    if required && entries.is_none_or(Map::is_empty) {
        return at.required(errors, "must contain at least one key/value pair");
    }
    let Some(entries) = entries else { return };
    if entries.len() > PARAMETERS_MAX {
        errors.push(FieldError::too_long(&at.path, PARAMETERS_MAX));
        return;
    }
    let mut bytes = 0;
    for (key, text) in entries.iter() {
        if key.is_empty() {
            at.invalid_as(errors, "", "field can not be empty.");
        }
        bytes += key.len() + text.as_str().map_or(0, str::len);
    }
    if bytes > PARAMETERS_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, PARAMETERS_BYTES_MAX));
    }
}

/// The values of a topology term for each key.
type Allowed<'v> = BTreeMap<&'v str, BTreeSet<&'v str>>;

fn topologies(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut terms: Vec<Allowed<'_>> = vec![];
    for term in list.items() {
        let expressions = term.field("matchLabelExpressions");
        let allowed = topology_term(&expressions, errors);
        let earlier = terms.iter().take(TERMS_COMPARED_MAX).filter(|term| **term == allowed);
        // Upstream compares an empty term with as many others as there are terms.
        let blank = if allowed.is_empty() { list.array().len() } else { 0 };
        for _ in 0..earlier.count() + blank {
            if errors.is_full() {
                break;
            }
            errors.push(FieldError::duplicate(&expressions.path, ""));
        }
        terms.push(allowed);
    }
}

fn topology_term<'v>(expressions: &Field<'v, '_>, errors: &mut ErrorList) -> Allowed<'v> {
    let mut allowed = Allowed::new();
    for expression in expressions.items() {
        let values = expression.field("values");
        values.not_empty(errors, "");
        let mut texts: BTreeSet<&str> = BTreeSet::new();
        for text in values.items() {
            if !texts.insert(text.text()) {
                text.duplicate(errors);
            }
        }
        let key = expression.field("key");
        key.rule(errors, names::is_qualified_name);
        if allowed.insert(key.text(), texts).is_some() {
            key.duplicate(errors);
        }
    }
    allowed
}

/// VolumeAttachments.
pub(super) const fn attachment(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_attachment(new),
        validate_change: attachment_unchanged,
        validate_status: |new, _| validate_attachment(new),
        ..base
    }
}

/// Checks that the spec does not change.
fn attachment_unchanged(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let spec = Field::of(new, "spec");
    let stored = old.get("spec").unwrap_or(&Value::Null);
    if !equality::equal(go::VOLUME_ATTACHMENT_SPEC, spec.value, stored) {
        let shown = spec.value.as_object().cloned().unwrap_or_default();
        spec.invalid_as(&mut errors, shown, IMMUTABLE);
    }
    errors
}

fn validate_attachment(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    crate::core::pod::volumes::driver_name(&spec.field("attacher"), &mut errors);
    let source = spec.field("source");
    let inline = source.field("inlineVolumeSpec");
    let name = source.field("persistentVolumeName");
    let words = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), name.is_set()) {
        (false, false) => source.required(&mut errors, words),
        (true, true) => source.forbidden(&mut errors, words),
        (false, true) => {
            name.not_empty(&mut errors, "must specify non empty persistentVolumeName");
        }
        (true, false) => claims::inline_volume(&inline, &mut errors),
    }
    spec.field("nodeName").rule(&mut errors, names::is_dns1123_subdomain);
    attachment_status(&Field::of(new, "status"), &mut errors);
    if name.is_set() {
        name.rule(&mut errors, names::is_dns1123_subdomain);
    }
    errors
}

fn attachment_status(status: &Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["attachError", "detachError"] {
        let error = status.field(name);
        let message = error.field("message");
        if message.text().len() > ERROR_BYTES_MAX {
            // The error names another limit, as upstream's does.
            errors.push(FieldError::too_long(&message.path, ATTACHMENT_BYTES_MAX));
        }
        error.field("errorCode").in_range_if_set(errors, 0, i32::MAX.into());
    }
    let metadata = status.field("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, at)| key.len() + at.text().len()).sum();
    if bytes > ATTACHMENT_BYTES_MAX {
        errors.push(FieldError::too_long(&metadata.path, ATTACHMENT_BYTES_MAX));
    }
}

/// CSIStorageCapacities.
pub(super) const fn capacity(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_capacity(new),
        warnings: |new, _| {
            collect_warnings(|warnings| {
                let topology = Field::of(new, "nodeTopology");
                node_label_expressions(&topology, warnings);
                let labels = topology.field("matchLabels");
                for (key, _) in labels.entries() {
                    warnings.push_renamed_label(&labels.path.field(key), key);
                }
            })
        },
        validate_change: |new, old| {
            let mut errors = unchanged(new, old, &["nodeTopology"]);
            let stored =
                old.and_then(|old| old.get("storageClassName")).cloned().unwrap_or_default();
            Field::of(new, "storageClassName").unchanged_value(&mut errors, &stored);
            errors
        },
        ..base
    }
}

fn validate_capacity(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    Field::of(new, "nodeTopology").label_selector(&mut errors);
    Field::of(new, "storageClassName").rule(&mut errors, names::is_dns1123_subdomain);
    let capacity = Field::of(new, "capacity");
    if capacity.quantity().is_some_and(|amount| amount.sign() < 0) {
        capacity.invalid(&mut errors, super::check::NOT_NEGATIVE);
    }
    errors
}

/// VolumeAttributesClasses.
pub(super) const fn attributes_class(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_attributes_class(new),
        validate_change: validate_attributes_change,
        ..base
    }
}

fn validate_attributes_class(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    driver(&Field::of(new, "driverName"), &mut errors);
    parameters(&Field::of(new, "parameters"), true, &mut errors);
    errors
}

fn validate_attributes_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    for name in ["driverName", "parameters"] {
        if new.get(name).unwrap_or(&Value::Null) != old.get(name).unwrap_or(&Value::Null) {
            let words = format!("updates to {name} are forbidden.");
            Field::of(new, name).forbidden(&mut errors, &words);
        }
    }
    errors
}
