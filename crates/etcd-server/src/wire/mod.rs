//! Connections, HTTP and gRPC: everything between a socket and the engine.

mod calls;
mod connection;
mod listener;
mod many_keys;
mod pages;
mod routes;
mod shared;
mod stall;
mod streams;
mod tls;
mod unfinished;

pub(crate) use listener::connection_slots;
pub use listener::{BindError, Listener};
pub(crate) use routes::Routes;
pub(crate) use shared::Shared;
pub use tls::{TlsError, TlsFiles};
