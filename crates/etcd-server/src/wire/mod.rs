//! Connections, HTTP and gRPC: everything between a socket and the engine.

mod bounds;
mod calls;
mod connection;
mod listener;
mod pages;
mod routes;
mod stall;
mod tls;

pub(crate) use bounds::Shared;
pub(crate) use listener::connection_slots;
pub use listener::{BindError, Listener};
pub(crate) use routes::Routes;
pub use tls::{TlsError, TlsFiles};
