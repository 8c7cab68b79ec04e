//! Leases, the keys attached to them, and when they expire. Time is an argument; nothing is stored
//! here.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// The times of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    /// Seconds granted.
    pub granted: i64,
    /// Seconds left; rounded down, as etcd does.
    pub left: i64,
}

/// All leases. Methods that get an id of a lease that does not exist do nothing.
#[derive(Default)]
pub(crate) struct Table {
    leases: HashMap<i64, Lease>,
    /// Invariant: the time of each lease that is not ending.
    by_time: BTreeSet<(Instant, i64)>,
    /// Invariant: the lease of each attached key.
    by_key: HashMap<Bytes, i64>,
    /// While the keys of an earlier run are read: keys that were changed meanwhile.
    changed: Option<HashSet<Bytes>>,
}

struct Lease {
    granted: i64,
    expires: Instant,
    keys: HashSet<Bytes>,
    /// Whether its keys are being deleted: none may be attached.
    is_ending: bool,
}

impl Table {
    /// Creates a table of leases whose keys are not known yet: see [`Table::learn`].
    pub(crate) fn restore(leases: &[(i64, i64)], now: Instant) -> Self {
        let mut table = Self::default();
        for (id, granted) in leases {
            table.grant(*id, *granted, now);
        }
        if !leases.is_empty() {
            table.changed = Some(HashSet::new());
        }
        table
    }

    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Adds a lease; returns `false` if it exists.
    pub(crate) fn grant(&mut self, id: i64, granted: i64, now: Instant) -> bool {
        if self.leases.contains_key(&id) {
            return false;
        }
        let expires = after(now, granted);
        let lease = Lease { granted, expires, keys: HashSet::new(), is_ending: false };
        self.leases.insert(id, lease);
        self.by_time.insert((expires, id));
        true
    }

    /// Whether keys may be attached to a lease.
    pub(crate) fn is_live(&self, id: i64) -> bool {
        self.leases.get(&id).is_some_and(|lease| !lease.is_ending)
    }

    /// Lets a lease begin again; returns the seconds granted.
    pub(crate) fn renew(&mut self, id: i64, now: Instant) -> Option<i64> {
        let lease = self.leases.get_mut(&id).filter(|lease| !lease.is_ending)?;
        self.by_time.remove(&(lease.expires, id));
        lease.expires = after(now, lease.granted);
        self.by_time.insert((lease.expires, id));
        Some(lease.granted)
    }

    pub(crate) fn times(&self, id: i64, now: Instant) -> Option<Times> {
        let lease = self.leases.get(&id)?;
        let left = lease.expires.saturating_duration_since(now).as_secs();
        Some(Times { granted: lease.granted, left: i64::try_from(left).unwrap_or(i64::MAX) })
    }

    /// Returns the ids of all leases, those that end first at first.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.by_time.iter().map(|(_, id)| *id).collect()
    }

    /// Returns ids and granted seconds of all leases.
    pub(crate) fn granted(&self) -> Vec<(i64, i64)> {
        self.leases.iter().map(|(id, lease)| (*id, lease.granted)).collect()
    }

    /// Returns the keys of a lease in order.
    pub(crate) fn keys(&self, id: i64) -> Vec<Bytes> {
        let Some(lease) = self.leases.get(&id) else { return Vec::new() };
        let mut keys: Vec<_> = lease.keys.iter().cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// Returns when the next lease expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.by_time.first().map(|(expires, _)| *expires)
    }

    /// Returns up to `leases_max` leases that have expired.
    pub(crate) fn expired(&self, now: Instant, leases_max: usize) -> Vec<i64> {
        let expired = self.by_time.iter().take_while(|(expires, _)| *expires <= now);
        expired.take(leases_max).map(|(_, id)| *id).collect()
    }

    /// Forbids to attach further keys; returns `false` if there is no such lease, or it ends
    /// already.
    pub(crate) fn begin_end(&mut self, id: i64) -> bool {
        let Some(lease) = self.leases.get_mut(&id).filter(|lease| !lease.is_ending) else {
            return false;
        };
        lease.is_ending = true;
        self.by_time.remove(&(lease.expires, id));
        true
    }

    /// Takes [`Table::begin_end`] back: the lease expires again at `retry`.
    pub(crate) fn cancel_end(&mut self, id: i64, retry: Instant) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.is_ending = false;
        lease.expires = retry;
        self.by_time.insert((retry, id));
    }

    /// Removes a lease whose keys are deleted.
    pub(crate) fn remove(&mut self, id: i64) {
        let Some(lease) = self.leases.remove(&id) else { return };
        self.by_time.remove(&(lease.expires, id));
        for key in lease.keys {
            self.by_key.remove(&key);
        }
    }

    /// Records that a key was written with a lease, or without one or deleted (0).
    pub(crate) fn set(&mut self, key: Bytes, lease: i64) {
        if lease == 0 && self.by_key.is_empty() && self.changed.is_none() {
            return;
        }
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
        }
        self.attach(key, lease);
    }

    /// Records the lease of a key that an earlier run wrote, unless the key was changed since.
    pub(crate) fn learn(&mut self, key: Bytes, lease: i64) {
        let is_changed = self.changed.as_ref().is_none_or(|changed| changed.contains(&key));
        if !is_changed {
            self.attach(key, lease);
        }
    }

    /// Records that all keys of an earlier run are known.
    pub(crate) fn end_learning(&mut self) {
        self.changed = None;
    }

    fn attach(&mut self, key: Bytes, lease: i64) {
        if let Some(before) = self.by_key.remove(&key)
            && let Some(before) = self.leases.get_mut(&before)
        {
            before.keys.remove(&key);
        }
        if let Some(attached) = self.leases.get_mut(&lease) {
            attached.keys.insert(key.clone());
            self.by_key.insert(key, lease);
        }
    }
}

fn after(now: Instant, seconds: i64) -> Instant {
    // The longest lease is 285 years, which an instant can hold; a day is as good as never where
    // not.
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(24 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_key_belongs_to_the_lease_of_its_last_write() {
        let now = Instant::now();
        let mut table = Table::default();
        assert!(table.grant(1, 10, now) && table.grant(2, 20, now) && !table.grant(1, 5, now));
        table.set("a".into(), 1);
        table.set("b".into(), 1);
        table.set("a".into(), 2);
        assert_eq!((table.keys(1), table.keys(2)), (vec!["b".into()], vec!["a".into()]));
        table.set("b".into(), 0);
        assert!(table.keys(1).is_empty());
        table.remove(2);
        assert!(table.by_key.is_empty());
    }

    #[test]
    fn a_renewed_lease_expires_later() {
        let now = Instant::now();
        let mut table = Table::default();
        table.grant(1, 10, now);
        table.grant(2, 15, now);
        assert_eq!(table.renew(1, now + seconds(8)), Some(10));
        assert_eq!(table.ids(), [2, 1]);
        assert_eq!(table.times(1, now + seconds(9)), Some(Times { granted: 10, left: 9 }));
        assert_eq!(table.expired(now + seconds(16), 9), [2]);
        assert_eq!(table.next_expiry(), Some(now + seconds(15)));
        assert_eq!(table.renew(3, now), None);
    }

    #[test]
    fn an_ending_lease_takes_no_keys_and_no_renewal() {
        let now = Instant::now();
        let mut table = Table::default();
        table.grant(1, 10, now);
        assert!(table.begin_end(1) && !table.begin_end(1));
        assert!(!table.is_live(1));
        assert_eq!((table.renew(1, now), table.next_expiry()), (None, None));
        table.cancel_end(1, now + seconds(1));
        assert!(table.is_live(1));
        assert_eq!(table.expired(now + seconds(1), 9), [1]);
    }

    #[test]
    fn keys_of_an_earlier_run_do_not_replace_newer_ones() {
        let now = Instant::now();
        let mut table = Table::restore(&[(1, 10)], now);
        table.set("a".into(), 0);
        table.learn("a".into(), 1);
        table.learn("b".into(), 1);
        table.end_learning();
        table.learn("c".into(), 1);
        assert_eq!(table.keys(1), ["b"]);
    }
}
