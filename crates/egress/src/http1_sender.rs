//! [`Http1Sender`]: sends requests over a connection for HTTP/1.1, and knows whether a request that
//! failed may be sent again.

use crate::body::Body;
use crate::error::Cause;
use crate::hyper_errors::hyper_cause;
use crate::wire::AddrPair;
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The request sender of a connection for HTTP/1.1, which sends one request at a time.
pub(crate) struct Http1Sender {
    sender: http1::SendRequest<Body>,
    /// Bytes that have arrived on the connection so far, after TLS.
    arrived: Arc<AtomicU64>,
}

/// A request that got no response.
pub(crate) struct Unanswered {
    error: hyper::Error,
    /// The request, if nothing of it was sent.
    pub unsent: Option<Request<Body>>,
    /// Whether a part of a response has arrived.
    pub is_begun: bool,
}

impl Http1Sender {
    /// Starts HTTP/1.1 on a connection. Its task ends when the sender is dropped.
    pub async fn start(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        builder: &http1::Builder,
    ) -> hyper::Result<Http1Sender> {
        let arrived = Arc::<AtomicU64>::default();
        let io = TokioIo::new(Counted { stream, arrived: arrived.clone() });
        let (sender, connection) = builder.handshake(io).await?;
        tokio::spawn(connection);
        Ok(Http1Sender { sender, arrived })
    }

    /// Sends a request. Returns when the head of the response has arrived.
    pub async fn send(&mut self, message: Request<Body>) -> Result<Response<Incoming>, Unanswered> {
        let before = self.arrived.load(Ordering::Relaxed);
        self.sender.try_send_request(message).await.map_err(|failed| {
            let is_begun = self.arrived.load(Ordering::Relaxed) != before;
            Unanswered { is_begun, ..Unanswered::of_http2(failed) }
        })
    }

    /// Returns whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the last exchange is over. Returns whether another one may follow.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }
}

impl Unanswered {
    /// Returns the failure of a request in HTTP/2, of whose response nothing is known.
    pub fn of_http2(mut failed: TrySendError<Request<Body>>) -> Unanswered {
        let unsent = failed.take_message();
        Unanswered { unsent, error: failed.into_error(), is_begun: false }
    }

    /// Returns why there is no response.
    pub fn cause(&self, addrs: AddrPair) -> Cause {
        match hyper_cause(&self.error, addrs) {
            Cause::Closed if self.is_begun => Cause::Protocol("unexpected EOF".to_owned()),
            other => other,
        }
    }
}

/// Returns whether a request may be sent again when nobody knows whether the first one was
/// processed, as Go's client decides it: by the method, or a key that the sender gave it. It must
/// not have a body that is read while it is sent.
pub(crate) fn is_replayable(method: &Method, headers: &HeaderMap) -> bool {
    let has_key = ["idempotency-key", "x-idempotency-key"].map(|name| headers.contains_key(name));
    method.is_safe() || has_key.contains(&true)
}

/// A connection that counts the bytes which arrive.
struct Counted<S> {
    stream: S,
    arrived: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.arrived.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
