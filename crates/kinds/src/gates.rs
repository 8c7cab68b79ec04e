//! What flags of the server change in the rules of kinds: the feature gates, and whether containers
//! may be privileged.
//!
//! About twenty of several hundred rules check a gate, most of them deep inside a pod, so the gates
//! are not passed as an argument. [`Strategy`](crate::Strategy) sets them for one call ([`within`])
//! on its thread. Rules neither wait nor start threads, so the result depends only on the strategy
//! and its arguments.

use keelson_meta::{Feature, Features};
use std::cell::Cell;

/// What flags of the server change in rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gates {
    /// The feature gates.
    pub features: Features,
    /// Whether containers may be privileged (`--allow-privileged`).
    pub allows_privileged: bool,
}

const DEFAULT: Gates = Gates { features: Features::DEFAULT, allows_privileged: true };

thread_local! {
    static CURRENT: Cell<Gates> = const { Cell::new(DEFAULT) };
}

/// Calls `rules` with these gates.
pub(crate) fn within<R>(gates: Gates, rules: impl FnOnce() -> R) -> R {
    /// Restores the previous gates, even if a rule panics.
    struct Restore(Gates);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(gates));
    rules()
}

/// Calls rules of this crate that are not called by a strategy, with these features.
pub fn with_features<R>(features: Features, rules: impl FnOnce() -> R) -> R {
    within(Gates { features, ..DEFAULT }, rules)
}

/// Calls `rules` with a feature enabled if a stored object uses it already, which is looked up only
/// if the feature is off.
pub(crate) fn with_used<R>(
    feature: Feature,
    is_used: impl FnOnce() -> bool,
    rules: impl FnOnce() -> R,
) -> R {
    if is_on(feature) || !is_used() {
        return rules();
    }
    let gates = CURRENT.get();
    within(Gates { features: gates.features.with(feature, true), ..gates }, rules)
}

/// Returns whether a feature is enabled in the current call.
pub(crate) fn is_on(feature: Feature) -> bool {
    CURRENT.get().features.is_on(feature)
}

/// Returns whether containers may be privileged in the current call.
pub(crate) fn allows_privileged() -> bool {
    CURRENT.get().allows_privileged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_last_for_one_call() {
        let on = Features::default().with(Feature::GangScheduling, true);
        let on = Gates { features: on, ..DEFAULT };
        let gang = || is_on(Feature::GangScheduling);
        assert!(!gang());
        assert!(within(on, || within(DEFAULT, || !gang()) && gang()));
        let panicked = std::panic::catch_unwind(|| within(on, || panic!("a rule")));
        assert!(panicked.is_err() && !gang());
    }
}
