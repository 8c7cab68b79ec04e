//! [`PolicySet`]: the stored policies and bindings.

use super::policy_hooks::{PolicyHooks, PolicyKind};
use crate::exempt::POLICIES;
use keelson_auth::Change;
use std::sync::Arc;

/// The stored policies and bindings.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    validating: PolicyKind,
    mutating: PolicyKind,
}

impl PolicySet {
    /// Returns whether no policy has a binding.
    pub fn is_empty(&self) -> bool {
        self.validating.hooks().is_empty() && self.mutating.hooks().is_empty()
    }

    /// Applies a change of a policy or binding of `resource`.
    pub(crate) fn apply(&mut self, resource: &str, change: Change) {
        let is_binding = [POLICIES[1], POLICIES[3]].contains(&resource);
        let kinds = match resource.starts_with("mutating") {
            true => &mut self.mutating,
            false => &mut self.validating,
        };
        kinds.apply(is_binding, change);
    }

    /// Returns the validating policies that have bindings.
    pub(crate) fn validating(&self) -> &Arc<PolicyHooks> {
        self.validating.hooks()
    }

    /// Returns the mutating policies that have bindings.
    pub(crate) fn mutating(&self) -> &Arc<PolicyHooks> {
        self.mutating.hooks()
    }
}
