//! Auditing: which requests become events ([`Policy`]), what an event says ([`Event`]), and where
//! events are stored ([`Audit`]).
//!
//! Guarantees: this crate never decides about a request; the caller does, from what
//! [`Audit::process`] returns. Policy and events are pure. Every buffer has a maximum, and each
//! event that is lost is counted in a metric, logged, and named in the next event of its backend.

mod audit;
mod backend;
mod encoded;
mod event;
mod legacy;
mod level;
mod metrics;
mod policy;
mod request;

pub use audit::{Audit, NotStored, Prepared};
pub use backend::{
    Backend, Batching, LogFile, LogFileOptions, Mode, Truncation, Webhook, WebhookOptions,
};
pub use encoded::Format;
pub use event::{Event, ObjectReference, ResponseStatus};
pub use level::{Level, Stage, Stages};
pub use metrics::Metrics;
pub use policy::{Policy, PolicyError, RequestConfig};
pub use request::{RequestUri, Sender, request_uri};
