//! Connections: TCP, TLS, HTTP/1.1 and HTTP/2, and their orderly end. Each is a task that the listener
//! owns: when the server stops they are told, and after a while ended.

use crate::app::App;
use crate::connections::{Connections, Full, Place};
use crate::limits::Limits;
use crate::opening::{Opening, Peer, told};
use crate::socket::{Rewound, Wire};
use crate::tls::{Secured, Tls};
use crate::{http1, http2};
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
/// First bytes of plain HTTP requests that get an answer on a TLS port (Go's list).
const PLAIN_REQUESTS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
/// Go's answer to them.
const PLAIN_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// First bytes of the HTTP/2 connection preface.
const HTTP2_BEGINS: &[u8; 2] = b"PR";

/// A listening server.
pub struct Listening {
    /// The local address.
    pub address: SocketAddr,
    connections: Arc<Connections>,
    task: JoinHandle<()>,
}

impl Listening {
    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// Waits until the server has stopped, which it does when the app's `shutdown` says so.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the listener ended badly");
        }
    }
}

/// Serves the app on a listener. Without `tls` the connection is plain, for use behind a socket that
/// is already protected (tests, in-process).
pub fn serve(app: Arc<App>, listener: TcpListener, tls: Option<Tls>) -> io::Result<Listening> {
    let address = listener.local_addr()?;
    let connections = Connections::new(&app.limits);
    let task = tokio::spawn(accept(app, listener, tls, connections.clone()));
    Ok(Listening { address, connections, task })
}

async fn accept(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Tls>,
    connections: Arc<Connections>,
) {
    let mut tasks = JoinSet::new();
    let mut shutdown = app.shutdown.clone();
    // One future over all turns of the loop: dropping it would reset the connection that it has
    // accepted and that waits for a place.
    let mut arriving = std::pin::pin!(arrive(&listener, &connections));
    loop {
        let arrived = tokio::select! {
            arrived = arriving.as_mut() => arrived,
            () = told(&mut shutdown) => break,
            Some(_) = tasks.join_next() => continue,
        };
        arriving.set(arrive(&listener, &connections));
        match arrived {
            Ok(connection) => {
                tasks.spawn(connection.run(app.clone(), tls.clone()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: give the others time to end.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    app.draining.store(true, Ordering::Relaxed);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(app.limits.drain_timeout, ended).await.is_err() {
        tracing::warn!("some requests did not end in time");
        tasks.shutdown().await;
    }
}

/// The next connection for which there is a place. Those of an address that has too many are closed; when
/// there are too many in all, the next one waits, and others behind it in the backlog.
async fn arrive(listener: &TcpListener, connections: &Arc<Connections>) -> io::Result<Connection> {
    loop {
        let (stream, address) = listener.accept().await?;
        let address = address.ip().to_canonical();
        loop {
            let left = connections.left();
            match connections.enter(address) {
                Ok(place) => return Ok(Connection { stream, place }),
                Err(Full::Server) => left.await,
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
    place: Place,
}

impl Connection {
    async fn run(self, app: Arc<App>, tls: Option<Tls>) {
        let Connection { stream, place } = self;
        // Small answers must not wait for more to come.
        let _ = stream.set_nodelay(true);
        let opening = Opening::new(&app.limits);
        let evicted = place.clone();
        let serve = async {
            match tls {
                Some(tls) => secured(app, stream, tls, place, opening).await,
                None => plain(app, stream, place, opening).await,
            }
        };
        tokio::select! {
            () = serve => {}
            () = evicted.evicted() => {}
        }
    }
}

/// Serves a connection without TLS.
async fn plain(app: Arc<App>, stream: TcpStream, place: Place, opening: Opening) {
    let wire = Wire::new(stream, &app.limits, place.clone());
    let socket = Some(wire.socket().clone());
    let mut stream = Rewound::new(wire);
    match beginning(&app, &mut stream, &opening).await {
        None => {}
        Some(began) if began == *HTTP2_BEGINS => {
            http2::serve(app, stream, Peer { certificate: None, socket: None, place }, opening)
                .await;
        }
        Some(_) => {
            http1::serve(app, stream, Peer { certificate: None, socket, place }, opening).await;
        }
    }
}

/// Serves a connection with TLS.
async fn secured(app: Arc<App>, stream: TcpStream, tls: Tls, place: Place, opening: Opening) {
    let by = Instant::now() + app.limits.handshake_timeout;
    // In boxes, so that the task of a connection does not keep the room of its beginning.
    let handshake = Box::pin(secure(stream, &tls, &app.limits, place.clone()));
    let stream = match in_time(&app, by, handshake).await {
        None => return,
        Some(Err(error)) => {
            app.state.metrics.handshake_errors.increment();
            return tracing::debug!(%error, "TLS handshake failed");
        }
        Some(Ok(stream)) => Secured::new(stream, opening.clone()),
    };
    let (wire, session) = stream.get_ref();
    let certificate = tls.peer(session.peer_certificates());
    if certificate
        .as_ref()
        .is_some_and(|shown| shown.verified().is_some() || shown.is_front_proxy())
    {
        place.authenticated();
    }
    if session.alpn_protocol() == Some(b"h2") {
        let peer = Peer { certificate, socket: None, place };
        return Box::pin(http2::serve(app, stream, peer, opening)).await;
    }
    let peer = Peer { certificate, socket: Some(wire.socket().clone()), place };
    let mut stream = Rewound::new(stream);
    if beginning(&app, &mut stream, &opening).await.is_some() {
        http1::serve(app, stream, peer, opening).await;
    }
}

/// What a connection begins with; `None` when it ends before. Who has not asked yet, or has nothing to ask,
/// costs no buffers.
async fn beginning<S: AsyncRead + Unpin>(
    app: &App,
    stream: &mut Rewound<S>,
    opening: &Opening,
) -> Option<[u8; HTTP2_BEGINS.len()]> {
    match in_time(app, opening.by(), stream.peek()).await? {
        Ok(began) => began,
        Err(error) => {
            tracing::debug!(%error, "connection ended");
            None
        }
    }
}

/// Does the handshake. Who speaks plain HTTP is told so.
async fn secure(
    mut stream: TcpStream,
    tls: &Tls,
    limits: &Limits,
    place: Place,
) -> io::Result<tokio_rustls::server::TlsStream<Wire>> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await? == 1 && !TLS_RECORDS.contains(&first[0]) {
        let mut began = [0; 5];
        stream.read_exact(&mut began).await?;
        if PLAIN_REQUESTS.contains(&&began) {
            stream.write_all(PLAIN_REFUSED).await?;
            stream.shutdown().await?;
        }
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not TLS"));
    }
    tls.acceptor.accept(Wire::new(stream, limits, place)).await
}

/// What comes of `work`; `None` when it takes too long, or the server ends before it.
async fn in_time<T>(app: &App, by: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut shutdown = app.shutdown.clone();
    tokio::select! {
        done = work => Some(done),
        () = told(&mut shutdown) => None,
        () = sleep_until(by) => {
            tracing::debug!("a connection took too long to begin");
            None
        }
    }
}
