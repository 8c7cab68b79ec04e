//! The body of a response together with the request context, which it owns until it ends.

use crate::body::Body;
use crate::context::RequestContext;
use crate::turns::{Lists, Turn};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;

/// Most bytes passed to HTTP/2 at once. It buffers them even if the client reads nothing.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// The body of a response.
pub(crate) struct ResponseBody {
    pub body: Body,
    /// Whether it is split into chunks of [`PIECE_BYTES`].
    is_split: bool,
    /// `None`: it is no list that is encoded while it is sent.
    sending: Option<Box<Sending>>,
    /// Dropped when the body ends.
    pub context: RequestContext,
}

/// What a list has while it is sent.
struct Sending {
    turn: Turn,
    /// Counts it among the lists without a seat.
    _without_seat: Option<OwnedSemaphorePermit>,
}

/// What a stream waits for after a poll of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    /// A frame is ready, and the client has not read it.
    WaitingForClient,
    /// The server has nothing to send yet.
    WaitingForServer,
}

thread_local! {
    /// The outcome of the current poll, which stays on its thread.
    static LAST_POLL: Cell<Option<PollOutcome>> = const { Cell::new(None) };
}

/// Polls a stream, and returns also the outcome of polling its body, if it was polled.
pub(crate) fn observe_poll<T>(poll: impl FnOnce() -> T) -> (T, Option<PollOutcome>) {
    LAST_POLL.set(None);
    let polled = poll();
    (polled, LAST_POLL.take())
}

/// Records that a response is ready, and that the stream waits for its client.
pub(crate) fn mark_waiting_for_client() {
    LAST_POLL.set(Some(PollOutcome::WaitingForClient));
}

impl ResponseBody {
    /// Creates the body of a response of the server with these lists.
    pub fn new(
        body: Body,
        is_split: bool,
        mut context: RequestContext,
        lists: &Lists,
    ) -> ResponseBody {
        let mut sending = None;
        if body.turn_bytes().is_some() && body.is_lasting() {
            // What is left of a list is sent in turns, and holds little memory.
            let without_seat = lists.without_seat();
            context.return_fair_seats(without_seat.is_none());
            let turn = lists.turn(context.user().clone());
            sending = Some(Box::new(Sending { turn, _without_seat: without_seat }));
        }
        ResponseBody { body, is_split, sending, context }
    }

    /// Creates the body of a response before there is a request, which is no list.
    pub fn plain(body: Body) -> ResponseBody {
        let context = RequestContext::default();
        ResponseBody { body, is_split: false, sending: None, context }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let polled = this.poll_inner(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            this.context.sent(bytes);
            if let Some(sending) = &mut this.sending {
                sending.turn.spend(bytes);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl ResponseBody {
    fn poll_inner(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if !self.is_split {
            return self.poll_in_turn(cx);
        }
        if let Body::Whole(Some(bytes)) = &mut self.body
            && bytes.len() > PIECE_BYTES
        {
            mark_waiting_for_client();
            return Poll::Ready(Some(Ok(Frame::data(bytes.split_to(PIECE_BYTES)))));
        }
        let polled = self.poll_in_turn(cx);
        let outcome = if polled.is_ready() {
            PollOutcome::WaitingForClient
        } else {
            PollOutcome::WaitingForServer
        };
        LAST_POLL.set(Some(outcome));
        polled
    }

    fn poll_in_turn(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(sending) = &mut self.sending else {
            return Pin::new(&mut self.body).poll_frame(cx);
        };
        let bytes_max = self.body.turn_bytes().unwrap_or(usize::MAX);
        ready!(sending.turn.poll(bytes_max, cx));
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending() {
            // It has more to do before its next piece.
            sending.turn.end();
        }
        polled
    }
}
