//! Latest state and recent history of every resource. Reads are made here and never go to the store.
//!
//! - An object is kept as the bytes that GET, LIST and WATCH send ([`Entry`]); what selectors need is
//!   read from the same buffer.
//! - The objects of a resource are a persistent ordered set: a [`Snapshot`] costs nothing to take and
//!   never changes, so a list at a past revision or a continue token is a held snapshot.
//! - The changes of a resource stand in one ring ([`Change`]), the older ones as differences; a [`Cursor`] is a
//!   place in it. A cursor that falls out of the ring is cut; nobody waits for it and nothing is kept for it.
//! - An object that cannot be read is told of as such, and takes nothing else with it.
//! - A label or field that large lists are asked for again and again gets an index.
//! - Every read says how new it is: see [`Cache::revision`] and [`Cache::wait`].

mod cache;
mod difference;
mod entry;
mod follower;
mod history;
mod prefix;
#[cfg(test)]
mod random;
mod resource;
mod selection;
mod tree;
mod varint;
mod wake;

pub use cache::{Cache, CacheError, StartError};
pub use entry::{Entry, Record, RecordError, unreadable};
pub use follower::Follower;
pub use history::{Change, ChangeKind, HISTORY_BYTES_MAX, HISTORY_EVENTS_MAX};
pub use prefix::{PrefixMap, begins_with, by_prefix, custom_prefix};
pub use resource::{Cursor, CursorError, Resource, Snapshot};
pub use selection::Term;
pub use tree::{Place, Placed, Range, Tree};
