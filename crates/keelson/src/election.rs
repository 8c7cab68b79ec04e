//! Control loops run on one of the servers that share an etcd: the one that holds the Lease
//! `kube-system/keelson-controllers`, taken and given up as kube-controller-manager does with its own.

use crate::controllers::{Active, Duty};
use keelson_auth::Permit;
use keelson_builtin::{Candidate, campaign, resign};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

const LEASE: &str = "keelson-controllers";
/// Duration of the lease.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// A holder that could not renew its lease for so long ends its loops, before another server begins.
const RENEW_TIME_MAX: Duration = Duration::from_secs(10);
/// Between two tries to take or renew it.
const RETRY: Duration = Duration::from_secs(2);
/// How long a server that stops tries to release the lease.
const RESIGN_TIME_MAX: Duration = Duration::from_secs(2);

/// The loops of a server that has the lease.
struct Leading {
    /// They end with this.
    loops: Active,
    /// When the last renewal began that was answered.
    renewed: Instant,
}

impl Leading {
    /// Renew deadline: how long the loops go on without a renewal.
    fn left(&self) -> Duration {
        left(self.renewed)
    }
}

fn left(renewed: Instant) -> Duration {
    RENEW_TIME_MAX.saturating_sub(renewed.elapsed())
}

/// Runs the control loops while this server has the lease, until it is told to stop. `identity` is the
/// server's alone.
pub(crate) async fn run(duty: Arc<Duty>, identity: String, mut stop: watch::Receiver<bool>) {
    let registry = &duty.context.registry;
    let permit = Permit::internal("system:kube-controller-manager");
    let mut candidate = Candidate::new(LEASE, &identity, LEASE_TIME);
    let mut leading: Option<Leading> = None;
    let stopped = async |stop: &mut watch::Receiver<bool>| drop(stop.wait_for(|told| *told).await);
    loop {
        let began = Instant::now();
        let patience = leading.as_ref().map_or(RENEW_TIME_MAX, Leading::left);
        let answer = tokio::select! {
            answer = timeout(patience, campaign(registry, &permit, &mut candidate)) => answer,
            () = stopped(&mut stop) => break,
        };
        match answer {
            Ok(Ok(true)) => match &mut leading {
                Some(leading) => leading.renewed = began,
                None => {
                    tracing::info!(identity, "became leader; starting controllers");
                    leading = Some(Leading { loops: Active::start(&duty), renewed: began });
                }
            },
            Ok(Ok(false)) => lose(&mut leading, "another server has the lease"),
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = LEASE, "lease not renewed; trying again")
            }
            Err(_) => lose(&mut leading, "the lease could not be renewed"),
        }
        if leading.as_ref().is_some_and(|leading| leading.left().is_zero()) {
            lose(&mut leading, "the lease could not be renewed");
        }
        tokio::select! {
            () = tokio::time::sleep(pause(leading.as_ref().map(Leading::left))) => {}
            () = stopped(&mut stop) => break,
        }
    }
    if let Some(mut leading) = leading.take() {
        // Nothing of ours may be under way when the next one begins.
        leading.loops.shutdown().await;
        // Should it fail, the lease ends by itself.
        let _ = timeout(RESIGN_TIME_MAX, resign(registry, &permit, &candidate)).await;
    }
}

/// How long to wait before the next try: a holder no longer than it may hold.
fn pause(left: Option<Duration>) -> Duration {
    left.map_or(RETRY, |left| left.min(RETRY))
}

fn lose(leading: &mut Option<Leading>, why: &str) {
    if leading.take().is_some() {
        tracing::warn!(why, "no longer leader; stopping controllers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_waits_no_longer_than_it_may_hold() {
        let now = Instant::now();
        let pause_at = |since: Duration| {
            let renewed = now.checked_sub(since).expect("the machine runs for longer");
            pause(Some(left(renewed)))
        };
        assert_eq!((pause(None), pause_at(Duration::ZERO)), (RETRY, RETRY));
        let left = Duration::from_millis(500);
        assert!(pause_at(RENEW_TIME_MAX - left) <= left);
        assert_eq!(pause_at(RENEW_TIME_MAX), Duration::ZERO);
        assert_eq!(pause_at(LEASE_TIME), Duration::ZERO);
    }
}
