//! [`Peer`]: the endpoint of a connection, with trust and credentials.

use crate::address::{authority, bare_host};
use crate::proxy::Proxy;
use std::fmt;
use std::sync::Arc;

/// Everything that decides whether two requests may share a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Whether the connection is secured.
    pub scheme: Scheme,
    /// A name or an IP address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// How `host` is resolved.
    pub route: Route,
    /// The expected name in the certificate; `None`: `host`.
    pub server_name: Option<String>,
    /// The trusted CAs.
    pub trust: Trust,
    /// The client certificate.
    pub identity: Option<Identity>,
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
    /// The proxy on the way, which then resolves `host`.
    pub proxy: Option<Proxy>,
    /// How it is reached where networks have proxies.
    pub selection: NetworkChoice,
}

impl Peer {
    /// Returns a peer that is resolved by DNS, with the system's roots and no credentials. `host`
    /// may be that of a URL, with brackets around an IPv6 address.
    pub fn new(host: impl AsRef<str>, port: u16) -> Peer {
        Peer {
            scheme: Scheme::Https,
            host: bare_host(host.as_ref()).to_owned(),
            port,
            route: Route::Dns,
            server_name: None,
            trust: Trust::System,
            identity: None,
            authorization: None,
            proxy: None,
            selection: NetworkChoice::ByRoute,
        }
    }

    /// Returns `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

/// Prints the peer's name; omits trust and credentials.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.authority()).finish_non_exhaustive()
    }
}

/// The security of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// TLS.
    Https,
    /// None: for proxies to pods and services that ask for it.
    Http,
}

/// Ways to resolve a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// With the system's resolver. Names must not lead to local addresses.
    Dns,
    /// With the system's resolver, wherever it leads: for nodes, which may be this one.
    Node,
    /// With the system's resolver; all addresses must be global unicast ones, literal ones too. For
    /// targets that users name.
    Public,
    /// With the [`Resolver`](crate::Resolver) of the [`Egress`](crate::Egress).
    Given,
}

/// Where a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Servers beside this one: webhooks that have a URL, authenticators, authorizers, collectors
    /// of events.
    ControlPlane,
    /// Nodes, pods and services.
    Cluster,
    /// The store.
    Etcd,
}

/// How a peer is reached where there is a selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NetworkChoice {
    /// As its [`Route`] says: names of DNS are in the network of the control plane, all else is in
    /// the cluster.
    #[default]
    ByRoute,
    /// Directly.
    Direct,
    /// As peers of this network.
    Network(Network),
}

/// The trusted CAs for the peer's certificate.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The CAs of the system.
    System,
    /// Only the certificates of a PEM bundle.
    Bundle(Arc<[u8]>),
    /// Any certificate: no verification.
    Anyone,
}

/// A client certificate.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The chain in PEM, leaf first.
    pub chain: Arc<[u8]>,
    /// The private key in PEM.
    pub key: Arc<[u8]>,
}
