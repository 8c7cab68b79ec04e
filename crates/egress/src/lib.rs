//! Outgoing HTTPS: the connections that the server opens to webhooks and the like.
//!
//! Promise: a peer's name is resolved once for each connection, the addresses are checked, and what was
//! checked is dialled. No redirect is followed and no proxy is used. Connections, exchanges, headers and
//! bodies have maximums, and each exchange has one deadline for all of it. Error texts are those of Go's
//! `net/http`, because clients of a kube-apiserver see them.
//!
//! This crate knows nothing of the API: how a service is found is for a [`Resolver`] from outside. Of
//! Kubernetes it knows how a [`kubeconfig`] names a peer.

mod client;
mod connection;
mod error;
pub mod kubeconfig;
mod peer;
mod resolve;
mod tls;
mod verify;

pub use client::{Client, Egress, Request, Response};
pub use error::{Cause, Error, Phase};
pub use peer::{Identity, Peer, Route, Trust};
pub use resolve::{BoxFuture, Resolved, Resolver};
pub use tls::ConfigError;
