//! Runs the control loops of a server. While a kube-controller-manager holds its Lease
//! (`kube-system/kube-controller-manager`), the loops that it also runs are stopped; so is the
//! scheduler while a kube-scheduler holds its own.

use crate::supervisor::Loops;
use keelson_auth::Permit;
use keelson_loops::{ReadyLoop, Selection};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::{Failure, Object, Timestamp};
use keelson_records::Entry;
use keelson_registry::options::WatchOptions;
use keelson_registry::{EventKind, Registry, WatchEvent, WatchRefusal};
use keelson_resources::Kind;
use keelson_server::Health;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

const MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const LEASE_NAMESPACE: &str = "kube-system";
/// Delay before the watch of the lease is started again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// A lease that expired longer ago than this, by our clock, is ignored: clocks do not differ by so
/// much. Any other lease counts for its whole duration from the moment it is read.
const STALE_SECONDS: i64 = 60;

/// Starts and stops the selected control loops of a server.
pub(crate) struct ControllerRunner {
    pub selection: Selection,
    pub registry: Arc<Registry>,
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
    let mut always = runner.start(&runner.selection.always);
    let mut manager = Replacement {
        program: MANAGER,
        loops: &runner.selection.without_manager,
        defers: &runner.defers_controllers,
        running: None,
    };
    let mut scheduler = Replacement {
        program: SCHEDULER,
        loops: &runner.selection.without_scheduler,
        defers: &AtomicBool::new(false),
        running: None,
    };
    tokio::select! {
        () = manager.run_unless_lease_is_held(&runner) => {}
        () = scheduler.run_unless_lease_is_held(&runner) => {}
        _ = stop_signal.wait_for(|stop| *stop) => {}
    }
    always.shutdown().await;
    for mut loops in [manager.running, scheduler.running].into_iter().flatten() {
        loops.shutdown().await;
    }
}

impl ControllerRunner {
    /// Starts the loops that every server runs, also without leadership.
    pub fn start_on_each_server(&self, loops: &mut Loops) {
        start_in(loops, &self.selection.on_every_server);
    }

    fn start(&self, selected: &[ReadyLoop]) -> Loops {
        let mut loops = Loops::new(self.health.clone());
        start_in(&mut loops, selected);
        loops
    }
}

fn start_in(loops: &mut Loops, selected: &[ReadyLoop]) {
    for selected in selected.iter().cloned() {
        loops.run(selected.name, move || selected.run());
    }
}

/// Loops that run while a program that also runs them does not hold its lease.
struct Replacement<'a> {
    /// The name of the program, and of its lease.
    program: &'static str,
    loops: &'a [ReadyLoop],
    /// Set while the program runs the loops.
    defers: &'a AtomicBool,
    running: Option<Loops>,
}

impl Replacement<'_> {
    /// Runs until it is dropped.
    async fn run_unless_lease_is_held(&mut self, runner: &ControllerRunner) {
        if self.loops.is_empty() {
            return std::future::pending().await;
        }
        let mut lease = HeldLease::default();
        loop {
            if let Err(error) = self.watch_lease(runner, &mut lease).await {
                let lease = self.program;
                tracing::warn!(%error, lease, "watch of the lease failed; trying again");
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Watches the lease, and starts and stops the loops by it. Returns when the watch ends.
    async fn watch_lease(
        &mut self,
        runner: &ControllerRunner,
        lease: &mut HeldLease,
    ) -> Result<(), Failure> {
        let registry = &runner.registry;
        let permit = Permit::internal("system:kube-controller-manager");
        let target = registry.target("coordination.k8s.io", "leases", LEASE_NAMESPACE, "");
        let fields =
            FieldSelector::parse(&format!("metadata.name={}", self.program)).unwrap_or_default();
        let options = WatchOptions { fields, ..WatchOptions::default() };
        let mut session =
            registry.watch(&permit, &target, &options).await.map_err(WatchRefusal::into_failure)?;
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
            match (held_until, self.running.as_mut()) {
                (Some(_), Some(loops)) => {
                    let holder = &lease.holder;
                    let program = self.program;
                    tracing::info!(%holder, "{program} has its lease; stopping controllers");
                    loops.shutdown().await;
                    self.running = None;
                    self.defers.store(true, Ordering::Relaxed);
                }
                (None, None) => {
                    let program = self.program;
                    let count = self.loops.len();
                    tracing::info!(count, "no {program}; starting controllers");
                    self.running = Some(runner.start(self.loops));
                    self.defers.store(false, Ordering::Relaxed);
                }
                (Some(_), None) => self.defers.store(true, Ordering::Relaxed),
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
}

/// The last observed state of the lease of a program.
#[derive(Default)]
struct HeldLease {
    holder: String,
    /// When the lease expires, by our monotonic clock; `None`: nobody holds it.
    until: Option<Instant>,
}

impl HeldLease {
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
