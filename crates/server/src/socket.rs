//! A TCP socket that can be asked, while its connection is busy with an answer, whether the client is
//! still there.
//!
//! hyper would find that out by reading during each request, for which it makes itself a new buffer each
//! time. It is told not to (`half_close`); only answers that last ask here. So the other requests of a client
//! that went are done to their end, as a write is whose answer nobody waits for.

use crate::connections::Place;
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

/// Pause before the socket is looked at again while a client has unread bytes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long the connection is still read after the last answer (Go's `rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);

/// A socket with several owners: the connection that reads and writes, and answers that last.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: TcpStream,
    /// Whether what the client still sends is read and thrown away before the end: to close a socket that
    /// has unread bytes is to reset it, and the client may lose the answer to that.
    lingers: AtomicBool,
}

impl Socket {
    /// Ends when the client has closed its side, or the connection broke.
    pub async fn closed(&self) {
        while let Ok(ready) = self.0.stream.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Writes what there is room for. Never waits, so that it can be the last thing that is done.
    pub fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stream.try_write(bytes)
    }

    /// Reads and throws away what comes after the last answer, for a while.
    pub fn linger(&self) {
        self.0.lingers.store(true, Ordering::Relaxed);
    }
}

/// What a connection reads from and writes to. A client that takes nothing for too long is cut off: what
/// waits for it (a list with all its objects, the state that a watch begins with) would wait for ever.
pub(crate) struct Wire {
    socket: Socket,
    place: Place,
    /// Write timeout.
    stall_max: Duration,
    /// Set while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Set when the last was said to a client that has not finished.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    pub fn new(stream: TcpStream, limits: &Limits, place: Place) -> Wire {
        // A client whose host went away without a word is noticed too.
        let keepalive = TcpKeepalive::new().with_time(limits.keepalive_time);
        if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
            tracing::debug!(%error, "a socket without keep-alive");
        }
        let socket = Socket(Arc::new(Shared { stream, lingers: AtomicBool::new(false) }));
        let stall_max = limits.write_stall_timeout;
        Wire { socket, place, stall_max, stalled: None, lingering: None }
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Writes as soon as there is room.
    fn poll_written(
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
                        self.stalled = None;
                        return Poll::Ready(written);
                    }
                }
            }
            let stall_max = self.stall_max;
            let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall_max)));
            ready!(stalled.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &self.socket.0.stream;
        let room = buf.remaining();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let mut read = Ok(0);
            // A read that leaves room has emptied the socket. To say so clears the readiness as of before
            // the read, and saves the read that would find nothing.
            let _ = stream.try_io(Interest::READABLE, || {
                read = stream.try_read_buf(buf);
                match read {
                    Ok(bytes) if bytes == 0 || bytes == room => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(bytes) if !self.place.received(bytes) => {
                    return Poll::Ready(Err(io::Error::other(
                        "too much was sent before a request",
                    )));
                }
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write_vectored(bufs))
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
        if this.lingering.is_none() {
            SockRef::from(&shared.stream).shutdown(Shutdown::Write)?;
            if !shared.lingers.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let until = this.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
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

/// A stream of which something was read already that is to be read again.
pub(crate) struct Rewound<S> {
    stream: S,
    ahead: Bytes,
    signals: Arc<Signals>,
    /// Timeout for the rest of an HTTP/1 request head.
    head_time_max: Option<Duration>,
    /// Set while the rest of a head is waited for.
    head_late: Option<Pin<Box<Sleep>>>,
}

/// State shared by a stream and the HTTP/1.1 connection on it.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Something was written since the last flush that came to its end.
    is_unsent: AtomicBool,
    /// A request is being answered: what comes now is its body.
    is_answering: AtomicBool,
    /// Something of the next head has come.
    has_begun: AtomicBool,
}

impl Signals {
    /// Whether something was written since the last flush that came to its end.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent.load(Ordering::Relaxed)
    }

    /// A head is complete.
    pub fn asked(&self) {
        self.is_answering.store(true, Ordering::Relaxed);
        self.has_begun.store(false, Ordering::Relaxed);
    }

    /// Its body was read and its answer is there: what comes next is a head.
    pub fn answered(&self) {
        self.is_answering.store(false, Ordering::Relaxed);
    }
}

impl<S> Rewound<S> {
    /// Nothing was read of this one yet.
    pub fn new(stream: S) -> Rewound<S> {
        Rewound {
            stream,
            ahead: Bytes::new(),
            signals: Arc::default(),
            head_time_max: None,
            head_late: None,
        }
    }

    /// Ends the stream when the head of a request takes longer, from its first byte on.
    pub fn bound_heads(&mut self, time_max: Duration) {
        self.head_time_max = Some(time_max);
    }

    /// Shared with the HTTP/1.1 connection on this stream.
    pub fn signals(&self) -> Arc<Signals> {
        self.signals.clone()
    }

    /// Waits for the next bytes and leaves them to be read; `None` when there will be less. Cancel-safe.
    pub async fn peek<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>>
    where
        S: AsyncRead + Unpin,
    {
        while self.ahead.len() < N {
            let mut next = [0; N];
            let count = self.stream.read(&mut next[self.ahead.len()..]).await?;
            if count == 0 {
                return Ok(None);
            }
            let next = &next[self.ahead.len()..][..count];
            self.ahead = [&self.ahead, next].concat().into();
        }
        Ok(self.ahead.first_chunk().copied())
    }

    /// Gives back what was read last.
    pub fn read_again(&mut self, bytes: Bytes) {
        self.ahead = match self.ahead.is_empty() {
            true => bytes,
            false => [bytes, self.ahead.clone()].concat().into(),
        };
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead.split_to(count));
            this.signals.has_begun.store(true, Ordering::Relaxed);
            return Poll::Ready(Ok(()));
        }
        let signals = &this.signals;
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                let is_answering = signals.is_answering.load(Ordering::Relaxed);
                signals.has_begun.store(!is_answering, Ordering::Relaxed);
                Poll::Ready(read)
            }
            Poll::Pending if signals.has_begun.load(Ordering::Relaxed) => {
                let Some(time_max) = this.head_time_max else { return Poll::Pending };
                let late = this.head_late.get_or_insert_with(|| Box::pin(sleep(time_max)));
                ready!(late.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => {
                this.head_late = None;
                Poll::Pending
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.signals.is_unsent.store(true, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.signals.is_unsent.store(true, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.signals.is_unsent.store(false, Ordering::Relaxed);
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

    async fn pair() -> (std::net::TcpStream, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let limits = Limits { write_stall_timeout: Duration::from_millis(30), ..Limits::default() };
        let place = Connections::new(&limits).enter([127, 0, 0, 1].into()).unwrap();
        (client, Wire::new(listener.accept().await.unwrap().0, &limits, place))
    }

    #[tokio::test]
    async fn what_comes_after_a_short_read_is_read_too() {
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
    async fn a_client_that_went_is_noticed_without_reading() {
        let (client, wire) = pair().await;
        let closed = wire.socket().closed();
        tokio::pin!(closed);
        let waiting = tokio::time::timeout(Duration::from_millis(20), closed.as_mut()).await;
        assert!(waiting.is_err(), "the client is there");
        drop(client);
        closed.await;
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_cut_off() {
        let (client, mut wire) = pair().await;
        let written = wire.write_all(&vec![0; 64 << 20]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[tokio::test]
    async fn what_is_peeked_at_is_read_all_the_same() {
        let (mut client, wire) = pair().await;
        let mut stream = Rewound::new(wire);
        client.write_all(b"a").unwrap();
        assert_eq!(stream.peek().await.unwrap(), Some(*b"a"));
        let more = stream.peek::<2>();
        let waiting = tokio::time::timeout(Duration::from_millis(20), more).await;
        assert!(waiting.is_err(), "there is but one");
        client.write_all(b"bc").unwrap();
        assert_eq!(stream.peek().await.unwrap(), Some(*b"ab"));
        assert_eq!(stream.peek().await.unwrap(), Some(*b"ab"), "twice");
        stream.read_again(Bytes::from_static(b"01"));
        drop(client);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "01abc");
        assert_eq!(stream.peek::<1>().await.unwrap(), None);
    }
}
