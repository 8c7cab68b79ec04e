//! CSIDrivers and CSINodes.

use crate::check::{Field, default, default_empty};
use crate::equality::equal_or_empty;
use crate::gates;
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{
    ErrorList, Feature, FieldError, Object, Path, SmallSet, Str, Value, names, value,
};
use std::collections::HashMap;

const POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const MODES: &[&str] = &["Persistent", "Ephemeral"];
/// Limits of a token's `expirationSeconds`.
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const UPDATE_PERIOD_SECONDS_MIN: i64 = 10;
const NODE_ID_BYTES_MAX: usize = 256;

/// CSIDrivers.
pub(super) const fn driver(base: Strategy) -> Strategy {
    Strategy {
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
            let spec = Field::of(new, "spec");
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
    let spec = Field::of(new, "spec");
    spec.field("fsGroupPolicy").one_of_if_set(&mut errors, POLICIES);
    tokens(&spec, &mut errors);
    let modes = spec.field("volumeLifecycleModes");
    for mode in modes.items() {
        Field { value: mode.value, path: modes.path }.one_of(&mut errors, MODES);
    }
    let period = spec.field("nodeAllocatableUpdatePeriodSeconds");
    if period.is_set() && period.number() < UPDATE_PERIOD_SECONDS_MIN {
        let words = "must be greater than or equal to 10 seconds";
        period.invalid(&mut errors, words);
    }
    errors
}

fn tokens(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let requests = spec.field("tokenRequests");
    let mut seen: SmallSet<&str> = SmallSet::new();
    for request in requests.items() {
        let audience = request.field("audience");
        let seconds = request.field("expirationSeconds");
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
    let spec = Field::of(new, "spec");
    let before = Field::of(old, "spec");
    // Upstream's messages use another name for the field.
    let attach =
        Field { value: spec.get("attachRequired"), path: spec.path.field("attachedRequired") };
    attach.unchanged(&mut errors, before.get("attachRequired"));
    spec.field("volumeLifecycleModes").unchanged(&mut errors, before.get("volumeLifecycleModes"));
    errors
}

/// CSINodes.
pub(super) const fn node(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_node(new),
        validate_change: validate_node_change,
        ..base
    }
}

fn validate_node(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen: SmallSet<&str> = SmallSet::new();
    for driver in Field::of(new, "spec").field("drivers").items() {
        let name = driver.field("name");
        let id = driver.field("nodeID");
        crate::core::pod::volumes::driver_name(&name, &mut errors);
        if id.not_empty(&mut errors, "") && id.text().len() > NODE_ID_BYTES_MAX {
            id.invalid(&mut errors, &format!("must be {NODE_ID_BYTES_MAX} characters or less"));
        }
        driver.field("allocatable").field("count").not_negative(&mut errors);
        if !seen.insert(name.text()) {
            name.duplicate(&mut errors);
        }
        // Errors of keys have the path of the driver.
        let mut keys: SmallSet<&str> = SmallSet::new();
        for key in driver.field("topologyKeys").items() {
            let key = Field { value: key.value, path: driver.path };
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

/// Checks that a driver does not change, except for its `allocatable` count.
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
            equal_or_empty(&value(driver), &value(stored))
        };
        if !is_same("nodeID") || !is_same("topologyKeys") {
            let spec = Path::new("spec");
            let keys = driver.get("topologyKeys").cloned().unwrap_or_default();
            // The message shows the Go struct.
            let shown = value!({
                "Name": name, "NodeID": (driver.str_at(&["nodeID"]).unwrap_or_default()),
                "TopologyKeys": (keys), "Allocatable": null
            });
            errors.push(FieldError::invalid(&spec.field("drivers"), shown, IMMUTABLE));
        }
    }
    errors
}
