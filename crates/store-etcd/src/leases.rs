//! etcd leases, shared by keys that expire at about the same time, as in kube-apiserver. One lease
//! for each key would cost the cluster more than the keys.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::client::{Client, LEASE_GRANT};
use crate::proto::{LeaseGrantRequest, LeaseGrantResponse};

/// A key may live longer than requested by `1 / REUSE_PART` of its TTL, and at most by the time
/// that the store was opened with.
const REUSE_PART: u32 = 20;
/// Most keys of a lease.
const LEASE_KEYS_MAX: usize = 1000;

/// Holds the newest lease, which further keys can share.
#[derive(Debug)]
pub(crate) struct Leases {
    reuse_max: Duration,
    newest: Mutex<Option<SharedLease>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedLease {
    id: i64,
    ends: Instant,
    keys: usize,
}

impl Leases {
    pub(crate) fn new(reuse_max: Duration) -> Leases {
        Leases { reuse_max, newest: Mutex::default() }
    }

    /// Returns the id of a lease that ends in `ttl` or a little later.
    pub(crate) async fn get(&self, client: &Client, ttl: Duration) -> Result<i64, Status> {
        if let Some(id) = share(&mut self.newest(), Instant::now(), ttl, self.reuse_max) {
            return Ok(id);
        }
        // Concurrent calls get one lease each; the last one is shared.
        let granted = ttl + reuse_time(ttl, self.reuse_max);
        let began = Instant::now();
        let seconds = i64::try_from(granted.as_secs().max(1)).unwrap_or(i64::MAX);
        // May be retried like a read: a lease whose response got lost just expires.
        let answer: LeaseGrantResponse =
            client.read(LEASE_GRANT, LeaseGrantRequest { ttl: seconds }).await?;
        *self.newest() = Some(SharedLease { id: answer.id, ends: began + granted, keys: 1 });
        Ok(answer.id)
    }

    /// Drops a lease that the cluster does not have.
    pub(crate) fn remove(&self, id: i64) {
        self.newest().take_if(|lease| lease.id == id);
    }

    fn newest(&self) -> MutexGuard<'_, Option<SharedLease>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lease if a key with this TTL can share it: it must not end earlier, nor much later.
fn share(
    lease: &mut Option<SharedLease>,
    now: Instant,
    ttl: Duration,
    reuse_max: Duration,
) -> Option<i64> {
    let lease = lease.as_mut()?;
    let is_long_enough = lease.ends >= now + ttl;
    let is_short_enough = lease.ends <= now + ttl + reuse_time(ttl, reuse_max);
    if !is_long_enough || !is_short_enough || lease.keys >= LEASE_KEYS_MAX {
        return None;
    }
    lease.keys += 1;
    Some(lease.id)
}

fn reuse_time(ttl: Duration, reuse_max: Duration) -> Duration {
    let seconds = (ttl / REUSE_PART).as_secs();
    Duration::from_secs(seconds).min(reuse_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_expire_at_about_the_same_time_share_a_lease() {
        let start = Instant::now();
        let hour = Duration::from_secs(3600);
        let second = Duration::from_secs(1);
        // Granted for an hour plus the minute by which keys may live longer.
        let granted = SharedLease { id: 7, ends: start + hour + 60 * second, keys: 1 };
        let share_at =
            |after: Duration, ttl| share(&mut Some(granted), start + after, ttl, 60 * second);
        assert_eq!(share_at(Duration::ZERO, hour), Some(7));
        assert_eq!(share_at(59 * second, hour), Some(7));
        assert_eq!(share_at(61 * second, hour), None, "the key would not live for an hour");
        assert_eq!(share_at(Duration::ZERO, hour - 120 * second), None, "it would live too long");
        assert_eq!(share(&mut None, start, hour, 60 * second), None);
        let mut full = Some(SharedLease { keys: LEASE_KEYS_MAX - 1, ..granted });
        assert_eq!(share(&mut full, start, hour, 60 * second), Some(7));
        assert_eq!(share(&mut full, start, hour, 60 * second), None);
    }
}
