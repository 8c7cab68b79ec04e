//! The storage contract over an etcd v3 cluster, which several servers may share.
//!
//! - Revisions are those of the cluster; writes of other programs use some of them. A transaction
//!   is an etcd transaction that compares `mod_revision`.
//! - A write whose response got lost is [`WriteError::Unknown`](keelson_store::WriteError) and is
//!   not retried. Reads are retried on the next member of the cluster.
//! - A watch survives the loss of its connection, of the leader and of etcd itself: it continues
//!   after the last revision that it has delivered completely.
//! - Values are those of the cluster: see [`Transformed`](keelson_store::Transformed) for another
//!   form.
//! - A key with a lease is attached to an etcd lease, so that etcd deletes it.
//! - Only keys under one prefix are read or written, and [`COMPACT_KEY`].

mod calls;
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
mod watch;

pub use calls::Calls;
pub use compactor::Compactor;
pub use options::{ByteStream, DialedStream, Dialer, Dialing, EtcdOptions, EtcdTls, OpenError};
pub use shared::COMPACT_KEY;
pub use store::EtcdStore;
