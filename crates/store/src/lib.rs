//! The storage contract of Keelson and its embedded engine.
//!
//! A store is an ordered map from keys to values with one growing [`Revision`]. It knows bytes
//! and revisions and nothing of Kubernetes. What holds for every implementation of [`Store`]:
//!
//! - **One order.** A committed transaction gets the next revision; revisions never repeat, also
//!   not over restarts and compactions. A conflict changes nothing and takes none.
//! - **Durable, then visible, then watched.** No answer, no read and no watch shows a revision
//!   that a crash could take back (unless durability was given up on purpose).
//! - **A read says how new it is.** A page names its revision; what is gone is
//!   [`ReadError::Compacted`], what is not there yet is [`ReadError::Future`]; never a guess.
//! - **A lease ends in a delete** like any other, at a revision of its own: watches see it.
//! - **A watch gives each event once, in order**, or ends with an error; it never holds up
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
mod places;
mod revision;
mod window;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use contract::{
    Batch, BoxFuture, Compare, Event, KeyValue, Lease, Op, Page, Range, Store, Timestamp, Txn,
    TxnOutcome, Watch, key_after, prefix_end,
};
pub use embedded::{Durability, Embedded, EmbeddedOptions, OpenError, StandIn};
pub use errors::{DiskError, HealthError, ReadError, WatchError, WriteError};
pub use limits::{
    BATCH_BYTES_MAX, BATCH_EVENTS_MAX, KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ITEMS_MAX,
    TXN_BYTES_MAX, TXN_OPS_MAX, WATCHES_MAX,
};
pub use model::Model;
pub use places::{WatchPlace, WatchPlaces};
pub use revision::Revision;
pub use window::CompactionWindow;
