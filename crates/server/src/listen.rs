//! Connections: TCP, TLS, HTTP/1.1 and HTTP/2, and their orderly end.

use crate::handler::App;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Connections at once.
const CONNECTIONS_MAX: usize = 16_384;
/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take for a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// Bytes of a request's headers.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Streams of one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 100;
/// Bytes in flight of one HTTP/2 stream.
const HTTP2_WINDOW_BYTES: u32 = 256 << 10;
/// Streams that a client may reset before the server took them up.
const HTTP2_RESETS_MAX: usize = 100;
/// How long open requests may take after the server was told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's certificate in DER, verified by TLS.
#[derive(Clone, Debug)]
pub struct PeerCertificate(pub Arc<[u8]>);

/// A listening server.
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listening {
    /// Waits until the server has stopped, which it does when the app's `shutdown` says so.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the listener ended badly");
        }
    }
}

/// Serves the app on a listener. Without `tls` the connection is plain, for use behind a socket that
/// is already protected (tests, in-process).
pub fn serve(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> io::Result<Listening> {
    let address = listener.local_addr()?;
    let task = tokio::spawn(accept(app, listener, tls.map(TlsAcceptor::from)));
    Ok(Listening { address, task })
}

async fn accept(app: Arc<App>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut shutdown = app.shutdown.clone();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut shutdown) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = Connection { stream, place };
                tokio::spawn(connection.run(app.clone(), tls.clone(), graceful.watcher()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: give the others time to end.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    app.draining.store(true, Ordering::Relaxed);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}

/// Waits until the server is told to stop; a sender that went away has said so too.
pub(crate) async fn told(shutdown: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}

struct Connection {
    stream: TcpStream,
    place: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(
        self,
        app: Arc<App>,
        tls: Option<TlsAcceptor>,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        let _place = self.place;
        // Small answers must not wait for more to come.
        let _ = self.stream.set_nodelay(true);
        let Some(tls) = tls else {
            return talk(app, self.stream, None, watcher).await;
        };
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(self.stream)).await;
        match handshake {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let peer = certificates.and_then(|all| all.first());
                let peer = peer.map(|der| PeerCertificate(Arc::from(der.as_ref())));
                talk(app, stream, peer, watcher).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }
}

async fn talk<S>(
    app: Arc<App>,
    stream: S,
    peer: Option<PeerCertificate>,
    watcher: hyper_util::server::graceful::Watcher,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (app, peer) = (app.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(app.handle(request, peer).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES * 4)
        .max_header_list_size(HEADER_BYTES_MAX as u32)
        .max_pending_accept_reset_streams(HTTP2_RESETS_MAX)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(%error, "connection ended");
    }
}
