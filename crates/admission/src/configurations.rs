//! [`Configurations`]: the stored webhooks and policies, kept current by watches.

pub(crate) mod match_resources;
mod policies;
pub(crate) mod policy;
pub(crate) mod policy_hooks;
pub(crate) mod review_version;
pub(crate) mod webhook;
mod webhooks;

pub use policies::PolicySet;
pub use webhooks::WebhookSet;

use crate::exempt::{GROUP, MUTATING_WEBHOOKS, POLICIES, VALIDATING_WEBHOOKS};
use keelson_auth::{Change, GroupResource, Indexer};
use std::sync::Arc;

/// The stored webhooks and policies. A request uses one snapshot from start to end; a clone copies
/// two pointers.
#[derive(Clone, Debug, Default)]
pub struct Configurations {
    /// Webhooks.
    pub webhooks: Arc<WebhookSet>,
    /// Policies and bindings.
    pub policies: Arc<PolicySet>,
}

impl Configurations {
    /// Returns whether there are no webhooks and no policies.
    pub fn is_empty(&self) -> bool {
        self.webhooks.is_empty() && self.policies.is_empty()
    }
}

impl Indexer for Configurations {
    const RESOURCES: &'static [GroupResource] = &[
        (GROUP, MUTATING_WEBHOOKS),
        (GROUP, VALIDATING_WEBHOOKS),
        (GROUP, POLICIES[0]),
        (GROUP, POLICIES[1]),
        (GROUP, POLICIES[2]),
        (GROUP, POLICIES[3]),
    ];

    fn apply(&mut self, resource: usize, change: Change) {
        let (_, name) = Self::RESOURCES[resource];
        match resource {
            0 | 1 => Arc::make_mut(&mut self.webhooks).apply(name, change),
            _ => Arc::make_mut(&mut self.policies).apply(name, change),
        }
    }
}
