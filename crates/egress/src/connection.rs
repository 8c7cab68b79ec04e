//! Opens connections: dial, TLS handshake, HTTP/1.1 or HTTP/2.

use crate::body::Body;
use crate::error::Cause;
use crate::http1_sender::Http1Sender;
use crate::hyper_errors::hyper_cause;
use crate::peer::Peer;
use crate::resolve::ADDRESSES_MAX;
use crate::selector::Tunneler;
use crate::wire::{AddrPair, FirstBytes, Security, Wire, io_cause};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
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

/// The request sender of a connection.
pub(crate) enum Sender {
    /// Sends one request at a time.
    Http1(Http1Sender),
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
    if stream.is_http2() {
        let io = TokioIo::new(stream);
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
    Http1Sender::start(stream, &http1()).await.map(Sender::Http1)
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
