//! Who is at the other end of a connection, and how it begins and ends.

use crate::connections::Place;
use crate::limits::Limits;
use crate::peer_certificate::PeerCertificate;
use crate::socket::Socket;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The client of a connection.
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

/// The deadline for the first bytes of a connection.
#[derive(Clone)]
pub(crate) struct Opening {
    /// When the first request must have come.
    by: Instant,
    is_asked: Arc<AtomicBool>,
}

impl Opening {
    pub fn new(limits: &Limits) -> Opening {
        let by = Instant::now() + limits.header_timeout;
        Opening { by, is_asked: Arc::default() }
    }

    /// When the first request must have come.
    pub fn by(&self) -> Instant {
        self.by
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
        shutdown: &watch::Receiver<bool>,
        mut connection: Pin<&mut C>,
        stop: impl Fn(Pin<&mut C>),
    ) -> Option<C::Output> {
        let mut shutdown = shutdown.clone();
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

/// Waits until the server is told to stop; a sender that went away has said so too.
pub(crate) async fn told(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}
