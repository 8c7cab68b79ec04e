//! The servers behind this one, which APIServices name: how they are reached ([`peer`]), what they
//! are told about users ([`user_headers`]), whether they are available and what they serve
//! ([`Probes`]). They are reached by `egress` alone (kube-aggregator).

mod asker;
mod calls;
mod discovery;
mod documents;
mod peer;
mod probes;
mod service_resolver;

pub use asker::Identities;
pub use calls::calls;
pub use peer::{extra_header, peer, remove_user_headers, user_headers};
pub use probes::{Outcome, Pace, Probes};
pub use service_resolver::ServiceResolver;
