//! Kinds of `storage.k8s.io`.

use super::check::{At, default, default_empty};
use super::claims;
use crate::strategy::{Generation, Strategy};
use keelson_meta::{ErrorList, FieldError, Map, Object, Seen, Value, names};

const PARAMETERS_BYTES_MAX: usize = 256 * 1024;
const PARAMETERS_MAX: usize = 512;

/// StorageClasses.
pub(super) fn class(base: Strategy) -> Strategy {
    Strategy {
        default: |class| {
            default(&mut class.root, "reclaimPolicy", "Delete");
            default(&mut class.root, "volumeBindingMode", "Immediate");
        },
        validate: validate_class,
        ..base
    }
}

fn validate_class(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(old) = old {
        for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            let at = At::of(new, name);
            at.unchanged(&mut errors, old.get(name).unwrap_or(&Value::Null));
        }
    } else {
        driver(&At::of(new, "provisioner"), &mut errors);
        parameters(&At::of(new, "parameters"), false, &mut errors);
        let policies = &["Delete", "Retain"];
        At::of(new, "reclaimPolicy").one_of_if_set(&mut errors, policies);
        let modes = &["Immediate", "WaitForFirstConsumer"];
        At::of(new, "volumeBindingMode").one_of_if_set(&mut errors, modes);
    }
    topologies(&At::of(new, "allowedTopologies"), &mut errors);
    errors
}

fn driver(at: &At<'_, '_>, errors: &mut ErrorList) {
    if at.not_empty(errors, "") {
        let lower = at.text().to_lowercase();
        for why in names::is_qualified_name(&lower) {
            at.invalid_as(errors, lower.as_str(), &why);
        }
    }
}

fn parameters(at: &At<'_, '_>, required: bool, errors: &mut ErrorList) {
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

fn topologies(list: &At<'_, '_>, errors: &mut ErrorList) {
    for term in list.items() {
        let expressions = term.field("matchLabelExpressions");
        let mut keys: Seen<&str> = Seen::new();
        for expression in expressions.items() {
            let values = expression.field("values");
            values.not_empty(errors, "");
            let mut seen: Seen<&str> = Seen::new();
            for text in values.items() {
                if !seen.insert(text.text()) {
                    text.duplicate(errors);
                }
            }
            let key = expression.field("key");
            key.rule(errors, names::is_qualified_name);
            if !keys.insert(key.text()) {
                key.duplicate(errors);
            }
        }
    }
}

/// CSIDrivers.
pub(super) fn csi_driver(base: Strategy) -> Strategy {
    Strategy {
        generation: Generation::OnSpecChange,
        default: |driver| {
            let spec = driver.object_mut("spec");
            default(spec, "attachRequired", true);
            for name in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
                default(spec, name, false);
            }
            default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            default_empty(spec, "volumeLifecycleModes", vec!["Persistent".into()]);
        },
        ..base
    }
}

/// VolumeAttachments.
pub(super) fn attachment(base: Strategy) -> Strategy {
    Strategy { validate: validate_attachment, ..base }
}

fn validate_attachment(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = At::of(new, "spec");
    let attacher = spec.field("attacher");
    attacher.not_empty(&mut errors, "");
    if !attacher.text().is_empty() {
        for why in names::is_dns1123_subdomain(&attacher.text().to_lowercase()) {
            attacher.invalid(&mut errors, &why);
        }
    }
    let source = spec.field("source");
    let (inline, name) = (source.field("inlineVolumeSpec"), source.field("persistentVolumeName"));
    let words = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), name.is_set()) {
        (false, false) => source.required(&mut errors, words),
        (true, true) => source.forbidden(&mut errors, words),
        (false, true) => {
            name.not_empty(&mut errors, "must specify non empty persistentVolumeName");
            name.rule(&mut errors, names::is_dns1123_subdomain);
        }
        (true, false) => claims::volume_spec(&inline, true, &mut errors),
    }
    spec.field("nodeName").rule(&mut errors, names::is_dns1123_subdomain);
    if let Some(old) = old {
        spec.unchanged(&mut errors, old.get("spec").unwrap_or(&Value::Null));
    }
    errors
}

/// CSIStorageCapacities.
pub(super) fn capacity(base: Strategy) -> Strategy {
    Strategy { validate: validate_capacity, ..base }
}

fn validate_capacity(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    At::of(new, "nodeTopology").label_selector(&mut errors);
    At::of(new, "storageClassName").rule(&mut errors, names::is_dns1123_subdomain);
    for name in ["capacity", "maximumVolumeSize"] {
        let at = At::of(new, name);
        if at.quantity().is_some_and(|amount| amount.sign() < 0) {
            at.invalid(&mut errors, super::check::NOT_NEGATIVE);
        }
    }
    if let Some(old) = old {
        for name in ["nodeTopology", "storageClassName"] {
            let at = At::of(new, name);
            at.unchanged(&mut errors, old.get(name).unwrap_or(&Value::Null));
        }
    }
    errors
}

/// VolumeAttributesClasses.
pub(super) fn attributes_class(base: Strategy) -> Strategy {
    Strategy { validate: validate_attributes_class, ..base }
}

fn validate_attributes_class(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else {
        driver(&At::of(new, "driverName"), &mut errors);
        parameters(&At::of(new, "parameters"), true, &mut errors);
        return errors;
    };
    for name in ["driverName", "parameters"] {
        if new.get(name) != old.get(name) {
            let words = format!("updates to {name} are forbidden.");
            At::of(new, name).forbidden(&mut errors, &words);
        }
    }
    errors
}
