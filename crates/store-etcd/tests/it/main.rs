//! The contract's suite and the random walk over a real etcd, and what only a remote store has:
//! restarts, lost connections, other writers, several servers that compact.
// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

mod restart;
mod shared;
mod suite;

use std::sync::Arc;
use std::time::Duration;

use keelson_store_etcd::testing::EtcdProcess;
use keelson_store_etcd::{EtcdOptions, EtcdStore};
use keelson_testkit::prerequisites::{self, peer_or_installed};

/// An etcd of the test's own: revisions and compaction are the whole cluster's.
async fn etcd() -> Option<EtcdProcess> {
    prerequisites::etcd(EtcdProcess::start(&peer_or_installed("etcd")).await)
}

/// A store whose keys lie in a folder of their own, where nobody else writes: a watch is behind
/// only while an event is under way.
async fn open(etcd: &EtcdProcess, folder: &str) -> Arc<EtcdStore> {
    open_impatient(etcd, folder, Duration::from_secs(60)).await
}

/// The same, with a watch that asks for its progress so soon.
async fn open_impatient(
    etcd: &EtcdProcess,
    folder: &str,
    progress_after: Duration,
) -> Arc<EtcdStore> {
    let options = EtcdOptions {
        root: String::new(),
        prefix: format!("/{folder}/"),
        progress_after,
        ..EtcdOptions::new(vec![etcd.url()])
    };
    EtcdStore::open(options).await.expect("open")
}
