//! Leader election: of the servers that share an etcd, the one that holds the Lease
//! `kube-system/keelson-controllers` runs the control loops. The lease is acquired, renewed and
//! released as kube-controller-manager does with its own.

use crate::controllers::{ControllerRunner, RunningControllers};
use keelson_auth::Permit;
use keelson_builtin::{Candidate, campaign, resign};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

const LEASE: &str = "keelson-controllers";
/// Lifetime of the lease.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed its lease for this long stops its loops. It is less than
/// [`LEASE_DURATION`], so that they have ended before another server starts its own.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Interval between two attempts to acquire or renew the lease.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Timeout of the release of the lease when the server stops.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a server that holds the lease.
struct Leadership {
    /// Dropping them aborts them.
    loops: RunningControllers,
    /// Start of the last successful renewal.
    renewed: Instant,
}

impl Leadership {
    /// Returns the time left until the renew deadline.
    fn remaining(&self) -> Duration {
        remaining(self.renewed)
    }
}

fn remaining(renewed: Instant) -> Duration {
    RENEW_DEADLINE.saturating_sub(renewed.elapsed())
}

/// Runs the control loops while this server holds the lease, until `stop_signal` is true.
/// `identity` must be unique to this server.
pub(crate) async fn run(
    runner: Arc<ControllerRunner>,
    identity: String,
    mut stop_signal: watch::Receiver<bool>,
) {
    let registry = &runner.registry;
    let permit = Permit::internal("system:kube-controller-manager");
    let mut candidate = Candidate::new(LEASE, &identity, LEASE_DURATION);
    let mut leadership: Option<Leadership> = None;
    let stopped =
        async |signal: &mut watch::Receiver<bool>| drop(signal.wait_for(|stop| *stop).await);
    loop {
        let began = Instant::now();
        let remaining = leadership.as_ref().map_or(RENEW_DEADLINE, Leadership::remaining);
        let outcome = tokio::select! {
            outcome = timeout(remaining, campaign(registry, &permit, &mut candidate)) => outcome,
            () = stopped(&mut stop_signal) => break,
        };
        match outcome {
            Ok(Ok(true)) => match &mut leadership {
                Some(leadership) => leadership.renewed = began,
                None => {
                    tracing::info!(identity, "became leader; starting controllers");
                    let loops = RunningControllers::start(&runner);
                    leadership = Some(Leadership { loops, renewed: began });
                }
            },
            Ok(Ok(false)) => stop_leading(&mut leadership, "another server has the lease"),
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = LEASE, "lease not renewed; trying again")
            }
            Err(_) => stop_leading(&mut leadership, "the lease could not be renewed"),
        }
        if leadership.as_ref().is_some_and(|leadership| leadership.remaining().is_zero()) {
            stop_leading(&mut leadership, "the lease could not be renewed");
        }
        let delay = retry_delay(leadership.as_ref().map(Leadership::remaining));
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stopped(&mut stop_signal) => break,
        }
    }
    if let Some(mut leadership) = leadership.take() {
        // The loops must have ended before another server acquires the lease and starts its own.
        leadership.loops.shutdown().await;
        // If the release fails, the lease expires.
        let _ = timeout(RELEASE_TIMEOUT, resign(registry, &permit, &candidate)).await;
    }
}

/// Returns the delay before the next attempt. A leader never waits past its renew deadline.
fn retry_delay(remaining: Option<Duration>) -> Duration {
    remaining.map_or(RETRY_PERIOD, |remaining| remaining.min(RETRY_PERIOD))
}

fn stop_leading(leadership: &mut Option<Leadership>, why: &str) {
    if leadership.take().is_some() {
        tracing::warn!(why, "no longer leader; stopping controllers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_never_waits_past_its_renew_deadline() {
        let now = Instant::now();
        let delay_after = |since: Duration| {
            let renewed = now.checked_sub(since).expect("the machine runs for longer");
            retry_delay(Some(remaining(renewed)))
        };
        assert_eq!((retry_delay(None), delay_after(Duration::ZERO)), (RETRY_PERIOD, RETRY_PERIOD));
        let half_second = Duration::from_millis(500);
        assert!(delay_after(RENEW_DEADLINE - half_second) <= half_second);
        assert_eq!(delay_after(RENEW_DEADLINE), Duration::ZERO);
        assert_eq!(delay_after(LEASE_DURATION), Duration::ZERO);
    }
}
