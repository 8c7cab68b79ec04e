//! When keys with a lease expire.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::disk::Head;
use crate::Timestamp;

/// The leases of live keys. Changed only by the commit thread.
#[derive(Default)]
pub(super) struct Leases {
    /// Invariant: the same pairs in both.
    by_time: BTreeSet<(Timestamp, Arc<[u8]>)>,
    by_key: HashMap<Arc<[u8]>, Timestamp>,
}

impl Leases {
    /// Updates the lease of a key from its newest record. Costs nothing while no key has a lease.
    pub(super) fn update(&mut self, head: &Head) {
        if head.expires.is_none() && self.by_key.is_empty() {
            return;
        }
        self.remove(&head.key);
        if let Some(expires) = head.expires {
            self.add(&head.key, expires);
        }
    }

    /// Gives a lease to a key that has none.
    pub(super) fn add_if_absent(&mut self, key: &[u8], expires: Timestamp) {
        if !self.by_key.contains_key(key) {
            self.add(key, expires);
        }
    }

    /// Removes the lease of a key.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, expires)) = self.by_key.remove_entry(key) {
            self.by_time.remove(&(expires, key));
        }
    }

    /// Returns up to `keys_max` expired keys, in the order of their expiry.
    pub(super) fn expired(&self, now: Timestamp, keys_max: usize) -> Vec<Bytes> {
        let expired = self.by_time.iter().take_while(|(expires, _)| *expires <= now);
        expired.take(keys_max).map(|(_, key)| Bytes::copy_from_slice(key)).collect()
    }

    fn add(&mut self, key: &[u8], expires: Timestamp) {
        let key: Arc<[u8]> = key.into();
        self.by_time.insert((expires, Arc::clone(&key)));
        self.by_key.insert(key, expires);
    }
}
