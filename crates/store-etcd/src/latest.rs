//! Reads the latest revision of the cluster, with one request for all concurrent callers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use keelson_store::{ReadError, Revision};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::shared::Shared;

type ReadResult = Result<Revision, ReadError>;

/// Callers that wait for the latest revision. Callers that come during a request wait for the next
/// one, because the response of the first may be too old for them; one more request then serves
/// all.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    waiting: Vec<oneshot::Sender<ReadResult>>,
}

impl Latest {
    /// Reads a revision at least as new as every write that was acknowledged before the call.
    pub fn read(
        self: &Arc<Self>,
        runtime: &Handle,
        shared: &Arc<Shared>,
    ) -> oneshot::Receiver<ReadResult> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        state.waiting.push(sender);
        let was_running = std::mem::replace(&mut state.is_running, true);
        // A runtime that shuts down drops the task at once, and the drop takes the lock.
        drop(state);
        if !was_running {
            let task = ReadTask { latest: self.clone(), is_finished: false };
            runtime.spawn(task.run(shared.clone()));
        }
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that sends the requests.
struct ReadTask {
    latest: Arc<Latest>,
    /// Whether the task has ended because no caller waited. Another task may run by now.
    is_finished: bool,
}

impl ReadTask {
    /// Sends requests until no caller waits. Each has the deadline of every read.
    async fn run(mut self, shared: Arc<Shared>) {
        while let Some(waiting) = self.next() {
            // The response to any key has the revision; this one has no value.
            let key = shared.keys.progress_key();
            let result = shared.fetch(key, Bytes::new(), 1, None).await.map(|(_, at)| at);
            for sender in waiting {
                // The caller may have dropped its receiver.
                let _ = sender.send(result.clone());
            }
        }
    }

    fn next(&mut self) -> Option<Vec<oneshot::Sender<ReadResult>>> {
        let mut state = self.latest.lock();
        state.is_running = !state.waiting.is_empty();
        self.is_finished = !state.is_running;
        state.is_running.then(|| std::mem::take(&mut state.waiting))
    }
}

impl Drop for ReadTask {
    fn drop(&mut self) {
        // The task was cancelled: drop the senders, so that their callers get an error, and let the
        // next caller start a new task.
        if !self.is_finished {
            *self.latest.lock() = State::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancelled_task_leaves_no_caller_waiting() {
        let latest = Arc::new(Latest::default());
        let (sender, receiver) = oneshot::channel();
        *latest.lock() = State { is_running: true, waiting: vec![sender] };
        let mut task = ReadTask { latest: latest.clone(), is_finished: false };
        let taken = task.next().expect("a waiting caller");
        let (sender, later) = oneshot::channel();
        latest.lock().waiting.push(sender);
        drop((taken, task));
        assert!(receiver.await.is_err() && later.await.is_err());
        assert!(!latest.lock().is_running);
    }

    #[test]
    fn a_finished_task_does_not_reset_the_next_one() {
        let latest = Arc::new(Latest::default());
        let mut task = ReadTask { latest: latest.clone(), is_finished: false };
        assert!(task.next().is_none());
        let (sender, _receiver) = oneshot::channel();
        *latest.lock() = State { is_running: true, waiting: vec![sender] };
        drop(task);
        let state = latest.lock();
        assert!(state.is_running && state.waiting.len() == 1);
    }
}
