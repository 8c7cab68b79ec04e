//! Leases: granted, kept alive, revoked, expired. The table is in memory and follows the writes of
//! keys in their order; ids and times to live are stored. After a restart each lease begins again,
//! as with a new leader of etcd.

mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::kv::LeaseChange;

pub(crate) use table::Table;

/// The leases, which the commit thread changes too.
pub(crate) struct Leases {
    table: Mutex<Table>,
    /// Whether the keys of an earlier run are known.
    is_loaded: watch::Sender<bool>,
    /// Notified when a lease may expire sooner than the expiry loop waits.
    pub(crate) expiry_changed: Notify,
}

impl Leases {
    /// `stored` has ids and seconds of the leases of an earlier run.
    pub(crate) fn new(stored: &[(i64, i64)]) -> Self {
        let table = Table::restore(stored, Instant::now());
        let is_loaded = watch::Sender::new(stored.is_empty());
        Self { table: Mutex::new(table), is_loaded, expiry_changed: Notify::new() }
    }

    /// Locks the table; not across an await.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_live(&self, id: i64) -> bool {
        self.table().is_live(id)
    }

    /// Takes the changes of a durable transaction.
    pub(crate) fn apply(&self, changes: Vec<LeaseChange>) {
        let mut table = self.table();
        for LeaseChange { key, lease } in changes {
            table.set(key, lease);
        }
    }

    /// Takes the lease of a key of an earlier run.
    pub(crate) fn learn(&self, key: &Bytes, lease: i64) {
        if lease != 0 {
            self.table().learn(Bytes::copy_from_slice(key), lease);
        }
    }

    pub(crate) fn end_learning(&self) {
        self.table().end_learning();
        self.is_loaded.send_replace(true);
    }

    pub(crate) fn are_loaded(&self) -> bool {
        *self.is_loaded.borrow()
    }

    /// Waits until the keys of all leases are known.
    pub(crate) async fn loaded(&self) {
        // The sender lives as long as this.
        let _ = self.is_loaded.subscribe().wait_for(|is_loaded| *is_loaded).await;
    }
}
