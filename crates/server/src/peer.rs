//! The client of a connection, the deadline for its first request, and the shutdown signal.

use crate::connections::ConnectionSlot;
use crate::limits::Limits;
use crate::peer_certificate::PeerCertificate;
use crate::socket::Socket;
use keelson_meta::{Failure, Status};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// How long what a client has sent is passed on after it has closed the socket. With the time until
/// that is noticed, a far side ends within ten seconds.
const LAST_BYTES_TIME_MAX: Duration = Duration::from_secs(5);

/// The client of a connection.
pub(crate) struct Peer {
    pub certificate: Option<PeerCertificate>,
    /// The socket, for HTTP/1.1.
    pub socket: Option<Socket>,
    pub slot: ConnectionSlot,
}

impl Peer {
    /// Waits until the client has closed the socket. For ever over HTTP/2, where the connection
    /// notices that itself.
    pub async fn closed(&self) {
        match &self.socket {
            Some(socket) => socket.closed().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the client has closed the socket, and then as long as the bytes that it sent
    /// before may take. What waits for a far side, or passes bytes to one that does not read, would
    /// not notice it. For ever over HTTP/2, which drops what its clients reset.
    pub async fn gone(&self) {
        self.closed().await;
        sleep(LAST_BYTES_TIME_MAX).await;
    }

    /// Asks a far side, which may answer late or never, until the client has gone: then nobody
    /// reads the response.
    pub async fn unless_gone<T, E: From<Failure>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            done = work => done,
            () = self.gone() => Err(Status::timed_out().into()),
        }
    }

    /// Keeps reading after the response, because the rest of an unread body would reset the
    /// connection.
    pub fn linger(&self) {
        if let Some(socket) = &self.socket {
            socket.linger();
        }
    }
}

/// The deadline for the first request of a connection, and whether it has arrived.
#[derive(Clone)]
pub(crate) struct FirstRequest {
    /// When the first request must have arrived.
    deadline: Instant,
    has_arrived: Arc<AtomicBool>,
}

impl FirstRequest {
    pub fn new(limits: &Limits) -> FirstRequest {
        let deadline = Instant::now() + limits.header_timeout;
        FirstRequest { deadline, has_arrived: Arc::default() }
    }

    /// Returns when the first request must have arrived.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Records that a request has arrived.
    pub fn mark_arrived(&self) {
        self.has_arrived.store(true, Ordering::Relaxed);
    }

    /// Returns whether a request has arrived.
    pub fn has_arrived(&self) -> bool {
        self.has_arrived.load(Ordering::Relaxed)
    }

    /// Drives a connection to its end, and stops it gracefully at shutdown. Returns `None` if no
    /// request arrives before the deadline, which hyper does not enforce before the first byte.
    pub async fn drive<C: Future>(
        &self,
        shutdown: &watch::Receiver<bool>,
        mut connection: Pin<&mut C>,
        stop: impl Fn(Pin<&mut C>),
    ) -> Option<C::Output> {
        let mut shutdown = shutdown.clone();
        let mut is_stopping = false;
        let mut is_pending = !self.has_arrived();
        loop {
            tokio::select! {
                ended = connection.as_mut() => return Some(ended),
                () = shutdown_requested(&mut shutdown), if !is_stopping => {
                    is_stopping = true;
                    stop(connection.as_mut());
                }
                () = sleep_until(self.deadline), if is_pending => {
                    is_pending = false;
                    if !self.has_arrived() {
                        tracing::debug!("no request came in time");
                        return None;
                    }
                }
            }
        }
    }
}

/// Waits until shutdown is requested, or the sender is dropped.
pub(crate) async fn shutdown_requested(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}
