//! CSIDrivers: what a driver of volumes can do and wants; CSINodes: which drivers a node has.

use super::check::{At, default, default_empty};
use crate::gates;
use crate::same::alike;
use crate::strategy::{Generation, Strategy};
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, Feature, FieldError, Object, Path, Seen, Str, Value, names, value};
use std::collections::HashMap;

const POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const MODES: &[&str] = &["Persistent", "Ephemeral"];
/// Seconds of a token's life.
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const UPDATE_PERIOD_SECONDS_MIN: i64 = 10;
const NODE_ID_BYTES_MAX: usize = 256;

/// CSIDrivers.
pub(super) fn driver(base: Strategy) -> Strategy {
    Strategy {
        generation: Generation::OnSpecChangeFromNone,
        default: |driver| {
            let spec = driver.object_mut("spec");
            default(spec, "attachRequired", true);
            for name in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
                default(spec, name, false);
            }
            if gates::is_on(Feature::VolumeLimitScaling) {
                default(spec, "preventPodSchedulingIfMissing", false);
            }
            default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            default_empty(spec, "volumeLifecycleModes", vec!["Persistent".into()]);
        },
        validate: |new, _| validate(new),
        validate_change,
        warnings: |new, _| {
            let spec = At::of(new, "spec");
            let is_unset = !spec.has("serviceAccountTokenInSecrets");
            if spec.field("tokenRequests").array().is_empty() || !is_unset {
                return vec![];
            }
            vec![Str::new_static(
                "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to \
                 true to prevent possible logging of tokens in volume attributes",
            )]
        },
        ..base
    }
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = At::of(new, "spec");
    spec.field("fsGroupPolicy").one_of_if_set(&mut errors, POLICIES);
    tokens(&spec, &mut errors);
    let modes = spec.field("volumeLifecycleModes");
    for mode in modes.items() {
        At { value: mode.value, path: modes.path }.one_of(&mut errors, MODES);
    }
    let period = spec.field("nodeAllocatableUpdatePeriodSeconds");
    if period.is_set() && period.number() < UPDATE_PERIOD_SECONDS_MIN {
        let words = "must be greater than or equal to 10 seconds";
        period.invalid(&mut errors, words);
    }
    errors
}

fn tokens(spec: &At<'_, '_>, errors: &mut ErrorList) {
    let requests = spec.field("tokenRequests");
    let mut seen: Seen<&str> = Seen::new();
    for request in requests.items() {
        let (audience, seconds) = (request.field("audience"), request.field("expirationSeconds"));
        if !seen.insert(audience.text()) {
            errors.push(FieldError::duplicate(&audience.path, audience.text()));
            continue;
        }
        if seconds.is_set() && seconds.number() < TOKEN_SECONDS_MIN {
            seconds.invalid(errors, "may not specify a duration less than 10 minutes");
        }
        if seconds.number() > TOKEN_SECONDS_MAX {
            seconds.invalid(errors, "may not specify a duration larger than 2^32 seconds");
        }
    }
    let in_secrets = spec.field("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && requests.array().is_empty() {
        let words = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        in_secrets.invalid(errors, words);
    }
}

fn validate_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let (spec, before) = (At::of(new, "spec"), At::of(old, "spec"));
    // The name in messages is not that of the field.
    let attach =
        At { value: spec.get("attachRequired"), path: spec.path.field("attachedRequired") };
    attach.unchanged(&mut errors, before.get("attachRequired"));
    spec.field("volumeLifecycleModes").unchanged(&mut errors, before.get("volumeLifecycleModes"));
    errors
}

/// CSINodes: the drivers of a node.
pub(super) fn node(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_node(new),
        validate_change: validate_node_change,
        ..base
    }
}

fn validate_node(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen: Seen<&str> = Seen::new();
    for driver in At::of(new, "spec").field("drivers").items() {
        let (name, id) = (driver.field("name"), driver.field("nodeID"));
        super::pod::volumes::driver_name(&name, &mut errors);
        if id.not_empty(&mut errors, "") && id.text().len() > NODE_ID_BYTES_MAX {
            id.invalid(&mut errors, &format!("must be {NODE_ID_BYTES_MAX} characters or less"));
        }
        driver.field("allocatable").field("count").not_negative(&mut errors);
        if !seen.insert(name.text()) {
            name.duplicate(&mut errors);
        }
        // Faults of keys stand at the driver.
        let mut keys: Seen<&str> = Seen::new();
        for key in driver.field("topologyKeys").items() {
            let key = At { value: key.value, path: driver.path };
            if key.text().is_empty() {
                key.required(&mut errors, "");
            }
            if !keys.insert(key.text()) {
                key.duplicate(&mut errors);
            }
            key.rule(&mut errors, names::is_qualified_name);
        }
    }
    errors
}

/// A driver stays as it is for as long as it is there; how many volumes it takes may change.
fn validate_node_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let before = old.map(|old| old.array_at(&["spec", "drivers"])).unwrap_or_default();
    let before: HashMap<&str, &Value> =
        before.iter().filter_map(|driver| Some((driver.str_at(&["name"])?, driver))).collect();
    let drivers = new.array_at(&["spec", "drivers"]);
    for driver in drivers {
        let name = driver.str_at(&["name"]).unwrap_or_default();
        let Some(stored) = before.get(name) else { continue };
        let is_same = |member: &str| {
            let value = |driver: &Value| driver.get(member).cloned().unwrap_or_default();
            alike(&value(driver), &value(stored))
        };
        if !is_same("nodeID") || !is_same("topologyKeys") {
            let spec = Path::new("spec");
            let keys = driver.get("topologyKeys").cloned().unwrap_or_default();
            // Messages show the Go struct.
            let shown = value!({
                "Name": name, "NodeID": (driver.str_at(&["nodeID"]).unwrap_or_default()),
                "TopologyKeys": (keys), "Allocatable": null
            });
            errors.push(FieldError::invalid(&spec.field("drivers"), shown, IMMUTABLE));
        }
    }
    errors
}
