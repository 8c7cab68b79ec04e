//! The storage contract of Keelson and its embedded engine.
//!
//! A store is an ordered map from keys to values with one growing [`Revision`]. It handles bytes
//! and revisions, and has no knowledge of Kubernetes. Every implementation of [`Store`] guarantees:
//!
//! - **One order.** A committed transaction gets the next revision; revisions never repeat, not
//!   even after restarts and compactions. A conflict changes nothing and uses no revision.
//! - **Durable, then visible, then watched.** No answer, no read and no watch shows a revision
//!   that a crash could undo (unless durability was switched off on purpose).
//! - **A read states its revision.** A page names its revision. A read of a compacted revision is
//!   [`ReadError::Compacted`], a read of a future revision is [`ReadError::Future`].
//! - **An expired lease is a delete** like any other, at a revision of its own: watches see it.
//! - **A watch delivers each event once, in order**, or ends with an error; it never blocks
//!   a writer.
//!
//! ```
//! use keelson_store::{Compare, Embedded, Op, Revision, Store, Txn, TxnOutcome};
//! # tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(async {
//! let store = Embedded::in_memory();
//! let create = Txn {
//!     compare: vec![Compare { key: "pods/a".into(), modified: Revision(0) }],
//!     ops: vec![Op::put("pods/a", "v1")],
//! };
//! let TxnOutcome::Committed(at) = store.txn(create.clone()).await? else { panic!("absent") };
//! let TxnOutcome::Conflict { current, .. } = store.txn(create).await? else { panic!("present") };
//! assert_eq!(current.map(|kv| kv.modified), Some(at));
//! # Ok::<(), keelson_store::WriteError>(()) }).expect("store");
//! ```

pub mod backup;
mod contract;
pub mod embedded;
mod errors;
mod limits;
mod model;
mod revision;
mod transform;
mod watch_slots;
mod window;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use contract::{
    Batch, BoxFuture, Compare, Event, KeyValue, Lease, Op, Page, Range, Store, Timestamp, Txn,
    TxnOutcome, Watch, key_after, prefix_end,
};
pub use embedded::{
    ChangedTwice, Draft, Durability, Embedded, EmbeddedOptions, MakePlaceholder, OpenError,
    prepare_directory,
};
pub use errors::{DiskError, HealthError, ReadError, WatchError, WriteError};
pub use limits::{
    BATCH_BYTES_MAX, BATCH_EVENTS_MAX, KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ITEMS_MAX,
    TXN_BYTES_MAX, TXN_OPS_MAX, WATCHES_MAX,
};
pub use model::Model;
pub use revision::Revision;
pub use transform::{Transform, Transformed};
pub use watch_slots::{WatchSlot, WatchSlots};
pub use window::CompactionWindow;
