//! The built-in admission plug-ins: what changes an object before it is stored, and what refuses it,
//! by looking at other objects.
//!
//! Promise: no IO, no clock. A plug-in sees the request and reads stored objects through [`Stored`]; it
//! writes nothing, so that a dry run needs no care here. Only what asks an authorizer waits.

mod certificates;
mod chain;
mod decisions;
mod ingress_class;
mod limit_ranger;
mod match_conditions;
pub mod namespace_lifecycle;
mod node_restriction;
mod nodes;
mod pod;
mod pod_security;
mod priority;
pub mod quota;
mod request;
mod runtime_class;
mod service_account;
mod storage;
mod tolerations;

pub use chain::{Chain, NameError};
pub use decisions::Decisions;
pub use match_conditions::{MatchConditions, Matched};
pub use pod::{Amounts, amounts};
pub use request::{Operation, Request, Stored};
