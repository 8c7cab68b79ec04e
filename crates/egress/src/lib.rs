//! Outgoing HTTP: the connections that the server opens to webhooks, nodes and the like.
//!
//! Guarantees: the name of a peer is resolved once for each connection, and only the checked
//! addresses are dialled. Redirects are not followed, and a proxy is used only where a peer names
//! one ([`Proxy`]). Connections, exchanges, headers and bodies have maximums, and each exchange has
//! one deadline. Error texts are those of Go's `net/http`, because clients of a kube-apiserver see
//! them.
//!
//! An [`EgressSelector`] names the proxies through which the connections to a network go: by
//! CONNECT, or by konnectivity's protocol.
//!
//! [`GrpcPeer`] is the one exception to HTTP: gRPC to processes of this host, over Unix domain
//! sockets, and to collectors of traces.
//!
//! This crate does not depend on the API: services are resolved by a [`Resolver`]. It parses the
//! servers and users of a [`kubeconfig`].

mod address;
mod body;
mod client;
mod connection;
mod error;
mod grpc;
mod http1_sender;
mod hyper_errors;
mod konnectivity;
pub mod kubeconfig;
pub mod metrics;
mod peer;
mod proxy;
mod resolve;
mod selector;
mod stream;
mod tls;
mod traced;
mod verify;
mod wire;

pub use body::StreamedBody;
pub use client::{Client, Egress, Request, Response};
pub use error::{Cause, Error, Phase};
pub use grpc::{GrpcPeer, grpc_code_name, grpc_error_text};
pub use peer::{Identity, Network, NetworkChoice, Peer, Route, Scheme, Trust};
pub use proxy::Proxy;
pub use resolve::{BoxFuture, Resolved, Resolver};
pub use selector::{EgressSelector, Tunneler};
pub use stream::{StreamedResponse, UpgradeAnswer, Upgraded};
pub use tls::ConfigError;
pub use wire::{Duplex, Wire};
