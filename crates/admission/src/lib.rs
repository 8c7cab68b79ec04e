//! The built-in admission plug-ins: what changes an object before it is stored, and what refuses it,
//! by looking at other objects.
//!
//! Promise: no IO, no clock, no async. A plug-in sees the request and reads stored objects through
//! [`Stored`]; it writes nothing, so that a dry run needs no care here.

mod certificates;
mod chain;
mod ingress_class;
mod limit_ranger;
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
pub use pod::{Amounts, amounts};
pub use request::{Operation, Request, Stored};
