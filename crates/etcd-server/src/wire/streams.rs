//! The streams of one HTTP/2 connection. They run in the task of the connection, which lets others
//! go on after some of them: a connection with a thousand streams delays the others no more than
//! one with few.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use tokio::task::coop::poll_proceed;

use super::shared::Shared;
use super::stall::until_stalled;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a connection puts its streams.
#[derive(Clone)]
pub(super) struct Streams {
    shared: Shared,
    started: Arc<Mutex<Vec<Running>>>,
}

impl Streams {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, started: Arc::default() }
    }

    /// Runs the connection and its streams until the connection ends.
    pub(super) async fn run<C: Future>(self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        let mut running = FuturesUnordered::new();
        poll_fn(|cx| {
            // Before the connection, which brings no more of them while they use up the turn.
            running.extend(self.started().drain(..));
            while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {}
            ready!(poll_proceed(cx)).made_progress();
            let ended = connection.as_mut().poll(cx);
            if !self.started().is_empty() {
                // In the next turn.
                cx.waker().wake_by_ref();
            }
            ended
        })
        .await
    }

    fn started(&self) -> MutexGuard<'_, Vec<Running>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let shared = self.shared.clone();
        let in_turn = async move {
            let mut stream = pin!(until_stalled(stream, shared));
            poll_fn(|cx| {
                ready!(poll_proceed(cx)).made_progress();
                stream.as_mut().poll(cx)
            })
            .await;
        };
        self.started().push(Box::pin(in_turn));
    }
}
