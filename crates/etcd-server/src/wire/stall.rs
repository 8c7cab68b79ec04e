//! Responses that their clients do not read: a stream is reset after a time, and the bytes of all long
//! responses together are bounded.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};
use tonic::Status;
use tonic::body::Body;

use crate::error::EtcdError;
use crate::limits::{
    LONG_RESPONSE_BYTES, RESPONSE_STALL_MAX, RESPONSE_WAIT_MAX, RESPONSES_BYTES_MAX,
};

const KILOBYTE: usize = 1 << 10;

/// What a stream waits for after a poll of its body.
#[derive(Clone, Copy)]
enum Waiting {
    /// The client has not read what is ready.
    ForClient,
    /// There is nothing to send yet.
    ForServer,
}

thread_local! {
    /// The outcome of the current poll, which stays on its thread.
    static LAST_POLL: Cell<Option<Waiting>> = const { Cell::new(None) };
}

/// The share of a long response in the bytes of all; in the extensions of the response.
#[derive(Clone, Default)]
pub(crate) struct Share(Arc<OnceLock<OwnedSemaphorePermit>>);

impl Share {
    /// Waits until there is room for a response of so many bytes.
    pub(crate) async fn take(&self, all: &Arc<Semaphore>, bytes: usize) -> Result<(), Status> {
        if bytes < LONG_RESPONSE_BYTES {
            return Ok(());
        }
        let kilobytes = u32::try_from(bytes / KILOBYTE).unwrap_or(u32::MAX);
        let taking = Arc::clone(all).acquire_many_owned(kilobytes);
        match timeout(RESPONSE_WAIT_MAX, taking).await {
            Ok(Ok(permit)) => {
                let _ = self.0.set(permit);
                Ok(())
            }
            Ok(Err(_)) => Err(EtcdError::Stopped.into()),
            Err(_) => Err(EtcdError::TooManyRequests.into()),
        }
    }
}

/// Returns the bound of the bytes of all long responses.
pub(crate) fn response_room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(RESPONSES_BYTES_MAX / KILOBYTE))
}

/// A body that says what it waits for, and keeps its share until it ends.
pub(crate) struct Observed {
    body: Body,
    _share: Option<Share>,
}

impl Observed {
    pub(crate) fn response(response: Response<Body>) -> Response<Observed> {
        LAST_POLL.set(Some(Waiting::ForClient));
        let (mut head, body) = response.into_parts();
        let share = head.extensions.remove::<Share>();
        Response::from_parts(head, Observed { body, _share: share })
    }
}

impl HttpBody for Observed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let waiting = if polled.is_ready() { Waiting::ForClient } else { Waiting::ForServer };
        LAST_POLL.set(Some(waiting));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Runs the streams of HTTP/2 connections.
#[derive(Clone, Copy)]
pub(crate) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(async move {
            let mut stream = Box::pin(stream);
            let mut stalled = None;
            // Dropping the stream resets it.
            poll_fn(|cx| poll(stream.as_mut(), &mut stalled, cx)).await;
        });
    }
}

/// Polls a stream. Also ready if its client has read nothing for too long.
fn poll(
    stream: Pin<&mut impl Future<Output = ()>>,
    stalled: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    LAST_POLL.set(None);
    if stream.poll(cx).is_ready() {
        return Poll::Ready(());
    }
    match LAST_POLL.take() {
        Some(Waiting::ForClient) => *stalled = Some(Box::pin(sleep(RESPONSE_STALL_MAX))),
        Some(Waiting::ForServer) => *stalled = None,
        None => {}
    }
    let Some(stalled) = stalled else { return Poll::Pending };
    stalled.as_mut().poll(cx).map(|()| {
        tracing::debug!("client reads nothing; resetting its stream");
    })
}
