//! The kinds of `coordination.k8s.io`: Leases and LeaseCandidates.

use crate::check::Field;
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::gates;
use crate::row::{Deprecation, Row};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Feature, Object, Value, names};

const GATED_LEASE: &[GatedField] =
    &[gate(Feature::CoordinatedLeaderElection, &[&["strategy"], &["preferredHolder"]])];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "leasecandidates",
        strategy: candidate(Strategy { unconditional_update: false, ..Strategy::GENERIC }),
        deprecations: &[
            Deprecation { version: "v1beta1", since: 36, until: Some(39), replacement: None },
            Deprecation { version: "v1alpha2", since: 35, until: Some(38), replacement: None },
        ],
        ..Row::PLAIN
    },
    Row {
        resource: "leases",
        strategy: lease(Strategy {
            create_on_update: true,
            unconditional_update: false,
            standard_finalizers: false,
            gated: &[GatedFields { root: &["spec"], fields: GATED_LEASE }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
];

const OLDEST: &str = "OldestEmulationVersion";

/// Leases.
pub(super) const fn lease(base: Strategy) -> Strategy {
    Strategy { validate: |new, _| validate_lease(new), ..base }
}

/// LeaseCandidates.
pub(super) const fn candidate(base: Strategy) -> Strategy {
    Strategy {
        name_rule: |name, _| names::is_config_map_key(name),
        validate: |new, _| validate_candidate(new),
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            let before = old.and_then(|old| old.at(&["spec", "leaseName"]));
            let spec = Field::of(new, "spec");
            spec.field("leaseName").unchanged(&mut errors, before.unwrap_or(&Value::Null));
            errors
        },
        ..base
    }
}

fn validate_lease(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let seconds = spec.field("leaseDurationSeconds");
    if seconds.is_set() && seconds.number() <= 0 {
        seconds.invalid(&mut errors, "must be greater than 0");
    }
    spec.field("leaseTransitions").not_negative(&mut errors);
    if !gates::is_on(Feature::CoordinatedLeaderElection) {
        return errors;
    }
    let chosen = spec.field("strategy");
    if chosen.is_set() {
        strategy(&chosen, &mut errors);
    }
    let holder = spec.field("preferredHolder");
    if !holder.text().is_empty() && chosen.text().is_empty() {
        holder.forbidden(&mut errors, "may only be specified if `strategy` is defined");
    }
    errors
}

/// Validates a strategy: one of Kubernetes, or one with another domain.
fn strategy(at: &Field<'_, '_>, errors: &mut ErrorList) {
    // Upstream's path has the field twice.
    let at = Field { value: at.value, path: at.path.field("strategy") };
    if at.text().contains('/') {
        at.rule(errors, names::is_qualified_name);
    } else {
        at.one_of(errors, &[OLDEST]);
    }
}

fn validate_candidate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    spec.field("leaseName").not_empty(&mut errors, "");
    let binary = spec.field("binaryVersion");
    let emulation = spec.field("emulationVersion");
    let is_given = !emulation.text().is_empty();
    // An absent version is the lowest.
    let lowest = Some(([0; 3], true));
    let emulated = if is_given { version(emulation.text()) } else { lowest };
    if is_given && emulated.is_none() {
        emulation.invalid(&mut errors, "must be a valid semantic version");
    }
    if binary.not_empty(&mut errors, "") {
        let built = version(binary.text());
        if built.is_none() {
            binary.invalid(&mut errors, "must be a valid semantic version");
        }
        if emulated.as_ref().is_some_and(|emulated| built.as_ref().is_none_or(|v| v < emulated)) {
            binary.invalid(&mut errors, "must be greater than or equal to `emulationVersion`");
        }
    }
    let chosen = spec.field("strategy");
    if chosen.text() == OLDEST && (!is_given || emulated.is_none()) {
        let words = "must be specified when `strategy` is 'OldestEmulationVersion'";
        emulation.required(&mut errors, words);
    }
    if chosen.not_empty(&mut errors, "") {
        strategy(&chosen, &mut errors);
    }
    errors
}

/// Parses a semantic version into its numbers and whether it is a release; pre-releases sort before
/// it.
fn version(text: &str) -> Option<([u64; 3], bool)> {
    let (text, build) =
        text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let fits = |words: Option<&str>| words.is_none_or(|words| words.split('.').all(is_word));
    if !fits(pre) || !fits(build) {
        return None;
    }
    let number = |word: &str| {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = word == "0" || !word.starts_with('0');
        (is_plain && is_short).then(|| word.parse().ok()).flatten()
    };
    let numbers: Option<Vec<u64>> = core.split('.').map(number).collect();
    Some((numbers?.try_into().ok()?, pre.is_none()))
}
