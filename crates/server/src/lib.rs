//! HTTP: TLS, routes, content negotiation, watch framing, discovery, health. The only crate that knows
//! HTTP.
//!
//! A request goes one way: [`route`] (no body read) -> authentication -> a Permit -> the body is decoded
//! -> the registry's verb -> the answer's bytes ([`handler`]).

mod aggregated;
mod app;
mod ask;
mod bodies;
mod body;
mod component_pages;
mod connections;
mod context;
mod discovery;
mod documents;
mod found;
mod handler;
mod health;
mod health_checks;
mod health_log;
mod heavy;
mod host;
mod http1;
mod http2;
mod impersonate;
mod in_flight;
mod limits;
mod listen;
mod listing;
mod metrics;
pub mod negotiate;
mod opening;
mod paths;
pub mod peer_certificate;
mod query;
mod request_body;
mod resource;
mod respond;
mod reviews;
pub mod route;
mod sending;
mod socket;
mod tls;
mod version;
mod view;
mod watch;
mod websocket;

pub use app::{App, State};
pub use health::Health;
pub use limits::Limits;
pub use listen::{Listening, serve};
pub use peer_certificate::{ClientAuthorities, PeerCertificate};
pub use tls::Tls;
pub use version::VersionInfo;
