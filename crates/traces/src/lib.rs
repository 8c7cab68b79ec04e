//! Spans of requests (OpenTelemetry's model): what was done for a request, how long each step took,
//! and which request of another process asked for it.
//!
//! A [`Tracer`] starts spans and keeps those that have ended in a bounded queue, from which an
//! exporter takes them. The current [`Span`] of a task is its parent for spans that are started
//! further down ([`start`]), so that no signature carries it. Without a tracer every operation is a
//! look at a task-local variable.

mod context;
mod current;
mod finished;
pub mod otlp;
mod queue;
mod span;
mod tracer;

pub use context::{Baggage, SpanContext, SpanId, TraceId};
pub use current::{HTTP, STEPS, current, in_current, propagate, start, start_client};
pub use finished::{Attribute, Event, FinishedSpan, Kind};
pub use queue::QUEUE_SPANS_MAX;
pub use span::Span;
pub use tracer::Tracer;
