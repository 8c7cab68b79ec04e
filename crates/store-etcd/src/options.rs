//! Options of an etcd store, and why it cannot be opened.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use keelson_store::{BoxFuture, DiskError};
use tokio::io::{AsyncRead, AsyncWrite};

/// Certificates for the connections to etcd, as PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// The trusted authorities of the servers' certificates; `None` means those of the host.
    pub authorities: Option<Vec<u8>>,
    /// The client's certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = if self.identity.is_some() { "a" } else { "no" };
        write!(f, "EtcdTls with {own} certificate of its own")
    }
}

/// A connection to a member.
pub type DialedStream = Pin<Box<dyn ByteStream>>;

/// What a connection can be made of.
pub trait ByteStream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ByteStream for T {}

/// A connection that is being made.
pub type Dialing = BoxFuture<'static, std::io::Result<DialedStream>>;

/// Connects to members, by `host:port`: for clusters behind a proxy. TLS goes on top of it.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(String) -> Dialing + Send + Sync>);

impl Dialer {
    /// Returns what connects by a function.
    pub fn new(dial: impl Fn(String) -> Dialing + Send + Sync + 'static) -> Dialer {
        Dialer(Arc::new(dial))
    }

    /// Connects to `host:port`.
    pub(crate) fn dial(&self, address: String) -> Dialing {
        (self.0)(address)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

/// Addresses of a cluster, and how to use it.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Addresses of members, `http://` or `https://`.
    pub servers: Vec<String>,
    /// Certificates, for `https://`.
    pub tls: EtcdTls,
    /// What connects to the members; `None`: TCP does.
    pub dialer: Option<Dialer>,
    /// The prefix of all store keys, with a slash at its end.
    pub root: String,
    /// The prefix of these keys in the cluster, with a slash at its end; not empty.
    pub prefix: String,
    /// By how much a key may live longer than requested at most, so that keys share a lease.
    pub lease_reuse: Duration,
    /// How long a watch may be behind the newest known revision before it requests its progress.
    pub progress_after: Duration,
}

impl EtcdOptions {
    /// Creates options for store keys under `/registry/`, with the same prefix in the cluster.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        let root = String::from("/registry/");
        let progress_after = Duration::from_millis(20);
        let tls = EtcdTls::default();
        let prefix = root.clone();
        let lease_reuse = Duration::from_secs(60);
        Self { servers, tls, dialer: None, root, prefix, lease_reuse, progress_after }
    }
}

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An address is invalid, or does not fit the certificates.
    #[error("{url:?}: {why}")]
    Server {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No member responded.
    #[error("no etcd server answers")]
    Unreachable {
        /// The last error.
        source: DiskError,
        /// Whether a retry may succeed; `false` if a certificate was refused.
        is_retryable: bool,
    },
}
