//! TCP streams that can detect a closed client while a response is being sent.
//!
//! hyper can detect this by reading during each request, but allocates a new buffer for it. This is
//! switched off (`half_close`), and only long-running responses check it here. Other requests run
//! to their end even if the client has gone.

use crate::connections::ConnectionSlot;
use crate::limits::Limits;
use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Interval of the check for a closed client, while the client's bytes are unread.
const CLOSED_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the connection is read after the last response (Go's `rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);

/// A socket shared by the connection, which reads and writes, and long-running responses.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: TcpStream,
    /// Whether to read and discard further bytes before closing. Closing a socket with unread bytes
    /// resets it, and the client may then lose the response.
    lingers: AtomicBool,
}

impl Socket {
    /// Waits until the client has closed its side, or the connection has failed.
    pub async fn closed(&self) {
        while let Ok(ready) = self.0.stream.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            sleep(CLOSED_POLL_INTERVAL).await;
        }
    }

    /// Writes without waiting. Returns the number of bytes written.
    pub fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stream.try_write(bytes)
    }

    /// Makes the shutdown read and discard further bytes for a while.
    pub fn linger(&self) {
        self.0.lingers.store(true, Ordering::Relaxed);
    }
}

/// The TCP stream of a connection. A client that reads nothing for too long is disconnected, so
/// that its responses do not stay in memory for ever.
pub(crate) struct ClientStream {
    socket: Socket,
    slot: ConnectionSlot,
    /// Write timeout.
    stall_max: Duration,
    /// The write timeout, while a write waits.
    stall_timer: Option<Pin<Box<Sleep>>>,
    /// The linger timeout, during the shutdown.
    linger_timer: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    pub fn new(stream: TcpStream, limits: &Limits, slot: ConnectionSlot) -> ClientStream {
        // Detects clients whose host has disappeared.
        let keepalive = TcpKeepalive::new().with_time(limits.keepalive_time);
        if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
            tracing::debug!(%error, "cannot enable TCP keepalive");
        }
        let socket = Socket(Arc::new(Shared { stream, lingers: AtomicBool::new(false) }));
        let stall_max = limits.write_stall_timeout;
        ClientStream { socket, slot, stall_max, stall_timer: None, linger_timer: None }
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Polls a write, with a timeout.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Poll::Ready(ready) = self.socket.0.stream.poll_write_ready(cx) {
                ready?;
                match write(&self.socket.0.stream) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    written => {
                        self.stall_timer = None;
                        return Poll::Ready(written);
                    }
                }
            }
            let stall_max = self.stall_max;
            let stall_timer = self.stall_timer.get_or_insert_with(|| Box::pin(sleep(stall_max)));
            ready!(stall_timer.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &self.socket.0.stream;
        let capacity = buf.remaining();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let mut read = Ok(0);
            // A read that does not fill the buffer has emptied the socket. `WouldBlock` clears the
            // readiness, which saves another read.
            let _ = stream.try_io(Interest::READABLE, || {
                read = stream.try_read_buf(buf);
                match read {
                    Ok(bytes) if bytes == 0 || bytes == capacity => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(bytes) if !self.slot.record_received(bytes) => {
                    return Poll::Ready(Err(io::Error::other(
                        "too much was sent before a request",
                    )));
                }
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let shared = &this.socket.0;
        if this.linger_timer.is_none() {
            SockRef::from(&shared.stream).shutdown(Shutdown::Write)?;
            if !shared.lingers.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let until = this.linger_timer.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut unread = [0; 4096];
        while until.as_mut().poll(cx).is_pending() {
            ready!(shared.stream.poll_read_ready(cx))?;
            match shared.stream.try_read(&mut unread) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// A stream whose first bytes can be peeked at, with a timeout for HTTP/1 request heads.
pub(crate) struct PeekableStream<S> {
    stream: S,
    peeked: Bytes,
    state: Arc<Http1State>,
    /// Timeout for the rest of an HTTP/1 request head.
    head_timeout: Option<Duration>,
    /// The timeout, while the rest of a head is awaited.
    head_timer: Option<Pin<Box<Sleep>>>,
}

/// State shared by a stream and the HTTP/1.1 connection on it.
#[derive(Debug, Default)]
pub(crate) struct Http1State {
    /// Something was written since the last complete flush.
    has_unflushed: AtomicBool,
    /// A request is in progress: received bytes are its body.
    is_responding: AtomicBool,
    /// Some bytes of the next head have been received.
    head_started: AtomicBool,
}

impl Http1State {
    /// Returns whether something was written since the last complete flush.
    pub fn has_unflushed(&self) -> bool {
        self.has_unflushed.load(Ordering::Relaxed)
    }

    /// Records that a request head is complete.
    pub fn request_received(&self) {
        self.is_responding.store(true, Ordering::Relaxed);
        self.head_started.store(false, Ordering::Relaxed);
    }

    /// Records that the response is ready and the body was read: further bytes are the next head.
    pub fn response_ready(&self) {
        self.is_responding.store(false, Ordering::Relaxed);
    }
}

impl<S> PeekableStream<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> PeekableStream<S> {
        PeekableStream {
            stream,
            peeked: Bytes::new(),
            state: Arc::default(),
            head_timeout: None,
            head_timer: None,
        }
    }

    /// Sets the timeout of a request head, counted from its first byte.
    pub fn set_header_timeout(&mut self, time_max: Duration) {
        self.head_timeout = Some(time_max);
    }

    /// Returns the state shared with the HTTP/1.1 connection on this stream.
    pub fn state(&self) -> Arc<Http1State> {
        self.state.clone()
    }

    /// Waits for the next `N` bytes without consuming them; `None` if the stream ends before.
    /// Cancel-safe.
    pub async fn peek<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>>
    where
        S: AsyncRead + Unpin,
    {
        while self.peeked.len() < N {
            let mut next = [0; N];
            let count = self.stream.read(&mut next[self.peeked.len()..]).await?;
            if count == 0 {
                return Ok(None);
            }
            let next = &next[self.peeked.len()..][..count];
            self.peeked = [&self.peeked, next].concat().into();
        }
        Ok(self.peeked.first_chunk().copied())
    }

    /// Puts back bytes that were read last.
    pub fn unread(&mut self, bytes: Bytes) {
        self.peeked = match self.peeked.is_empty() {
            true => bytes,
            false => [bytes, self.peeked.clone()].concat().into(),
        };
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PeekableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.peeked.is_empty() {
            let count = this.peeked.len().min(buf.remaining());
            buf.put_slice(&this.peeked.split_to(count));
            this.state.head_started.store(true, Ordering::Relaxed);
            return Poll::Ready(Ok(()));
        }
        let state = &this.state;
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                let is_responding = state.is_responding.load(Ordering::Relaxed);
                state.head_started.store(!is_responding, Ordering::Relaxed);
                Poll::Ready(read)
            }
            Poll::Pending if state.head_started.load(Ordering::Relaxed) => {
                let Some(time_max) = this.head_timeout else { return Poll::Pending };
                let late = this.head_timer.get_or_insert_with(|| Box::pin(sleep(time_max)));
                ready!(late.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => {
                this.head_timer = None;
                Poll::Pending
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PeekableStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.state.has_unflushed.store(true, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.state.has_unflushed.store(true, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.state.has_unflushed.store(false, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use std::io::{Read, Write};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (std::net::TcpStream, ClientStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let limits = Limits { write_stall_timeout: Duration::from_millis(30), ..Limits::default() };
        let slot = Connections::new(&limits).enter([127, 0, 0, 1].into()).unwrap();
        (client, ClientStream::new(listener.accept().await.unwrap().0, &limits, slot))
    }

    #[tokio::test]
    async fn bytes_after_a_short_read_are_read() {
        let (mut client, mut socket) = pair().await;
        let mut buffer = [0; 64];
        for turn in 0..100_u8 {
            client.write_all(&[turn; 3]).unwrap();
            let mut got = vec![];
            while got.len() < 3 {
                let bytes = socket.read(&mut buffer).await.unwrap();
                got.extend_from_slice(&buffer[..bytes]);
            }
            assert_eq!(got, [turn; 3]);
        }
        socket.write_all(b"answer").await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }

    #[tokio::test]
    async fn a_closed_connection_is_noticed_without_reading() {
        let (client, wire) = pair().await;
        let closed = wire.socket().closed();
        tokio::pin!(closed);
        let waiting = tokio::time::timeout(Duration::from_millis(20), closed.as_mut()).await;
        assert!(waiting.is_err(), "the client is there");
        drop(client);
        closed.await;
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (client, mut wire) = pair().await;
        let written = wire.write_all(&vec![0; 64 << 20]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[tokio::test]
    async fn peeked_bytes_are_read_again() {
        let (mut client, wire) = pair().await;
        let mut stream = PeekableStream::new(wire);
        client.write_all(b"a").unwrap();
        assert_eq!(stream.peek().await.unwrap(), Some(*b"a"));
        let more = stream.peek::<2>();
        let waiting = tokio::time::timeout(Duration::from_millis(20), more).await;
        assert!(waiting.is_err(), "there is but one");
        client.write_all(b"bc").unwrap();
        assert_eq!(stream.peek().await.unwrap(), Some(*b"ab"));
        assert_eq!(stream.peek().await.unwrap(), Some(*b"ab"), "twice");
        stream.unread(Bytes::from_static(b"01"));
        drop(client);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "01abc");
        assert_eq!(stream.peek::<1>().await.unwrap(), None);
    }
}
