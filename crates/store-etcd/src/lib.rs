//! The storage contract over an etcd v3 cluster, which several servers may share.
//!
//! - A revision is the cluster's: other programs' writes take some of them. A transaction is one of
//!   etcd, with a compare of `mod_revision` for each compare of the contract.
//! - A write whose answer got lost is [`WriteError::Unknown`](keelson_store::WriteError) and is never
//!   repeated here; reads are, on the next member of the cluster.
//! - A watch survives the loss of its connection, of the leader and of etcd itself: it goes on after
//!   the last revision that it has delivered as a whole.
//! - What is written and read there may have another form than here: see [`Values`].
//! - A key with a lease is attached to one of etcd, which deletes it in time.
//! - Only what lies under one folder of the cluster is read or written, beside [`COMPACT_KEY`].

mod client;
mod compactor;
mod keys;
mod latest;
mod leases;
mod options;
mod proto;
mod shared;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod values;
mod watch;

pub use compactor::Compactor;
pub use options::{EtcdOptions, EtcdTls, OpenError};
pub use shared::COMPACT_KEY;
pub use store::EtcdStore;
pub use values::{SameValues, Values};
