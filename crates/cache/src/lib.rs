//! Latest state and recent history of every resource. Reads are served from here and never from the
//! store.
//!
//! - An object is kept as the bytes that GET, LIST and WATCH send
//!   ([`Entry`](keelson_records::Entry)); selectors read labels and fields from the same buffer.
//! - The objects of a resource are a persistent ordered set: a [`Snapshot`] is O(1) and never
//!   changes.
//! - Objects that are much alike share most of their bytes (`fold.rs`).
//! - The changes of a resource are in one ring ([`Change`]), the older ones as differences. A
//!   [`Cursor`] is a position in the ring. A cursor that falls behind the ring ends; nothing waits
//!   for it and nothing is retained for it.
//! - An object that cannot be read is reported as an error and does not affect others.
//! - A label or field that lists of a large resource select repeatedly gets an index.
//! - Every read has a known revision: see [`Cache::revision`] and [`Cache::wait`].

mod cache;
mod fold;
mod follower;
mod history;
mod index;
mod publish;
mod resource;

pub use cache::{Cache, CacheError, Position, StartError, StoreSource};
pub use follower::Follower;
pub use history::{Change, ChangeKind, HISTORY_BYTES_MAX, HISTORY_EVENTS_MAX};
pub use index::Term;
pub use resource::{Cursor, CursorError, Resource, ResourceCounts, Snapshot};
