//! When which key expires: of the keys that were written with a lease, and of no others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::disk::Head;
use crate::Timestamp;

/// The leases of live keys. Changed by the commit thread alone.
#[derive(Default)]
pub(super) struct Leases {
    /// Invariant: the same pairs in both.
    by_time: BTreeSet<(Timestamp, Arc<[u8]>)>,
    by_key: HashMap<Arc<[u8]>, Timestamp>,
}

impl Leases {
    /// Takes note of the newest record of a key. Costs nothing while no key has a lease.
    pub(super) fn note(&mut self, head: &Head) {
        if head.expires.is_none() && self.by_key.is_empty() {
            return;
        }
        self.remove(&head.key);
        if let Some(expires) = head.expires {
            self.add(&head.key, expires);
        }
    }

    /// Gives a lease to a key that has none.
    pub(super) fn adopt(&mut self, key: &[u8], expires: Timestamp) {
        if !self.by_key.contains_key(key) {
            self.add(key, expires);
        }
    }

    /// Forgets the lease of a key.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, expires)) = self.by_key.remove_entry(key) {
            self.by_time.remove(&(expires, key));
        }
    }

    /// Keys whose lease has ended, those that ended first in front.
    pub(super) fn ended(&self, now: Timestamp, keys_max: usize) -> Vec<Bytes> {
        let ended = self.by_time.iter().take_while(|(expires, _)| *expires <= now);
        ended.take(keys_max).map(|(_, key)| Bytes::copy_from_slice(key)).collect()
    }

    fn add(&mut self, key: &[u8], expires: Timestamp) {
        let key: Arc<[u8]> = key.into();
        self.by_time.insert((expires, Arc::clone(&key)));
        self.by_key.insert(key, expires);
    }
}
