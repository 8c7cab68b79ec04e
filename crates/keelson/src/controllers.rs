//! Runs the control loops of a server. While a kube-controller-manager holds its Lease
//! (`kube-system/kube-controller-manager`), the loops that it also runs are stopped.

use crate::supervisor::Loops;
use keelson_auth::Permit;
use keelson_controllers::{Context, Controller, Controllers};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::{Failure, Object, Timestamp};
use keelson_registry::options::WatchOptions;
use keelson_registry::{Entry, EventKind, Kind, WatchEvent, WatchRefusal};
use keelson_server::Health;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

const LEASE: &str = "kube-controller-manager";
const LEASE_NAMESPACE: &str = "kube-system";
/// Delay before the watch of the lease is started again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// A lease that expired longer ago than this, by our clock, is ignored: clocks do not differ by so
/// much. Any other lease counts for its whole duration from the moment it is read.
const STALE_SECONDS: i64 = 60;

/// Starts and stops the selected control loops of a server.
pub(crate) struct ControllerRunner {
    pub controllers: Controllers,
    pub context: Context,
    pub health: Arc<Health>,
    /// Set while a kube-controller-manager runs loops instead of this server.
    pub defers_controllers: Arc<AtomicBool>,
}

/// Running control loops. Dropping this aborts them; [`RunningControllers::shutdown`] also waits.
pub(crate) struct RunningControllers {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningControllers {
    /// Starts the loops.
    pub fn start(runner: &Arc<ControllerRunner>) -> RunningControllers {
        let (stop, stop_signal) = watch::channel(false);
        RunningControllers { stop, task: tokio::spawn(run(runner.clone(), stop_signal)) }
    }

    /// Stops the loops and waits until they have ended.
    pub async fn shutdown(&mut self) {
        self.stop.send_replace(true);
        // An error is a panic of the task: then no loop runs either.
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningControllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs the loops until `stop_signal` is true.
pub(crate) async fn run(runner: Arc<ControllerRunner>, mut stop_signal: watch::Receiver<bool>) {
    let mut always = runner.start(runner.controllers.always());
    let mut otherwise = None;
    if runner.controllers.fallback().is_empty() {
        let _ = stop_signal.wait_for(|stop| *stop).await;
    } else {
        tokio::select! {
            () = run_unless_lease_is_held(&runner, &mut otherwise) => {}
            _ = stop_signal.wait_for(|stop| *stop) => {}
        }
    }
    always.shutdown().await;
    if let Some(mut otherwise) = otherwise {
        otherwise.shutdown().await;
    }
}

impl ControllerRunner {
    /// Starts the loops that every server runs, also without leadership.
    pub fn start_on_each_server(&self, loops: &mut Loops) {
        self.start_in(loops, self.controllers.on_every_server());
    }

    fn start(&self, controllers: &[Controller]) -> Loops {
        let mut loops = Loops::new(self.health.clone());
        self.start_in(&mut loops, controllers);
        loops
    }

    fn start_in(&self, loops: &mut Loops, controllers: &[Controller]) {
        for controller in controllers.iter().copied() {
            let context = self.context.clone();
            loops.run(controller.name, move || controller.run(context.clone()));
        }
    }
}

/// Runs the loops that a kube-controller-manager also runs, while none holds its lease.
async fn run_unless_lease_is_held(runner: &ControllerRunner, running: &mut Option<Loops>) {
    let mut lease = ManagerLease::default();
    loop {
        if let Err(error) = watch_lease(runner, &mut lease, running).await {
            tracing::warn!(%error, lease = LEASE, "watch of the lease failed; trying again");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Watches the lease, and starts and stops the loops by it. Returns when the watch ends.
async fn watch_lease(
    runner: &ControllerRunner,
    lease: &mut ManagerLease,
    running: &mut Option<Loops>,
) -> Result<(), Failure> {
    let registry = &runner.context.registry;
    let permit = Permit::internal("system:kube-controller-manager");
    let target = registry.target("coordination.k8s.io", "leases", LEASE_NAMESPACE, "");
    let fields = FieldSelector::parse(&format!("metadata.name={LEASE}")).unwrap_or_default();
    let options = WatchOptions { fields, ..WatchOptions::default() };
    let session = registry.watch(&permit, &target, &options).await;
    let mut session = session.map_err(WatchRefusal::into_failure)?;
    loop {
        let mut events: Vec<WatchEvent> = vec![];
        if session.take(&mut events).is_err() {
            return Ok(());
        }
        for event in &events {
            let exists = event.kind != EventKind::Deleted;
            let entry = exists.then_some(&event.entry);
            lease.update(entry, &target.kind, registry.clock.now(), Instant::now());
        }
        let held_until = lease.held_until(Instant::now());
        match (held_until, running.as_mut()) {
            (Some(_), Some(loops)) => {
                let holder = &lease.holder;
                tracing::info!(%holder, "kube-controller-manager has its lease; stopping controllers");
                loops.shutdown().await;
                *running = None;
                runner.defers_controllers.store(true, Ordering::Relaxed);
            }
            (None, None) => {
                let count = runner.controllers.fallback().len();
                tracing::info!(count, "no kube-controller-manager; starting controllers");
                *running = Some(runner.start(runner.controllers.fallback()));
                runner.defers_controllers.store(false, Ordering::Relaxed);
            }
            (Some(_), None) => runner.defers_controllers.store(true, Ordering::Relaxed),
            (None, Some(_)) => {}
        }
        if !events.is_empty() {
            continue;
        }
        let ended = match held_until {
            Some(until) => timeout_at(until, session.changed()).await.unwrap_or(Ok(())),
            None => session.changed().await,
        };
        if ended.is_err() {
            return Ok(());
        }
    }
}

/// The last observed state of the lease of kube-controller-manager.
#[derive(Default)]
struct ManagerLease {
    holder: String,
    /// When the lease expires, by our monotonic clock; `None`: nobody holds it.
    until: Option<Instant>,
}

impl ManagerLease {
    /// Sets the observed state. `entry` is `None` when the lease does not exist.
    fn update(&mut self, entry: Option<&Entry>, kind: &Kind, time: Timestamp, now: Instant) {
        let lease = entry.and_then(|entry| kind.decode(entry).ok()).unwrap_or_default();
        self.holder = lease.str_at(&["spec", "holderIdentity"]).to_owned();
        self.until = None;
        if self.holder.is_empty() || is_stale(&lease, time) {
            return;
        }
        let seconds = duration_seconds(&lease);
        self.until = Some(now + Duration::from_secs(seconds.try_into().unwrap_or_default()));
    }

    /// Returns when the lease expires; `None` when nobody holds it.
    fn held_until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

fn duration_seconds(lease: &Object) -> i64 {
    lease.int_at(&["spec", "leaseDurationSeconds"]).unwrap_or(0).max(0)
}

/// Whether a lease expired more than [`STALE_SECONDS`] ago.
fn is_stale(lease: &Object, time: Timestamp) -> bool {
    let renewed = Timestamp::parse(lease.str_at(&["spec", "renewTime"])).unwrap_or_default();
    time.since(renewed).seconds() > duration_seconds(lease).saturating_add(STALE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_lease_that_expired_a_minute_ago_is_stale() {
        let check = |renewed: &str, want: bool| {
            let lease = value!({"spec": {"holderIdentity": "kcm", "leaseDurationSeconds": 15,
                "renewTime": renewed}});
            let lease = Object::from_value(lease).expect("a map");
            let now = Timestamp::parse("2026-01-01T00:10:00Z").expect("a time");
            assert_eq!(is_stale(&lease, now), want, "{renewed}");
        };
        check("2026-01-01T00:09:59.000000Z", false);
        check("2026-01-01T00:08:45.000000Z", false);
        check("2026-01-01T00:08:44.000000Z", true);
        check("2026-01-01T00:11:00.000000Z", false);
        check("", true);
    }
}
