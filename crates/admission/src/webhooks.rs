//! Admission webhooks: the configurations, and the plug-ins that call them.

use keelson_auth::Change;
use keelson_meta::Str;
use std::collections::BTreeSet;

/// The webhook configurations that are stored.
#[derive(Clone, Debug, Default)]
pub struct WebhookSet {
    names: BTreeSet<Str>,
}

impl WebhookSet {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Takes in a change of a configuration of `resource`.
    pub(crate) fn apply(&mut self, _resource: &str, _change: Change) {}
}
