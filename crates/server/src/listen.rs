//! The listener: accepts connections, does TLS and serves HTTP/1.1 or HTTP/2. It owns the tasks of
//! its connections: at shutdown they end gracefully, and are aborted after a timeout.

use crate::app::App;
use crate::connections::{ConnectionSlot, Connections, Full};
use crate::limits::Limits;
use crate::peer::{FirstRequest, Peer, shutdown_requested};
use crate::polls::Measured;
use crate::socket::{ClientStream, PeekableStream};
use crate::tls::{Tls, TlsConnection};
use crate::{http1, http2, refusing};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Possible first bytes of a TLS connection: a handshake or an alert.
const TLS_RECORDS: [u8; 2] = [0x16, 0x15];
/// First bytes of plain HTTP requests that get a response on a TLS port (Go's list).
const PLAIN_REQUESTS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
/// Go's response to them.
const PLAIN_RESPONSE: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// First bytes of the HTTP/2 connection preface.
const HTTP2_PREFACE_START: &[u8; 2] = b"PR";

/// A listening server.
pub struct Listening {
    /// The local address.
    pub address: SocketAddr,
    connections: Arc<Connections>,
    app: Arc<App>,
    task: JoinHandle<()>,
}

impl Listening {
    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// Lets `/readyz` fail from now on.
    pub fn drain(&self) {
        self.app.draining.store(true, Ordering::Relaxed);
    }

    /// Waits until the server has stopped. It stops when [`App::shutdown`] becomes true.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "listener failed");
        }
    }
}

/// Serves the app on a listener, without encryption if `tls` is `None` (for tests, or on a socket
/// that is already protected).
pub fn serve(app: Arc<App>, listener: TcpListener, tls: Option<Tls>) -> io::Result<Listening> {
    let address = listener.local_addr()?;
    let connections = Connections::new(&app.limits);
    let task = tokio::spawn(accept(app.clone(), listener, tls, connections.clone()));
    Ok(Listening { address, connections, app, task })
}

async fn accept(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Tls>,
    connections: Arc<Connections>,
) {
    let mut tasks = JoinSet::new();
    let mut shutdown = app.shutdown.clone();
    // One future for all iterations: dropping it would reset a connection that it has accepted and
    // that waits for a slot.
    let mut accepting = std::pin::pin!(accept_connection(&listener, &connections));
    loop {
        let accepted = tokio::select! {
            accepted = accepting.as_mut() => accepted,
            () = shutdown_requested(&mut shutdown) => break,
            Some(_) = tasks.join_next() => continue,
        };
        accepting.set(accept_connection(&listener, &connections));
        match accepted {
            Ok(connection) => {
                let is_profiled = app.limits.contention_profiling;
                let task = connection.run(app.clone(), tls.clone());
                match is_profiled {
                    true => tasks.spawn(Measured::new(task)),
                    false => tasks.spawn(task),
                };
            }
            Err(error) => {
                // Most likely out of file descriptors: wait until other connections close.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    app.draining.store(true, Ordering::Relaxed);
    let drain_max = app.limits.drain_timeout + app.limits.watch_end_spread;
    let ended = async { while tasks.join_next().await.is_some() {} };
    let refusing = async {
        match app.limits.sends_retry_after {
            true => refusing::run(&app, &listener, tls.as_ref()).await,
            false => std::future::pending().await,
        }
    };
    let has_ended = tokio::select! {
        () = ended => true,
        () = tokio::time::sleep(drain_max) => false,
        () = refusing => false,
    };
    if !has_ended {
        tracing::warn!("shutdown timeout; aborting open connections");
        tasks.shutdown().await;
    }
}

/// Accepts the next connection within the limits. Connections of an address that has too many are
/// closed. If there are too many in total, waits until one closes, while others wait in the
/// backlog.
async fn accept_connection(
    listener: &TcpListener,
    connections: &Arc<Connections>,
) -> io::Result<Connection> {
    loop {
        let (stream, address) = listener.accept().await?;
        let address = address.ip().to_canonical();
        loop {
            let closed = connections.closed();
            match connections.enter(address) {
                Ok(slot) => return Ok(Connection { stream, slot }),
                Err(Full::Server) => closed.await,
                Err(Full::Address) => {
                    tracing::debug!(%address, "too many connections of an address; closing one");
                    break;
                }
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    slot: ConnectionSlot,
}

impl Connection {
    async fn run(self, app: Arc<App>, tls: Option<Tls>) {
        let Connection { stream, slot } = self;
        // Small responses must not be delayed by Nagle's algorithm.
        let _ = stream.set_nodelay(true);
        let first_request = FirstRequest::new(&app.limits);
        let evicted = slot.clone();
        let serve = async {
            match tls {
                Some(tls) => serve_tls(app, stream, tls, slot, first_request).await,
                None => serve_plain(app, stream, slot, first_request).await,
            }
        };
        tokio::select! {
            () = serve => {}
            () = evicted.evicted() => {}
        }
    }
}

/// Serves a connection without TLS.
async fn serve_plain(
    app: Arc<App>,
    stream: TcpStream,
    slot: ConnectionSlot,
    first_request: FirstRequest,
) {
    let stream = ClientStream::new(stream, &app.limits, slot.clone());
    let socket = Some(stream.socket().clone());
    let mut stream = PeekableStream::new(stream);
    match peek_protocol(&app, &mut stream, &first_request).await {
        None => {}
        Some(start) if start == *HTTP2_PREFACE_START => {
            http2::serve(
                app,
                stream,
                Peer { certificate: None, socket: None, slot },
                first_request,
            )
            .await;
        }
        Some(_) => {
            http1::serve(app, stream, Peer { certificate: None, socket, slot }, first_request)
                .await;
        }
    }
}

/// Serves a connection with TLS.
async fn serve_tls(
    app: Arc<App>,
    stream: TcpStream,
    tls: Tls,
    slot: ConnectionSlot,
    first_request: FirstRequest,
) {
    let deadline = Instant::now() + app.limits.handshake_timeout;
    // Boxed, so that the task of a connection does not keep the memory of its handshake.
    let handshake = Box::pin(tls_handshake(stream, &tls, &app.limits, slot.clone()));
    let stream = match before_deadline(&app, deadline, handshake).await {
        None => return,
        Some(Err(error)) => {
            app.state.metrics.handshake_errors.increment();
            return tracing::debug!(%error, "TLS handshake failed");
        }
        Some(Ok(stream)) => TlsConnection::new(stream, first_request.clone()),
    };
    let (wire, session) = stream.get_ref();
    let certificate = tls.peer(session.peer_certificates());
    if certificate
        .as_ref()
        .is_some_and(|certificate| certificate.verified().is_some() || certificate.is_front_proxy())
    {
        slot.mark_authenticated();
    }
    if session.alpn_protocol() == Some(b"h2") {
        let peer = Peer { certificate, socket: None, slot };
        return Box::pin(http2::serve(app, stream, peer, first_request)).await;
    }
    let peer = Peer { certificate, socket: Some(wire.socket().clone()), slot };
    let mut stream = PeekableStream::new(stream);
    if peek_protocol(&app, &mut stream, &first_request).await.is_some() {
        http1::serve(app, stream, peer, first_request).await;
    }
}

/// Waits for the first bytes of a connection; `None` if it ends before. Until then it needs no
/// buffers.
async fn peek_protocol<S: AsyncRead + Unpin>(
    app: &App,
    stream: &mut PeekableStream<S>,
    first_request: &FirstRequest,
) -> Option<[u8; HTTP2_PREFACE_START.len()]> {
    match before_deadline(app, first_request.deadline(), stream.peek()).await? {
        Ok(start) => start,
        Err(error) => {
            tracing::debug!(%error, "connection ended");
            None
        }
    }
}

/// Does the TLS handshake. Plain HTTP requests get an error response.
async fn tls_handshake(
    mut stream: TcpStream,
    tls: &Tls,
    limits: &Limits,
    slot: ConnectionSlot,
) -> io::Result<tokio_rustls::server::TlsStream<ClientStream>> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await? == 1 && !TLS_RECORDS.contains(&first[0]) {
        let mut start = [0; 5];
        stream.read_exact(&mut start).await?;
        if PLAIN_REQUESTS.contains(&&start) {
            stream.write_all(PLAIN_RESPONSE).await?;
            stream.shutdown().await?;
        }
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not TLS"));
    }
    tls.acceptor().accept(ClientStream::new(stream, limits, slot)).await
}

/// Runs `work`. Returns `None` if it takes too long, or the server shuts down.
async fn before_deadline<T>(
    app: &App,
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut shutdown = app.shutdown.clone();
    tokio::select! {
        done = work => Some(done),
        () = shutdown_requested(&mut shutdown) => None,
        () = sleep_until(deadline) => {
            tracing::debug!("connection timed out before its first request");
            None
        }
    }
}
