//! Connections: TCP, TLS, HTTP/1.1 and HTTP/2, and their orderly end. Each is a task that the listener
//! owns: when the server stops they are told, and after a while ended.

use crate::handler::App;
use crate::limits::Limits;
use crate::socket::{Socket, Wire};
use crate::tls::{PeerCertificate, Tls};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

/// What the first byte of a TLS connection can be: a handshake, or an alert.
const TLS_RECORDS: [u8; 2] = [0x16, 0x15];
/// How requests begin that are answered although they should have come by TLS; Go's list.
const PLAIN_REQUESTS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
/// What Go answers to them.
const PLAIN_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

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

struct Connection {
    stream: TcpStream,
    place: Place,
}

impl Connection {
    async fn run(self, app: Arc<App>, tls: Option<Tls>) {
        let place = self.place;
        // Small answers must not wait for more to come.
        let _ = self.stream.set_nodelay(true);
        let http = http(&app);
        let Some(tls) = tls else {
            let wire = Wire::new(self.stream, &app.limits);
            // HTTP/2 may come over it too, whose answers then ask a socket that is read all the time.
            let peer = Peer { certificate: None, socket: Some(wire.socket().clone()), place };
            return talk(app, wire, peer, http).await;
        };
        let mut shutdown = app.shutdown.clone();
        let handshake = tokio::time::timeout(
            app.limits.handshake_timeout,
            secure(self.stream, &tls, &app.limits),
        );
        let handshake = tokio::select! {
            handshake = handshake => handshake,
            () = told(&mut shutdown) => return,
        };
        match handshake {
            Ok(Ok(stream)) => {
                let (wire, session) = stream.get_ref();
                let certificate = tls.peer(session.peer_certificates());
                let (http, socket) = match session.alpn_protocol() {
                    Some(b"h2") => (http.http2_only(), None),
                    _ => (http.http1_only(), Some(wire.socket().clone())),
                };
                talk(app, stream, Peer { certificate, socket, place }, http).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
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

/// How HTTP is spoken.
fn http(app: &App) -> auto::Builder<TokioExecutor> {
    let limits = &app.limits;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams_max)
        .initial_stream_window_size(limits.http2_window_bytes)
        .initial_connection_window_size(limits.http2_window_bytes.saturating_mul(4))
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        .max_local_error_reset_streams(limits.http2_resets_max)
        .keep_alive_interval(limits.http2_ping_interval)
        .keep_alive_timeout(limits.http2_ping_timeout);
    builder
}

/// Serves a connection until its client or the server ends it.
async fn talk<S>(app: Arc<App>, stream: S, peer: Peer, http: auto::Builder<TokioExecutor>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let mut shutdown = app.shutdown.clone();
    let first_by = tokio::time::Instant::now() + app.limits.header_timeout;
    let peer = Arc::new(peer);
    let service = service_fn({
        let asked = asked.clone();
        move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            let (app, peer) = (app.clone(), peer.clone());
            async move { Ok::<_, std::convert::Infallible>(app.handle(request, peer).await) }
        }
    });
    let mut connection =
        std::pin::pin!(http.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let (mut is_told, mut is_waited_for) = (false, true);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = told(&mut shutdown), if !is_told => {
                is_told = true;
                connection.as_mut().graceful_shutdown();
            }
            // HTTP knows no limit for the time before its first byte.
            () = tokio::time::sleep_until(first_by), if is_waited_for => {
                is_waited_for = false;
                if !asked.load(Ordering::Relaxed) {
                    return tracing::debug!("no request came in time");
                }
            }
        }
    }
}
