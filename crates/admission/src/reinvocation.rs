//! [`Reinvocation`]: the state of mutating webhooks and policies between two rounds.

use crate::configurations::webhook::Webhook;
use keelson_meta::{Object, Str};
use std::collections::BTreeSet;

/// Whether the mutating plug-ins run a second round, and their state between the rounds.
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// This is the second round.
    pub is_reinvoked: bool,
    /// A plug-in requests a second round.
    pub is_requested: bool,
    /// State of the webhooks between the rounds.
    pub webhooks: WebhookRounds,
    /// State of the mutating policies between the rounds.
    pub policies: PolicyRounds,
}

/// State of the webhooks between the rounds.
#[derive(Debug, Default)]
pub struct WebhookRounds {
    /// Webhooks with `reinvocationPolicy: IfNeeded` since whose call nothing has changed:
    /// configuration, name.
    pub(crate) previous: Vec<(Str, Str)>,
    /// Webhooks to call again because the object changed after their call.
    pub(crate) again: Vec<(Str, Str)>,
    /// The object after the last webhook, if a webhook may be called again.
    pub(crate) output: Option<Object>,
}

impl WebhookRounds {
    /// Schedules all previous webhooks, because the object has changed.
    pub(crate) fn schedule_previous(&mut self) {
        self.again.append(&mut self.previous);
    }

    /// Begins the second round: schedules them if other plug-ins changed the object.
    pub(crate) fn begin(&mut self, object: Option<&Object>) {
        if self.output.take().is_some_and(|output| object != Some(&output)) {
            self.schedule_previous();
        }
    }

    pub(crate) fn end(&mut self, object: Option<&Object>) {
        if !self.previous.is_empty() {
            self.output = object.cloned();
        }
    }

    pub(crate) fn should_call(&self, webhook: &Webhook) -> bool {
        self.again.iter().any(|(configuration, name)| webhook.key() == (configuration, name))
    }
}

/// Which policies were applied, and which are to be applied again.
#[derive(Debug, Default)]
pub struct PolicyRounds {
    /// The object after the last policy.
    pub(crate) last: Option<Object>,
    /// Keys of policies with `reinvocationPolicy: IfNeeded` that were applied.
    pub(crate) invoked: BTreeSet<String>,
    /// Keys of policies to apply again because the object changed after them.
    pub(crate) again: BTreeSet<String>,
}

impl PolicyRounds {
    /// Schedules all applied policies again.
    pub(crate) fn schedule_invoked(&mut self) {
        self.again.append(&mut self.invoked);
    }

    /// Begins a round: schedules applied policies if the object changed since the last policy.
    pub(crate) fn begin(&mut self, is_reinvoked: bool, object: Option<&Object>) {
        if is_reinvoked && self.last.as_ref() != object {
            self.schedule_invoked();
        }
    }
}
