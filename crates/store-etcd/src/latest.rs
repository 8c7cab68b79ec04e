//! How new the cluster is, asked once for all who want to know at the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use keelson_store::{ReadError, Revision};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::store::Shared;

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
        if !state.is_asking {
            state.is_asking = true;
            runtime.spawn(self.clone().run(shared.clone()));
        }
        receiver
    }

    /// Asks until nobody waits.
    async fn run(self: Arc<Self>, shared: Arc<Shared>) {
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

    fn next(&self) -> Option<Vec<oneshot::Sender<Answer>>> {
        let mut state = self.lock();
        state.is_asking = !state.waiting.is_empty();
        state.is_asking.then(|| std::mem::take(&mut state.waiting))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
