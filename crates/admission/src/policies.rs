//! Admission policies in CEL: the policies, their bindings, and the plug-ins that evaluate them.

use keelson_auth::Change;
use keelson_meta::Str;
use std::collections::BTreeSet;

/// The policies and bindings that are stored.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    names: BTreeSet<Str>,
}

impl PolicySet {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Takes in a change of a policy or binding of `resource`.
    pub(crate) fn apply(&mut self, _resource: &str, _change: Change) {}
}
