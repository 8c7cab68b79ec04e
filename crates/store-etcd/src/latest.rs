//! How new the cluster is, asked once for all who want to know at the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use keelson_store::{ReadError, Revision};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::shared::Shared;

type Answer = Result<Revision, ReadError>;

/// Those who want to know. While one question is under way the next ones gather, as its answer may be
/// older than they are; then one more serves them all. So there are at most as many as requests.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_asking: bool,
    waiting: Vec<oneshot::Sender<Answer>>,
}

impl Latest {
    /// A revision at least as new as every write that was acknowledged before the call.
    pub fn ask(
        self: &Arc<Self>,
        runtime: &Handle,
        shared: &Arc<Shared>,
    ) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        state.waiting.push(sender);
        let was_asking = std::mem::replace(&mut state.is_asking, true);
        // A runtime that ends drops the task at once, which takes the lock.
        drop(state);
        if !was_asking {
            let asking = Asking { latest: self.clone(), ended: false };
            runtime.spawn(asking.run(shared.clone()));
        }
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one task that asks.
struct Asking {
    latest: Arc<Latest>,
    /// Nobody waited any more: another task may have begun since.
    ended: bool,
}

impl Asking {
    /// Asks until nobody waits. Each question has the deadline of every read.
    async fn run(mut self, shared: Arc<Shared>) {
        while let Some(waiting) = self.next() {
            // Any key tells the revision; this one is small.
            let range = (shared.keys.marker(), Bytes::new());
            let answer = shared.fetch(range, 1, None).await.map(|(_, at)| at);
            for sender in waiting {
                // Who has gone away no longer wants to know.
                let _ = sender.send(answer.clone());
            }
        }
    }

    fn next(&mut self) -> Option<Vec<oneshot::Sender<Answer>>> {
        let mut state = self.latest.lock();
        state.is_asking = !state.waiting.is_empty();
        self.ended = !state.is_asking;
        state.is_asking.then(|| std::mem::take(&mut state.waiting))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Cut off half-way: who waits is told so, and who comes next asks anew.
        if !self.ended {
            *self.latest.lock() = State::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_is_cut_off_leaves_nobody_waiting() {
        let latest = Arc::new(Latest::default());
        let (sender, receiver) = oneshot::channel();
        *latest.lock() = State { is_asking: true, waiting: vec![sender] };
        let mut asking = Asking { latest: latest.clone(), ended: false };
        let taken = asking.next().expect("somebody waits");
        let (sender, later) = oneshot::channel();
        latest.lock().waiting.push(sender);
        drop((taken, asking));
        assert!(receiver.await.is_err() && later.await.is_err());
        assert!(!latest.lock().is_asking);
    }

    #[test]
    fn a_task_that_has_ended_leaves_the_next_one_alone() {
        let latest = Arc::new(Latest::default());
        let mut asking = Asking { latest: latest.clone(), ended: false };
        assert!(asking.next().is_none());
        let (sender, _receiver) = oneshot::channel();
        *latest.lock() = State { is_asking: true, waiting: vec![sender] };
        drop(asking);
        let state = latest.lock();
        assert!(state.is_asking && state.waiting.len() == 1);
    }
}
