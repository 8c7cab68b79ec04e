//! Control loops run on one of the servers that share an etcd: the one that holds the Lease
//! `kube-system/keelson-controllers`, taken and given up as kube-controller-manager does with its own.

use crate::controllers::Controllers;
use keelson_auth::Permit;
use keelson_registry::{Candidate, Registry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const LEASE: &str = "keelson-controllers";
/// How long a lease that is not renewed stays with its holder.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// A holder that could not renew its lease for so long ends its loops, before another server begins.
const RENEW_TIME_MAX: Duration = Duration::from_secs(10);
/// Between two tries to take or renew it.
const RETRY: Duration = Duration::from_secs(2);
/// How long a server that stops tries to give it up.
const RESIGN_TIME_MAX: Duration = Duration::from_secs(2);

/// The loops of a server that has the lease.
struct Leading {
    /// They end with this.
    loops: JoinSet<()>,
    /// When the last renewal began that was answered.
    renewed: Instant,
}

/// Runs the control loops while this server has the lease, until it is told to stop. `identity` is the
/// server's alone.
pub(crate) async fn run(
    registry: Arc<Registry>,
    controllers: Controllers,
    identity: String,
    mut stop: watch::Receiver<bool>,
) {
    let permit = Permit::internal("system:kube-controller-manager");
    let mut candidate = Candidate::new(LEASE, &identity, LEASE_TIME);
    let mut leading: Option<Leading> = None;
    let stopped = async |stop: &mut watch::Receiver<bool>| drop(stop.wait_for(|told| *told).await);
    loop {
        let began = Instant::now();
        let late = leading.as_ref().map_or(Duration::ZERO, |leading| leading.renewed.elapsed());
        let patience = RENEW_TIME_MAX.saturating_sub(late);
        let answer = tokio::select! {
            answer = timeout(patience, registry.campaign(&permit, &mut candidate)) => answer,
            () = stopped(&mut stop) => break,
        };
        match answer {
            Ok(Ok(true)) => match &mut leading {
                Some(leading) => leading.renewed = began,
                None => {
                    tracing::info!(identity, "the control loops run here");
                    let mut loops = JoinSet::new();
                    controllers.start(&registry, &mut loops);
                    leading = Some(Leading { loops, renewed: began });
                }
            },
            Ok(Ok(false)) => lose(&mut leading, "another server has the lease"),
            Ok(Err(error)) => tracing::warn!(%error, lease = LEASE, "the lease is not renewed"),
            Err(_) => lose(&mut leading, "the lease could not be renewed"),
        }
        if leading.as_ref().is_some_and(|leading| leading.renewed.elapsed() >= RENEW_TIME_MAX) {
            lose(&mut leading, "the lease could not be renewed");
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stopped(&mut stop) => break,
        }
    }
    if let Some(mut leading) = leading.take() {
        // Nothing of ours may be under way when the next one begins.
        leading.loops.shutdown().await;
        // Should it fail, the lease ends by itself.
        let _ = timeout(RESIGN_TIME_MAX, registry.resign(&permit, &candidate)).await;
    }
}

fn lose(leading: &mut Option<Leading>, why: &str) {
    if leading.take().is_some() {
        tracing::warn!(why, "the control loops end here");
    }
}
