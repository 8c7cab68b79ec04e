//! [`PolicySet`]: the policies and bindings that are stored.

use super::hooks::{Hooks, Kinds};
use crate::exempt::POLICIES;
use keelson_auth::Change;
use std::sync::Arc;

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

    /// The validating policies that have bindings.
    pub(crate) fn validating(&self) -> &Arc<Hooks> {
        self.validating.hooks()
    }

    /// The mutating policies that have bindings.
    pub(crate) fn mutating(&self) -> &Arc<Hooks> {
        self.mutating.hooks()
    }
}
