//! Connections: TCP, TLS, HTTP/1.1 and HTTP/2, and their orderly end. Each is a task that the listener
//! owns: when the server stops they are told, and after a while ended.

use crate::handler::App;
use crate::http1;
use crate::limits::Limits;
use crate::socket::{Rewound, Socket, Wire};
use crate::tls::{PeerCertificate, Secured, Tls};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// What the first byte of a TLS connection can be: a handshake, or an alert.
const TLS_RECORDS: [u8; 2] = [0x16, 0x15];
/// How requests begin that are answered although they should have come by TLS; Go's list.
const PLAIN_REQUESTS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
/// What Go answers to them.
const PLAIN_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// How HTTP/2 begins, and no request of HTTP/1.
const HTTP2_BEGINS: &[u8; 2] = b"PR";

/// A listening server.
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    places: Arc<Semaphore>,
    places_max: usize,
    task: JoinHandle<()>,
}

impl Listening {
    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.places_max.saturating_sub(self.places.available_permits())
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
    let places_max = app.limits.connections_max;
    let places = Arc::new(Semaphore::new(places_max));
    let task = tokio::spawn(accept(app, listener, tls, places.clone()));
    Ok(Listening { address, places, places_max, task })
}

async fn accept(app: Arc<App>, listener: TcpListener, tls: Option<Tls>, places: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    let mut shutdown = app.shutdown.clone();
    loop {
        let arrived = async {
            // One place more is taken than there are connections: that of the next one.
            let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
            let place = Place { _permit: Arc::new(place) };
            listener.accept().await.map(|(stream, _)| Connection { stream, place })
        };
        let arrived = tokio::select! {
            arrived = arrived => arrived,
            () = told(&mut shutdown) => break,
            Some(_) = connections.join_next() => continue,
        };
        match arrived {
            Ok(connection) => {
                connections.spawn(connection.run(app.clone(), tls.clone()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: give the others time to end.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    app.draining.store(true, Ordering::Relaxed);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(app.limits.drain_timeout, ended).await.is_err() {
        tracing::warn!("some requests did not end in time");
        connections.shutdown().await;
    }
}

/// Waits until the server is told to stop; a sender that went away has said so too.
pub(crate) async fn told(shutdown: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}

/// What a connection holds while it counts, shared with what outlives its HTTP.
#[derive(Clone)]
pub(crate) struct Place {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Who is at the other end of a connection.
pub(crate) struct Peer {
    pub certificate: Option<PeerCertificate>,
    /// The socket, where a request has all of the connection.
    pub socket: Option<Socket>,
    pub place: Place,
}

impl Peer {
    /// Not all of a request's body was read: what is left must not cut off the answer.
    pub fn body_is_left(&self) {
        if let Some(socket) = &self.socket {
            socket.linger();
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
        let opening = Opening::new(&app);
        match tls {
            Some(tls) => secured(app, stream, tls, place, opening).await,
            None => plain(app, stream, place, opening).await,
        }
    }
}

/// Serves a connection without TLS.
async fn plain(app: Arc<App>, stream: TcpStream, place: Place, opening: Opening) {
    let wire = Wire::new(stream, &app.limits);
    let socket = Some(wire.socket().clone());
    let mut stream = Rewound::new(wire);
    match beginning(&app, &mut stream, &opening).await {
        None => {}
        Some(began) if began == *HTTP2_BEGINS => {
            http2(app, stream, Peer { certificate: None, socket: None, place }, opening).await;
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
    let handshake = Box::pin(secure(stream, &tls, &app.limits));
    let stream = match in_time(&app, by, handshake).await {
        None => return,
        Some(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Some(Ok(stream)) => Secured::new(stream, opening.clone()),
    };
    let (wire, session) = stream.get_ref();
    let certificate = tls.peer(session.peer_certificates());
    if session.alpn_protocol() == Some(b"h2") {
        let peer = Peer { certificate, socket: None, place };
        return Box::pin(http2(app, stream, peer, opening)).await;
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
    match in_time(app, opening.by, stream.peek()).await? {
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
    tls.acceptor.accept(Wire::new(stream, limits)).await
}

/// Serves a connection that speaks HTTP/2.
async fn http2<S>(app: Arc<App>, stream: S, peer: Peer, opening: Opening)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    let service = service_fn({
        let (app, opening) = (app.clone(), opening.clone());
        move |request: Request<Incoming>| {
            opening.asked();
            let (app, peer) = (app.clone(), peer.clone());
            // In a box, whose memory is given back when the answer begins: a watch needs little of it.
            Box::pin(async move { Ok::<_, Infallible>(app.handle(request, peer).await) })
        }
    });
    let limits = &app.limits;
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams_max)
        .initial_stream_window_size(limits.http2_window_bytes)
        .initial_connection_window_size(limits.http2_window_bytes.saturating_mul(4))
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        .max_local_error_reset_streams(limits.http2_resets_max)
        .keep_alive_interval(limits.http2_ping_interval)
        .keep_alive_timeout(limits.http2_ping_timeout)
        .serve_connection(TokioIo::new(stream), service);
    let connection = std::pin::pin!(connection);
    if let Some(Err(error)) = opening.attend(&app, connection, |c| c.graceful_shutdown()).await {
        tracing::debug!(%error, "connection ended");
    }
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

/// How long a connection may take to begin.
#[derive(Clone)]
pub(crate) struct Opening {
    /// When the first request must have come.
    by: Instant,
    is_asked: Arc<AtomicBool>,
}

impl Opening {
    fn new(app: &App) -> Opening {
        let by = Instant::now() + app.limits.header_timeout;
        Opening { by, is_asked: Arc::default() }
    }

    /// A request has come.
    pub fn asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// Whether a request has come.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Sees a connection through, which is told to end when the server does; `None` when nothing was asked
    /// in time, for which HTTP knows no limit before the first byte.
    pub async fn attend<C: Future>(
        &self,
        app: &App,
        mut connection: Pin<&mut C>,
        stop: impl Fn(Pin<&mut C>),
    ) -> Option<C::Output> {
        let mut shutdown = app.shutdown.clone();
        let mut is_told = false;
        let mut is_waited_for = !self.is_asked();
        loop {
            tokio::select! {
                ended = connection.as_mut() => return Some(ended),
                () = told(&mut shutdown), if !is_told => {
                    is_told = true;
                    stop(connection.as_mut());
                }
                () = sleep_until(self.by), if is_waited_for => {
                    is_waited_for = false;
                    if !self.is_asked() {
                        tracing::debug!("no request came in time");
                        return None;
                    }
                }
            }
        }
    }
}
