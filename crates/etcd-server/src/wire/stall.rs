//! Responses that their clients do not read: a stream is reset after a time, and the bytes of all
//! long responses together are bounded.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::shared::Shared;
use crate::error::EtcdError;
use crate::limits::{LONG_RESPONSE_BYTES, RESPONSE_STALL_MAX, RESPONSE_STALL_SHORT};
use crate::room::{ResponseRoom, Room};

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
pub(crate) struct Share(Arc<OnceLock<Room>>);

impl Share {
    /// Returns the share of a response that has its room.
    pub(crate) fn of(room: Room) -> Self {
        Self(Arc::new(OnceLock::from(room)))
    }

    /// Waits until there is room for a response of so many bytes.
    pub(crate) async fn take(&self, room: &ResponseRoom, bytes: usize) -> Result<(), EtcdError> {
        if bytes >= LONG_RESPONSE_BYTES {
            let _ = self.0.set(room.take(bytes).await?);
        }
        Ok(())
    }
}

/// A body that says what it waits for, and keeps its share and the place of its call until it ends.
pub(crate) struct Observed {
    body: Body,
    _share: Option<Share>,
    _call: Option<OwnedSemaphorePermit>,
}

impl Observed {
    pub(crate) fn response(
        response: Response<Body>,
        call: Option<OwnedSemaphorePermit>,
    ) -> Response<Observed> {
        LAST_POLL.set(Some(Waiting::ForClient));
        let (mut head, body) = response.into_parts();
        let share = head.extensions.remove::<Share>();
        Response::from_parts(head, Observed { body, _share: share, _call: call })
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

/// Runs a stream until it ends, or its client has read nothing for too long: dropping the stream
/// resets it.
pub(super) async fn until_stalled(stream: impl Future<Output = ()>, shared: Shared) {
    let mut stream = pin!(stream);
    let mut stall = None;
    poll_fn(|cx| poll(stream.as_mut(), &mut stall, &shared, cx)).await;
}

/// A client that does not read.
struct Stall {
    since: Instant,
    /// When to look again whether others need the room.
    timer: Pin<Box<Sleep>>,
}

/// Polls a stream. Also ready if its client has read nothing for too long.
fn poll(
    stream: Pin<&mut impl Future<Output = ()>>,
    stall: &mut Option<Stall>,
    shared: &Shared,
    cx: &mut Context<'_>,
) -> Poll<()> {
    LAST_POLL.set(None);
    if stream.poll(cx).is_ready() {
        return Poll::Ready(());
    }
    match LAST_POLL.take() {
        Some(Waiting::ForClient) => {
            let timer = Box::pin(sleep(RESPONSE_STALL_SHORT));
            *stall = Some(Stall { since: Instant::now(), timer });
        }
        Some(Waiting::ForServer) => *stall = None,
        None => {}
    }
    let Some(Stall { since, timer }) = stall else { return Poll::Pending };
    while timer.as_mut().poll(cx).is_ready() {
        if since.elapsed() >= RESPONSE_STALL_MAX || shared.is_short_of_room() {
            tracing::debug!("client reads nothing; resetting its stream");
            return Poll::Ready(());
        }
        timer.as_mut().reset(Instant::now() + RESPONSE_STALL_SHORT);
    }
    Poll::Pending
}
