//! API priority and fairness: FlowSchemas say to which priority level and flow a request belongs, a
//! level says how many seats its requests may have at once, and its queues share them fairly
//! between flows.
//!
//! No IO, no clock, no tasks: the time comes in as nanoseconds since any fixed moment, and whoever
//! waits is a value of the caller, which he gets back when the request may start. Every operation
//! on a level costs at most a scan of its queues.

mod borrowing;
mod demand;
mod estimate;
mod level;
mod retry_after;
mod schema;
mod shards;

pub use borrowing::{Claim, Limits, allocate};
pub use demand::{Demand, Period};
pub use estimate::{LIST_SEATS_MAX, MUTATION_SEATS_MAX, Work, list_work, mutation_work, seats_max};
pub use level::{Arrival, Level, QueueDump, Rejection, Seat, Started, Ticket};
pub use retry_after::RetryAfter;
pub use schema::{FlowSchema, LevelSpec, Request, RequestTarget, Shape};
pub use shards::{Flow, HAND_MAX};

/// Nanoseconds since a fixed moment.
pub type Nanoseconds = u64;

/// Returns the seconds between two times; none if they are in the wrong order.
fn seconds_between(from: Nanoseconds, to: Nanoseconds) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}
