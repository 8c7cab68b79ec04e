//! CSIDrivers: what a driver of volumes can do and wants.

use super::check::{At, child, default, default_empty};
use crate::strategy::{Generation, Strategy};
use keelson_meta::{ErrorList, FieldError, Object, Seen, Str};

const POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const MODES: &[&str] = &["Persistent", "Ephemeral"];
/// Seconds of a token's life.
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const UPDATE_PERIOD_SECONDS_MIN: i64 = 10;

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
            default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            default_empty(spec, "volumeLifecycleModes", vec!["Persistent".into()]);
        },
        prepare_create: |driver| {
            // Belongs to a feature that is off.
            if let Some(spec) = child(&mut driver.root, "spec") {
                spec.remove("preventPodSchedulingIfMissing");
            }
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
