//! The feature gates that the rules of kinds look at.
//!
//! Rules are plain functions, and some twenty of several hundred look at a gate, most of them deep within a
//! pod. So the gates are not an argument of each: [`Strategy`](crate::Strategy) sets them for the length
//! of one call ([`within`]), on the thread of that call. Rules neither wait nor start threads, so
//! that the answer depends on the strategy and its arguments only.

use keelson_meta::{Feature, Features};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Features> = const { Cell::new(Features::DEFAULT) };
}

/// Calls `rules` with these features.
pub(crate) fn within<R>(features: Features, rules: impl FnOnce() -> R) -> R {
    /// Puts back what was there before, also when a rule panics.
    struct Restore(Features);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(features));
    rules()
}

/// Whether a feature is on for the call that is running.
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
