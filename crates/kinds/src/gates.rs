//! The feature gates that the rules of kinds use.
//!
//! About twenty of several hundred rules check a gate, most of them deep inside a pod, so the gates are not passed as
//! an argument. [`Strategy`](crate::Strategy) sets them for one call ([`within`]) on its thread. Rules neither wait
//! nor start threads, so the result depends only on the strategy and its arguments.

use keelson_meta::{Feature, Features};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Features> = const { Cell::new(Features::DEFAULT) };
}

/// Calls `rules` with these features.
pub(crate) fn within<R>(features: Features, rules: impl FnOnce() -> R) -> R {
    /// Restores the previous features, even if a rule panics.
    struct Restore(Features);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(features));
    rules()
}

/// Returns whether a feature is enabled in the current call.
pub(crate) fn is_on(feature: Feature) -> bool {
    CURRENT.get().is_on(feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_last_for_one_call() {
        let on = Features::default().with(Feature::GangScheduling, true);
        let gang = || is_on(Feature::GangScheduling);
        assert!(!gang());
        assert!(within(on, || within(Features::default(), || !gang()) && gang()));
        let panicked = std::panic::catch_unwind(|| within(on, || panic!("a rule")));
        assert!(panicked.is_err() && !gang());
    }
}
