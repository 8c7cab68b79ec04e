//! Opens connections: dial, TLS handshake, HTTP/1.1 or HTTP/2.

use crate::error::Cause;
use crate::peer::Peer;
use crate::resolve::ADDRESSES_MAX;
use crate::selector::Tunneler;
use crate::wire::{AddrPair, FirstBytes, Security, Wire, io_cause, tls_cause};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error as _;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum bytes of status line and headers in HTTP/1.1.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Maximum headers of a response in HTTP/1.1; memory is set aside for each. Upstream limits only
/// the bytes.
const HEADERS_MAX: usize = 1024;
/// Maximum bytes of the headers of a response in HTTP/2.
const HEADER_LIST_BYTES_MAX: u32 = 256 * 1024;
/// HTTP/2 flow-control window of a stream.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// HTTP/2 flow-control window of a connection: that of 256 streams. Streams whose data nobody reads
/// use it up, and then hold up all others of the connection.
const CONNECTION_WINDOW_BYTES: u32 = 256 * STREAM_WINDOW_BYTES;
/// Idle time after which an HTTP/2 ping is sent during an exchange.
const PING_AFTER: Duration = Duration::from_secs(30);
/// Timeout of the ping.
const PING_TIME_MAX: Duration = Duration::from_secs(15);
/// Minimum connect timeout for one of several addresses.
const CONNECT_TIME_MIN: Duration = Duration::from_secs(2);

/// The body of a request that is sent while it is read.
pub type StreamedBody = UnsyncBoxBody<Bytes, io::Error>;

/// A request body: complete, or read while it is sent.
pub(crate) type Body = Either<Full<Bytes>, StreamedBody>;

/// The request sender of a connection.
pub(crate) enum Sender {
    /// Sends one request at a time.
    Http1(http1::SendRequest<Body>),
    /// Sends concurrent requests.
    Http2(http2::SendRequest<Body>),
}

/// Where a connection is made to.
pub(crate) enum Target {
    /// The first address that answers.
    Addresses(Vec<SocketAddr>),
    /// An address, `host:port`, through a proxy.
    Through(Arc<Tunneler>, String),
}

/// Connects to a target, and does the handshakes.
pub(crate) async fn open(
    target: &Target,
    peer: &Peer,
    security: &Security,
    deadline: Instant,
) -> Result<(Sender, AddrPair), Cause> {
    let (stream, addrs) = connect(target, peer, security, deadline).await?;
    let sender = start_http(stream).await.map_err(|error| hyper_cause(&error, addrs))?;
    Ok((sender, addrs))
}

/// Connects to a target, and through the proxy of the peer if there is one, and does the
/// TLS handshake.
pub(crate) async fn connect(
    target: &Target,
    peer: &Peer,
    security: &Security,
    deadline: Instant,
) -> Result<(SecuredStream, AddrPair), Cause> {
    let (mut stream, addrs) = match target {
        Target::Addresses(addresses) => {
            let stream = dial(addresses, deadline).await?;
            let addrs = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
            let addrs = addrs.map_err(|error| Cause::Transport { addrs: None, error })?;
            (Box::pin(stream) as Wire, Some(addrs))
        }
        Target::Through(tunneler, address) => (tunneler.dial(address, deadline).await?, None),
    };
    if let Some(proxy) = &peer.proxy {
        proxy.connect(&mut stream, &peer.host, peer.port).await?;
    }
    let Security::Tls(config, name) = security else {
        return Ok((SecuredStream::Plain(stream), addrs));
    };
    let tls = TlsConnector::from(config.clone()).connect(name.clone(), FirstBytes::of(stream));
    let stream = tls.into_fallible().await;
    let stream = stream.map_err(|(error, stream)| match io_cause(error, addrs) {
        Cause::NotTls if stream.are(b"HTTP/") => Cause::PlainHttp,
        cause => cause,
    })?;
    Ok((SecuredStream::Tls(Box::new(stream)), addrs))
}

async fn dial(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Cause> {
    let mut first = None;
    let count = addresses.len().min(ADDRESSES_MAX);
    for (index, &address) in addresses.iter().take(count).enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(count - index).unwrap_or(1);
        let until = deadline.min(Instant::now() + share.max(CONNECT_TIME_MIN));
        let error = match timeout_at(until, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => Cause::Connect { address, error },
            Err(_) => Cause::Deadline,
        };
        first.get_or_insert(error);
    }
    Err(first.unwrap_or_else(|| Cause::Resolve("dial tcp: no address".to_owned())))
}

/// Starts the protocol that ALPN selected. The connection's task ends when its senders are dropped.
async fn start_http(stream: SecuredStream) -> hyper::Result<Sender> {
    let is_http2 = stream.is_http2();
    let io = TokioIo::new(stream);
    if is_http2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIME_MAX)
            .handshake(io)
            .await?;
        tokio::spawn(connection);
        return Ok(Sender::Http2(sender));
    }
    let (sender, connection) = http1().handshake(io).await?;
    tokio::spawn(connection);
    Ok(Sender::Http1(sender))
}

/// Starts HTTP/1.1 on a connection that may be upgraded.
pub(crate) async fn start_upgradable(
    stream: SecuredStream,
) -> hyper::Result<http1::SendRequest<Body>> {
    let (sender, connection) = http1().handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Some far sides, written against Go's client, compare names of headers by case.
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).title_case_headers(true);
    builder
}

/// A connection, with TLS or without. TLS may end without close_notify, as in Go: HTTP frames its
/// messages, except responses that end with their connection.
pub(crate) enum SecuredStream {
    Tls(Box<TlsStream<FirstBytes>>),
    Plain(Wire),
}

impl SecuredStream {
    fn is_http2(&self) -> bool {
        match self {
            SecuredStream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            SecuredStream::Plain(_) => false,
        }
    }
}

impl AsyncRead for SecuredStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SecuredStream::Tls(stream) => match Pin::new(stream).poll_read(cx, buf) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            },
            SecuredStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for SecuredStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SecuredStream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            SecuredStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SecuredStream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            SecuredStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            SecuredStream::Tls(stream) => stream.is_write_vectored(),
            SecuredStream::Plain(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SecuredStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            SecuredStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SecuredStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            SecuredStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Maps an error of hyper.
pub(crate) fn hyper_cause(error: &hyper::Error, addrs: AddrPair) -> Cause {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return Cause::Closed;
    }
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            let tls = inner.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            return match tls {
                Some(tls) => tls_cause(tls),
                None => io_cause(copy_error(inner), addrs),
            };
        }
        if let Some(inner) = inner.downcast_ref::<h2::Error>() {
            return h2_cause(inner, addrs);
        }
        source = inner.source();
    }
    Cause::Protocol("malformed HTTP response".to_owned())
}

fn h2_cause(error: &h2::Error, addrs: AddrPair) -> Cause {
    match error.get_io() {
        Some(inner) => io_cause(copy_error(inner), addrs),
        None if error.is_reset() => {
            let reason = error.reason().unwrap_or(h2::Reason::INTERNAL_ERROR);
            let by = if error.is_remote() { "; received from peer" } else { "" };
            Cause::Handshake(format!("stream error: {reason:?}{by}"))
        }
        None => Cause::Handshake(format!("http2: {error}")),
    }
}

/// Copies an error: those of the operating system by their code, others by their text.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns whether the peer refused the request without processing it.
pub(crate) fn was_refused(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<h2::Error>() {
            let is_refused = inner.reason() == Some(h2::Reason::REFUSED_STREAM);
            let leaves = inner.is_go_away() && inner.reason() == Some(h2::Reason::NO_ERROR);
            return inner.is_remote() && (is_refused || leaves);
        }
        source = inner.source();
    }
    false
}
