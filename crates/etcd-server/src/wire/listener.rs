//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection;
use super::routes::Routes;
use super::tls::{Tls, TlsError, TlsFiles};
use crate::limits::{CONNECTIONS_MAX, FIRST_REQUEST_TIME_MAX};

/// How long to wait after a failed accept: most likely there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener for clients.
pub struct Listener {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    has_calls: bool,
}

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Listener {
    /// Listens on an address (`127.0.0.1:2379`), with TLS if there are files for it.
    pub async fn bind(address: &str, tls: Option<TlsFiles>) -> Result<Self, BindError> {
        let tls = tls.map(Tls::new).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|source| BindError::Listen { address: address.to_owned(), source })?;
        Ok(Self { listener, tls, has_calls: true })
    }

    /// Answers health and metrics only, and no calls.
    #[must_use]
    pub fn for_pages_only(self) -> Self {
        Self { has_calls: false, ..self }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until the future is dropped. `slots` bounds them over all listeners.
    pub(crate) async fn run(self, routes: Routes, slots: Arc<Semaphore>) {
        let routes = Routes { has_calls: self.has_calls, ..routes };
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let routes = routes.clone();
                    let tls = self.tls.clone();
                    connections.spawn(async move {
                        serve(routes, tls, stream).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Returns the bound of the connections of all listeners.
pub(crate) fn connection_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

async fn serve(routes: Routes, tls: Option<Arc<Tls>>, stream: TcpStream) {
    // Small messages go out at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set_nodelay failed");
    }
    let Some(tls) = tls else { return connection::serve(routes, stream).await };
    let accepting = TlsAcceptor::from(tls.config()).accept(stream);
    match timeout(FIRST_REQUEST_TIME_MAX, accepting).await {
        Ok(Ok(stream)) => connection::serve(routes, stream).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}
