//! Runs the control loops of a server, and stops those that a kube-controller-manager runs for as long as there
//! is one: while it renews the Lease `kube-system/kube-controller-manager`.

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
/// From a failure to read the lease to the next try.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// A lease that was renewed so much longer ago than it lasts, by our clock, is nobody's: clocks do not differ so
/// much. One that was renewed later is believed for as long as it lasts.
const STALE_SECONDS: i64 = 60;

/// The control loops that a server is to run.
pub(crate) struct Duty {
    pub controllers: Controllers,
    pub context: Context,
    pub health: Arc<Health>,
    /// Whether a kube-controller-manager runs loops in the place of this server.
    pub stands_aside: Arc<AtomicBool>,
}

/// Control loops that run. Dropped, they end; [`Active::shutdown`] waits for their end.
pub(crate) struct Active {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Active {
    /// Starts the loops.
    pub fn start(duty: &Arc<Duty>) -> Active {
        let (stop, stopped) = watch::channel(false);
        Active { stop, task: tokio::spawn(run(duty.clone(), stopped)) }
    }

    /// Ends the loops, and waits until nothing of them is under way.
    pub async fn shutdown(&mut self) {
        self.stop.send_replace(true);
        // It may have panicked; then nothing runs either.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs the loops until it is told to stop.
pub(crate) async fn run(duty: Arc<Duty>, mut stop: watch::Receiver<bool>) {
    let mut always = duty.start(duty.controllers.always());
    let mut otherwise = None;
    if duty.controllers.fallback().is_empty() {
        let _ = stop.wait_for(|told| *told).await;
    } else {
        tokio::select! {
            () = step_aside(&duty, &mut otherwise) => {}
            _ = stop.wait_for(|told| *told) => {}
        }
    }
    always.shutdown().await;
    if let Some(mut otherwise) = otherwise {
        otherwise.shutdown().await;
    }
}

impl Duty {
    /// Starts the loops that each of several servers runs for itself.
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

/// Runs the loops that a kube-controller-manager runs too, while there is none.
async fn step_aside(duty: &Duty, running: &mut Option<Loops>) {
    let mut lease = ManagerLease::default();
    loop {
        if let Err(error) = follow(duty, &mut lease, running).await {
            tracing::warn!(%error, lease = LEASE, "watch of the lease failed; trying again");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn follow(
    duty: &Duty,
    lease: &mut ManagerLease,
    running: &mut Option<Loops>,
) -> Result<(), Failure> {
    let registry = &duty.context.registry;
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
            let is_there = event.kind != EventKind::Deleted;
            let entry = is_there.then_some(&event.entry);
            lease.note(entry, &target.kind, registry.clock.now(), Instant::now());
        }
        let held_until = lease.held_until(Instant::now());
        match (held_until, running.as_mut()) {
            (Some(_), Some(loops)) => {
                let holder = &lease.holder;
                tracing::info!(%holder, "kube-controller-manager has its lease; stopping controllers");
                loops.shutdown().await;
                *running = None;
                duty.stands_aside.store(true, Ordering::Relaxed);
            }
            (None, None) => {
                let count = duty.controllers.fallback().len();
                tracing::info!(count, "no kube-controller-manager; starting controllers");
                *running = Some(duty.start(duty.controllers.fallback()));
                duty.stands_aside.store(false, Ordering::Relaxed);
            }
            (Some(_), None) => duty.stands_aside.store(true, Ordering::Relaxed),
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

/// The lease of kube-controller-managers, as it was seen.
#[derive(Default)]
struct ManagerLease {
    holder: String,
    until: Option<Instant>,
}

impl ManagerLease {
    /// Takes in the lease as it is now.
    fn note(&mut self, entry: Option<&Entry>, kind: &Kind, time: Timestamp, now: Instant) {
        let lease = entry.and_then(|entry| kind.decode(entry).ok()).unwrap_or_default();
        self.holder = lease.str_at(&["spec", "holderIdentity"]).to_owned();
        self.until = None;
        if self.holder.is_empty() || is_stale(&lease, time) {
            return;
        }
        let seconds = seconds_of(&lease);
        self.until = Some(now + Duration::from_secs(seconds.try_into().unwrap_or_default()));
    }

    /// How long it is believed that its holder is there; `None`: it is not.
    fn held_until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

fn seconds_of(lease: &Object) -> i64 {
    lease.int_at(&["spec", "leaseDurationSeconds"]).unwrap_or(0).max(0)
}

/// Whether a lease was last renewed by somebody who is gone since long.
fn is_stale(lease: &Object, time: Timestamp) -> bool {
    let renewed = Timestamp::parse(lease.str_at(&["spec", "renewTime"])).unwrap_or_default();
    time.since(renewed).seconds() > seconds_of(lease).saturating_add(STALE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_lease_that_ended_long_ago_is_nobodys() {
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
