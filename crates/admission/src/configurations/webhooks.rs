//! [`WebhookSet`]: the stored webhook configurations.

use super::webhook::Webhook;
use crate::exempt::MUTATING_WEBHOOKS;
use keelson_auth::Change;
use keelson_meta::{Object, Str};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The webhooks of one configuration, in order.
type Configuration = Arc<[Webhook]>;

/// The stored webhook configurations by name, compiled when they change.
#[derive(Clone, Default)]
pub struct WebhookSet {
    mutating: BTreeMap<Str, Configuration>,
    validating: BTreeMap<Str, Configuration>,
}

impl fmt::Debug for WebhookSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSet")
            .field("mutating", &self.mutating.keys())
            .field("validating", &self.validating.keys())
            .finish()
    }
}

impl WebhookSet {
    /// Returns whether there are no configurations.
    pub fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// Returns whether there is a MutatingWebhookConfiguration.
    pub(crate) fn has_mutating(&self) -> bool {
        !self.mutating.is_empty()
    }

    /// Returns whether there is a ValidatingWebhookConfiguration.
    pub(crate) fn has_validating(&self) -> bool {
        !self.validating.is_empty()
    }

    /// Returns the mutating webhooks in the order of their calls.
    pub(crate) fn mutating(&self) -> impl Iterator<Item = &Webhook> {
        self.mutating.values().flat_map(|configuration| configuration.iter())
    }

    /// Returns the validating webhooks; the first rejection in this order is returned to the
    /// client.
    pub(crate) fn validating(&self) -> impl Iterator<Item = &Webhook> {
        self.validating.values().flat_map(|configuration| configuration.iter())
    }

    /// Applies a change of a configuration of `resource`.
    pub(crate) fn apply(&mut self, resource: &str, change: Change) {
        let configurations =
            if resource == MUTATING_WEBHOOKS { &mut self.mutating } else { &mut self.validating };
        match change {
            Change::Reset => configurations.clear(),
            Change::Gone { name, .. } => {
                configurations.remove(&name);
            }
            Change::Put(object) => {
                configurations.insert(Str::new(object.name()), compiled(&object));
            }
        }
    }
}

fn compiled(object: &Object) -> Configuration {
    let configuration = Str::new(object.name());
    let webhooks = object.array_at(&["webhooks"]).iter();
    webhooks.map(|webhook| Webhook::new(&configuration, webhook)).collect()
}
