//! An answer while it is sent: its body, and what is counted until its end.

use crate::body::Body;
use crate::context::RequestContext;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes of a body that HTTP/2 is given at once. What it was given it keeps, however little its client
/// takes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// The body of an answer.
pub(crate) struct Sending {
    pub body: Body,
    /// Whether it goes out in pieces.
    is_pieced: bool,
    /// Held to the end, then dropped.
    pub context: RequestContext,
}

/// Result of the last poll of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A frame was given; the client has not taken it.
    WaitsForClient,
    /// Nothing to send yet.
    WaitsForServer,
}

thread_local! {
    /// Set within one poll, which never leaves its thread.
    static SAID: Cell<Option<Said>> = const { Cell::new(None) };
}

/// Polls a stream, and answers what its body did meanwhile.
pub(crate) fn observed<T>(poll: impl FnOnce() -> T) -> (T, Option<Said>) {
    SAID.set(None);
    let polled = poll();
    (polled, SAID.take())
}

/// An answer is ready, whose client may not take it.
pub(crate) fn waits_for_the_client() {
    SAID.set(Some(Said::WaitsForClient));
}

impl Sending {
    pub fn new(body: Body, is_pieced: bool, context: RequestContext) -> Sending {
        Sending { body, is_pieced, context }
    }
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let polled = this.poll_piece(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.context.sent(frame.data_ref().map_or(0, Bytes::len));
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

impl Sending {
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if !self.is_pieced {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        if let Body::Whole(Some(bytes)) = &mut self.body
            && bytes.len() > PIECE_BYTES
        {
            waits_for_the_client();
            return Poll::Ready(Some(Ok(Frame::data(bytes.split_to(PIECE_BYTES)))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let said = if polled.is_ready() { Said::WaitsForClient } else { Said::WaitsForServer };
        SAID.set(Some(said));
        polled
    }
}
