//! [`Reinvocation`]: the state of mutating webhooks and policies between their two rounds.

use crate::configurations::webhook::Webhook;
use keelson_meta::{Object, Str};
use std::collections::BTreeSet;

/// Whether the mutating plug-ins are to run again after a change, and what each has seen.
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// This is the second round.
    pub is_reinvoked: bool,
    /// A plug-in wants the second round.
    pub is_requested: bool,
    /// State of the webhooks between the rounds.
    pub webhooks: WebhookRounds,
    /// State of the mutating policies between the rounds.
    pub policies: PolicyRounds,
}

/// State of the webhooks between the rounds.
#[derive(Debug, Default)]
pub struct WebhookRounds {
    /// Webhooks with `reinvocationPolicy: IfNeeded` after which nothing has changed: configuration, name.
    pub(crate) previous: Vec<(Str, Str)>,
    /// Those after which something has.
    pub(crate) again: Vec<(Str, Str)>,
    /// The object after the last webhook, while there is one that may be called again.
    pub(crate) output: Option<Object>,
}

impl WebhookRounds {
    /// The object has changed after the webhooks that were called.
    pub(crate) fn require_previous(&mut self) {
        self.again.append(&mut self.previous);
    }

    /// Begins the second round: other plug-ins may have changed the object since the first.
    pub(crate) fn begin(&mut self, object: Option<&Object>) {
        if self.output.take().is_some_and(|output| object != Some(&output)) {
            self.require_previous();
        }
    }

    pub(crate) fn end(&mut self, object: Option<&Object>) {
        if !self.previous.is_empty() {
            self.output = object.cloned();
        }
    }

    pub(crate) fn is_wanted(&self, webhook: &Webhook) -> bool {
        self.again.iter().any(|(configuration, name)| webhook.key() == (configuration, name))
    }
}

/// Which policies have changed an object, and which are to look at it again.
#[derive(Debug, Default)]
pub struct PolicyRounds {
    /// The object as the policies left it.
    pub(crate) last: Option<Object>,
    /// Policies that look again when others change the object after them, with binding and parameter.
    pub(crate) invoked: BTreeSet<String>,
    /// Those for which that has happened.
    pub(crate) again: BTreeSet<String>,
}

impl PolicyRounds {
    /// Lets all that have looked so far look again.
    pub(crate) fn recall_invoked(&mut self) {
        self.again.append(&mut self.invoked);
    }

    /// What changed the object since the policies left it may be reason for them to look again.
    pub(crate) fn begin(&mut self, is_reinvoked: bool, object: Option<&Object>) {
        if is_reinvoked && self.last.as_ref() != object {
            self.recall_invoked();
        }
    }
}
