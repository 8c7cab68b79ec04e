//! HTTP: TLS, routes, content negotiation, watch framing, discovery, health. The only crate that knows
//! HTTP.
//!
//! A request goes one way: [`route`] (no body read) -> authentication -> a Permit -> the body is decoded
//! -> the registry's verb -> the answer's bytes ([`handler`]).

mod body;
mod discovery;
mod handler;
mod heavy;
mod http1;
mod impersonate;
mod limits;
mod listen;
mod listing;
pub mod negotiate;
mod paths;
pub mod query;
mod resource;
mod respond;
mod reviews;
pub mod route;
mod socket;
mod tls;
mod view;
mod watch;
mod websocket;

pub use handler::{App, VersionInfo};
pub use limits::Limits;
pub use listen::{Listening, serve};
pub use tls::{PeerCertificate, Tls};
