//! [`Peer`]: whom to connect to, and as whom.

use std::fmt;
use std::sync::Arc;

/// Everything that decides whether two requests may share a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// A name or an IP address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The resolver of `host`.
    pub route: Route,
    /// The name that the certificate must have; `None`: `host`.
    pub server_name: Option<String>,
    /// Trusted authorities.
    pub trust: Trust,
    /// The certificate to show when the peer asks for one.
    pub identity: Option<Identity>,
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
}

impl Peer {
    /// A peer that is found by DNS, trusted as the system does, and shown no credentials.
    pub fn new(host: impl Into<String>, port: u16) -> Peer {
        Peer {
            host: host.into(),
            port,
            route: Route::Dns,
            server_name: None,
            trust: Trust::System,
            identity: None,
            authorization: None,
        }
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        let Peer { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Names the peer; trust and credentials are left out.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.authority()).finish_non_exhaustive()
    }
}

/// Ways to resolve a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// By the resolver of the system.
    Dns,
    /// By the [`Resolver`](crate::Resolver) that was given.
    Given,
}

/// Trusted authorities of the peer's certificate.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The authorities of the system.
    System,
    /// The certificates of a bundle in PEM, and nobody else.
    Bundle(Arc<[u8]>),
    /// Anybody: the certificate is not checked.
    Anyone,
}

/// A client certificate.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The chain in PEM, the own certificate first.
    pub chain: Arc<[u8]>,
    /// The private key in PEM.
    pub key: Arc<[u8]>,
}
