//! Admission policies in CEL: the policies and bindings that are stored ([`PolicySet`]), and the plug-ins
//! that evaluate them ([`ValidatingPolicies`], [`MutatingPolicies`]).

mod hooks;
mod matching;
mod mutating;
mod params;
mod patch;
mod policy;
mod round;
mod seen;
mod validating;

pub use mutating::{MutatingPolicies, Rounds};
pub use validating::ValidatingPolicies;

use crate::exempt::POLICIES;
use hooks::Kinds;
use keelson_auth::Change;

/// The policies and bindings that are stored.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    validating: Kinds,
    mutating: Kinds,
}

impl PolicySet {
    /// Whether no policy has a binding.
    pub fn is_empty(&self) -> bool {
        self.validating.hooks().is_empty() && self.mutating.hooks().is_empty()
    }

    /// Takes in a change of a policy or binding of `resource`.
    pub(crate) fn apply(&mut self, resource: &str, change: Change) {
        let is_binding = [POLICIES[1], POLICIES[3]].contains(&resource);
        let kinds = match resource.starts_with("mutating") {
            true => &mut self.mutating,
            false => &mut self.validating,
        };
        kinds.apply(is_binding, change);
    }
}
