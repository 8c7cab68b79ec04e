//! [`ControlLoop`]: the common part of all loops. Changes of objects add keys to a queue; keys are
//! synced concurrently, and a key that fails is retried with backoff.

use crate::queue::Queue;
use keelson_meta::{Failure, Status};
use keelson_registry::metrics::RunningWork;
use keelson_registry::{Informer, InformerEvent, InformerScope, Registry};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The usual [`ControlLoop::OBSERVE_INTERVAL`].
const OBSERVE_INTERVAL: Duration = Duration::from_millis(5);

/// One control loop.
pub trait ControlLoop: Send + Sync + 'static {
    /// A unit of work, in most loops the namespace and name of an object.
    type Key: Clone + Debug + Eq + Hash + Ord + Send + 'static;
    /// The name in `--controllers` and in logs.
    const NAME: &'static str;
    /// The objects that the loop watches.
    const SCOPE: InformerScope;
    /// Maximum number of keys that are synced concurrently.
    const WORKERS_MAX: usize;
    /// Minimum time between two calls of `observe`. Under many writes, waking a loop for each of
    /// them would cost more than the writes.
    const OBSERVE_INTERVAL: Duration = OBSERVE_INTERVAL;

    /// Maximum number of keys that are synced concurrently at present: `WORKERS_MAX`, or less.
    fn workers(&self) -> usize {
        Self::WORKERS_MAX
    }

    /// Whether a key goes before all others that are due.
    fn is_urgent(_key: &Self::Key) -> bool {
        false
    }

    /// Processes changes and adds keys to the queue. Returns true if the changes of other kinds up
    /// to now must be observed before any key is synced.
    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Self::Key>) -> bool;

    /// Brings the objects of a key to the desired state. Returns the time after which the key is
    /// synced again even without a change.
    fn sync(
        &self,
        key: Self::Key,
    ) -> impl Future<Output = Result<Option<Duration>, Failure>> + Send;
}

/// Runs a loop until the future is dropped, which also aborts the syncs that are running.
pub async fn run<L: ControlLoop>(registry: &Arc<Registry>, control_loop: L) {
    let control_loop = Arc::new(control_loop);
    let mut informer = registry.informer(L::SCOPE);
    let counted = registry.metrics.queues.queue(L::NAME);
    let mut queue = Queue::counted(counted.clone()).urgent(L::is_urgent);
    let mut tasks: JoinSet<SyncResult<L::Key>> = JoinSet::new();
    let mut next_observe = Instant::now();
    loop {
        if Instant::now() >= next_observe {
            observe(&*control_loop, &mut informer, &mut queue);
            next_observe = Instant::now() + L::OBSERVE_INTERVAL;
        }
        let workers = control_loop.workers();
        while tasks.len() < workers
            && let Some(key) = queue.next(registry.clock.monotonic())
        {
            let control_loop = control_loop.clone();
            let registry = registry.clone();
            let sync = counted.as_ref().map(|counted| RunningWork::begin(counted, Instant::now()));
            tasks.spawn(async move {
                let _sync = sync;
                // A sync must see the earlier writes of this process.
                let result = match registry.cache.wait_known_everywhere().await {
                    Ok(()) => control_loop.sync(key.clone()).await,
                    Err(error) => Err(Status::unavailable(error.to_string())),
                };
                SyncResult { key, result }
            });
        }
        tokio::select! {
            () = changed(&mut informer, next_observe) => {}
            Some(finished) = tasks.join_next() => {
                finish::<L>(&mut queue, finished, registry.clock.monotonic());
                while let Some(finished) = tasks.try_join_next() {
                    finish::<L>(&mut queue, finished, registry.clock.monotonic());
                }
            }
            () = due(&queue, registry), if tasks.len() < workers => {}
        }
    }
}

/// The result of a sync.
struct SyncResult<K> {
    key: K,
    result: Result<Option<Duration>, Failure>,
}

fn observe<L: ControlLoop>(control_loop: &L, informer: &mut Informer, queue: &mut Queue<L::Key>) {
    let mut events = vec![];
    informer.take(&mut events);
    while !events.is_empty() && control_loop.observe(std::mem::take(&mut events), queue) {
        informer.take_all(&mut events);
    }
}

/// Waits for a change, and at least until the next call of `observe`.
async fn changed(informer: &mut Informer, next_observe: Instant) {
    informer.changed().await;
    sleep_until(next_observe).await;
}

async fn due<K: Clone + Eq + Hash + Ord>(queue: &Queue<K>, registry: &Registry) {
    match queue.next_due() {
        Some(at) => registry.clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn finish<L: ControlLoop>(
    queue: &mut Queue<L::Key>,
    finished: Result<SyncResult<L::Key>, tokio::task::JoinError>,
    now: Instant,
) {
    let SyncResult { key, result } = match finished {
        Ok(finished) => finished,
        // The supervisor restarts the loop.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => return,
    };
    match result {
        Ok(again) => queue.done(key, again.map(|after| now + after)),
        // A conflict with another write is not an error.
        Err(error) if error.code == 409 => {
            let delay = queue.failed(key.clone(), now);
            tracing::debug!(controller = L::NAME, ?key, %error, retry = ?delay, "sync met a conflict; retrying");
        }
        Err(error) => {
            let delay = queue.failed(key.clone(), now);
            tracing::warn!(controller = L::NAME, ?key, %error, retry = ?delay, "sync failed; retrying");
        }
    }
}

/// Whether events may concern this object. A list may contain any object.
pub fn may_concern(events: &[InformerEvent], namespace: &str, name: &str) -> bool {
    events.iter().any(|event| match event {
        InformerEvent::Listed(..) => true,
        InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
            entry.namespace() == namespace && entry.name() == name
        }
        InformerEvent::Withdrawn(_) => false,
    })
}

/// Returns the result of a task of a `JoinSet`; `None` means that no task was left.
pub fn join_result(
    done: Option<Result<Result<(), Failure>, tokio::task::JoinError>>,
) -> Result<(), Failure> {
    match done {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(Status::internal(error)),
        None => Ok(()),
    }
}
