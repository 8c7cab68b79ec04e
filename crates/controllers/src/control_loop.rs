//! [`ControlLoop`]: what all loops have in common. Changes of objects become keys, and each key is looked at by
//! itself, several side by side: what fails is tried again later and does not keep the others waiting.

use crate::queue::Queue;
use keelson_meta::{Failure, Status};
use keelson_registry::{Informer, InformerEvent, Registry, Wanted};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Between two looks at what has changed: under many writes, loops that are woken for each would cost more than the
/// writes do.
const GATHER: Duration = Duration::from_millis(5);

/// One control loop.
pub(crate) trait ControlLoop: Send + Sync + 'static {
    /// What one look is about: mostly an object.
    type Key: Clone + Debug + Eq + Hash + Ord + Send + 'static;
    /// Its name in `--controllers` and in logs.
    const NAME: &'static str;
    /// The objects whose changes it is told.
    const WANTED: Wanted;
    /// Keys that are looked at side by side.
    const WORKERS_MAX: usize;

    /// Takes in what has happened, and says which keys are to be looked at. True: everything that has happened
    /// meanwhile to objects of other kinds must be taken in before any key is looked at.
    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Self::Key>) -> bool;

    /// Looks at a key, and does what is to be done. Answers when it is to be looked at again though nothing
    /// should happen.
    fn sync(
        &self,
        key: Self::Key,
    ) -> impl Future<Output = Result<Option<Duration>, Failure>> + Send;
}

/// Runs a loop until it is dropped; then nothing of it is under way any more.
pub(crate) async fn run<L: ControlLoop>(registry: &Arc<Registry>, control_loop: L) {
    let control_loop = Arc::new(control_loop);
    let mut informer = registry.informer(L::WANTED);
    let mut queue = Queue::default();
    let mut working: JoinSet<Worked<L::Key>> = JoinSet::new();
    let mut next_look = Instant::now();
    loop {
        if Instant::now() >= next_look {
            observe(&*control_loop, &mut informer, &mut queue);
            next_look = Instant::now() + GATHER;
        }
        while working.len() < L::WORKERS_MAX
            && let Some(key) = queue.next(Instant::now())
        {
            let (control_loop, registry) = (control_loop.clone(), registry.clone());
            working.spawn(async move {
                // What a loop wrote before, it sees.
                let result = match registry.cache.wait_known().await {
                    Ok(()) => control_loop.sync(key.clone()).await,
                    Err(error) => Err(Status::unavailable(error.to_string())),
                };
                Worked { key, result }
            });
        }
        tokio::select! {
            () = changed(&mut informer, next_look) => {}
            Some(worked) = working.join_next() => {
                finish::<L>(&mut queue, worked);
                while let Some(worked) = working.try_join_next() {
                    finish::<L>(&mut queue, worked);
                }
            }
            () = due(&queue), if working.len() < L::WORKERS_MAX => {}
        }
    }
}

/// What came of a look at a key.
struct Worked<K> {
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

/// Waits for a change, but not for less than until the next look.
async fn changed(informer: &mut Informer, next_look: Instant) {
    informer.changed().await;
    sleep_until(next_look).await;
}

async fn due<K: Clone + Eq + Hash + Ord>(queue: &Queue<K>) {
    match queue.next_due() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn finish<L: ControlLoop>(
    queue: &mut Queue<L::Key>,
    worked: Result<Worked<L::Key>, tokio::task::JoinError>,
) {
    let Worked { key, result } = match worked {
        Ok(worked) => worked,
        // Whoever runs the loop restarts it.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => return,
    };
    let now = Instant::now();
    match result {
        Ok(again) => queue.done(key, again.map(|after| now + after)),
        // Another write came between: that is no fault of anybody.
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

/// Whether events may be about the one object of a name: of what was listed, any may be.
pub(crate) fn concern(events: &[InformerEvent], namespace: &str, name: &str) -> bool {
    events.iter().any(|event| match event {
        InformerEvent::Listed(..) => true,
        InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
            entry.namespace() == namespace && entry.name() == name
        }
        InformerEvent::Withdrawn(_) => false,
    })
}

/// The result of a task of a `JoinSet`; `None`: there is none left.
pub(crate) fn joined(
    done: Option<Result<Result<(), Failure>, tokio::task::JoinError>>,
) -> Result<(), Failure> {
    match done {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(Status::internal(error)),
        None => Ok(()),
    }
}
