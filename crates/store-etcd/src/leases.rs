//! Leases of etcd, shared by keys that expire at about the same time, as kube-apiserver shares them: one
//! for each key would cost the cluster more than the keys.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::client::{Client, LEASE_GRANT};
use crate::proto::{LeaseGrantRequest, LeaseGrantResponse};

/// A key may live so much longer than asked for, as a part of that...
const REUSE_PART: u32 = 20;
/// ...and at most so much.
const REUSE_TIME_MAX: Duration = Duration::from_secs(60);
/// Keys of a lease.
const LEASE_KEYS_MAX: usize = 1000;

/// The lease that is given out at present.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    newest: Mutex<Option<Shared>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    id: i64,
    ends: Instant,
    keys: usize,
}

impl Leases {
    /// A lease that ends in `ttl`, or a little later.
    pub(crate) async fn get(&self, client: &Client, ttl: Duration) -> Result<i64, Status> {
        if let Some(id) = share(&mut self.newest(), Instant::now(), ttl) {
            return Ok(id);
        }
        // Two that ask at once get one each; the second is the one that is shared.
        let granted = ttl + reuse_time(ttl);
        let began = Instant::now();
        let seconds = i64::try_from(granted.as_secs().max(1)).unwrap_or(i64::MAX);
        // One that is asked for twice, because an answer got lost, ends by itself.
        let answer: LeaseGrantResponse =
            client.read(LEASE_GRANT, LeaseGrantRequest { ttl: seconds }).await?;
        *self.newest() = Some(Shared { id: answer.id, ends: began + granted, keys: 1 });
        Ok(answer.id)
    }

    /// Forgets a lease that the cluster does not know.
    pub(crate) fn forget(&self, id: i64) {
        self.newest().take_if(|lease| lease.id == id);
    }

    fn newest(&self) -> MutexGuard<'_, Option<Shared>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lease, when a key that expires in `ttl` may share it: it must not live shorter, nor much longer.
fn share(lease: &mut Option<Shared>, now: Instant, ttl: Duration) -> Option<i64> {
    let lease = lease.as_mut()?;
    let is_late = lease.ends >= now + ttl;
    let is_early = lease.ends <= now + ttl + reuse_time(ttl);
    if !is_late || !is_early || lease.keys >= LEASE_KEYS_MAX {
        return None;
    }
    lease.keys += 1;
    Some(lease.id)
}

fn reuse_time(ttl: Duration) -> Duration {
    let seconds = (ttl / REUSE_PART).as_secs();
    Duration::from_secs(seconds).min(REUSE_TIME_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_expire_at_about_the_same_time_share_a_lease() {
        let start = Instant::now();
        let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
        // Granted for an hour and the minute by which keys may live longer.
        let granted = Shared { id: 7, ends: start + hour + 60 * second, keys: 1 };
        let ask = |after: Duration, ttl| share(&mut Some(granted), start + after, ttl);
        assert_eq!(ask(Duration::ZERO, hour), Some(7));
        assert_eq!(ask(59 * second, hour), Some(7));
        assert_eq!(ask(61 * second, hour), None, "the key would not live for an hour");
        assert_eq!(ask(Duration::ZERO, hour - 120 * second), None, "it would live too long");
        assert_eq!(share(&mut None, start, hour), None);
        let mut full = Some(Shared { keys: LEASE_KEYS_MAX - 1, ..granted });
        assert_eq!(share(&mut full, start, hour), Some(7));
        assert_eq!(share(&mut full, start, hour), None);
    }
}
