//! A server that speaks etcd's v3 protocol over the embedded store. It knows nothing of Kubernetes,
//! and is one member: it takes no others.
//!
//! It keeps what clients of etcd rely on: one revision for each transaction, with the order of its
//! changes; revision of creation and of the last write, number of writes and lease of each key;
//! reads at and watches from any revision that is not compacted; etcd's errors, word for word. All
//! history is kept until it is compacted, as in etcd. Limits that etcd does not have are in
//! `limits.rs`.
//!
//! Writes are decided one after the other by the store's commit thread ([`keelson_store::Draft`]),
//! and many share a sync. An answer to a write comes after it is durable.

mod engine;
mod error;
mod hash;
mod kv;
mod leases;
mod limits;
mod options;
mod proto;
mod record;
mod room;
mod server;
mod service;
mod snapshot;
mod state;
mod watch;
mod wire;

pub use engine::StartError;
pub use options::{AutoCompaction, EtcdOptions};
pub use server::EtcdServer;
pub use wire::{BindError, Listener, TlsError, TlsFiles};
