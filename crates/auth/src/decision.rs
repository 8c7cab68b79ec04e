//! [`Decision`]: what an authorizer answers, and why.

use crate::grant::Grant;
use keelson_meta::Failure;
use std::fmt;

/// The opinion of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Yes. No further authorizer is asked.
    Allow,
    /// No, whatever other authorizers say.
    Deny,
    /// Others decide; when none allows it, it is forbidden.
    NoOpinion,
}

/// The decision of an authorizer, with its reason.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Yes, no, or no opinion.
    pub outcome: Outcome,
    /// Why.
    pub reason: AuthorizationReason,
    /// What went wrong while deciding. Never a yes by itself.
    pub error: Option<Failure>,
}

/// Why an authorizer decided so. Put into words only when somebody reads it.
#[derive(Clone, Debug, Default)]
pub enum AuthorizationReason {
    /// Nothing to say.
    #[default]
    Empty,
    /// In words.
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
    /// Allowed, for a reason.
    pub fn allow(reason: AuthorizationReason) -> Decision {
        Decision { outcome: Outcome::Allow, reason, error: None }
    }

    /// No opinion, for a reason in words, which may be empty.
    pub fn no_opinion(reason: String) -> Decision {
        let reason = match reason.is_empty() {
            true => AuthorizationReason::Empty,
            false => AuthorizationReason::Text(reason),
        };
        Decision { outcome: Outcome::NoOpinion, reason, error: None }
    }

    /// No opinion, because it could not be found out.
    pub fn failed(error: Failure) -> Decision {
        Decision { error: Some(error), ..Decision::no_opinion(String::new()) }
    }

    /// Whether it is a yes.
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allow
    }
}
