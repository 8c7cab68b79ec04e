//! One object in the store and in the cache, and the structures that hold many of them.
//!
//! - A [`Record`] is an object as a value of the store; an [`Entry`] is the same bytes with key and
//!   revision, ready to be sent. Selectors read labels and fields from the same buffer.
//! - A [`Tree`] is a persistent ordered set; a [`PrefixMap`] finds the resource of a key.
//!
//! The crate knows no kind and no schema, does no IO and has no async code. `cache` keeps entries;
//! `resources` decodes and encodes them; neither needs the other.

mod difference;
mod entry;
mod prefix_map;
pub mod testing;
mod tree;
mod varint;

pub use entry::{
    ENCRYPTED, Entry, NOT_DECRYPTED, Pairs, Record, RecordError, by_key, is_unreadable, unreadable,
};
pub use prefix_map::{PrefixMap, custom_prefix, get_by_prefix, starts_with};
pub use tree::{HasSortKey, Range, SortKey, Tree, order};
