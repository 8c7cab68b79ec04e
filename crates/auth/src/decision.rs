//! [`Decision`]: the decision of an authorizer and its reason.

use crate::grant::Grant;
use keelson_meta::Failure;
use std::fmt;

/// The opinion of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Allowed. No further authorizer is called.
    Allow,
    /// Denied, whatever other authorizers decide.
    Deny,
    /// The next authorizer decides; if none allows, the request is forbidden.
    NoOpinion,
}

/// The decision of an authorizer, with its reason.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The outcome.
    pub outcome: Outcome,
    /// The reason.
    pub reason: AuthorizationReason,
    /// An error of the evaluation. Does not change the outcome.
    pub error: Option<Failure>,
}

/// The reason of a decision. Formatted only on demand.
#[derive(Clone, Debug, Default)]
pub enum AuthorizationReason {
    /// No reason.
    #[default]
    Empty,
    /// A text.
    Text(String),
    /// A role binding of RBAC.
    Rbac(Grant),
}

impl fmt::Display for AuthorizationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorizationReason::Empty => Ok(()),
            AuthorizationReason::Text(text) => f.write_str(text),
            AuthorizationReason::Rbac(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

impl Decision {
    /// Returns an allow with a reason.
    pub fn allow(reason: AuthorizationReason) -> Decision {
        Decision { outcome: Outcome::Allow, reason, error: None }
    }

    /// Returns no opinion with a reason, which may be empty.
    pub fn no_opinion(reason: String) -> Decision {
        let reason = match reason.is_empty() {
            true => AuthorizationReason::Empty,
            false => AuthorizationReason::Text(reason),
        };
        Decision { outcome: Outcome::NoOpinion, reason, error: None }
    }

    /// Returns no opinion because of an error.
    pub fn failed(error: Failure) -> Decision {
        Decision { error: Some(error), ..Decision::no_opinion(String::new()) }
    }

    /// Returns whether the outcome is `Allow`.
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allow
    }
}
