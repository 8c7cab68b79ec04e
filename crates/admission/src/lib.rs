//! Admission: the plug-ins that change an object before it is stored, or refuse it.
//!
//! Built-in plug-ins ([`Chain`]) do no IO, read no clock and are not async: they see the [`Request`], and
//! read stored objects through [`Stored`]. Webhooks and policies ([`DynamicPlugIn`]) may wait: they see
//! [`Attributes`], and the API through [`Api`]. No plug-in writes.

mod admission_request;
mod attributes;
mod certificates;
mod chain;
mod configurations;
mod decisions;
mod ingress_class;
mod limit_ranger;
mod match_conditions;
pub mod namespace_lifecycle;
mod node_restriction;
mod nodes;
mod pod;
mod pod_security;
pub mod policies;
mod priority;
pub mod quota;
mod request;
mod rules;
mod runtime_class;
mod service_account;
mod storage;
mod tolerations;
pub mod webhooks;

pub use attributes::{Api, Attributes, Call, DynamicPlugIn, Notes, Pending, Reinvocation};
pub use chain::{Chain, NameError};
pub use configurations::Configurations;
pub use decisions::Decisions;
pub use match_conditions::{MatchConditions, Matched};
pub use pod::{Amounts, amounts};
pub use request::{Operation, Request, Stored};
