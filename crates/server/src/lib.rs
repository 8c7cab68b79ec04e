//! The HTTP server: TLS, routes, content negotiation, watch streams, discovery, health. No other crate
//! handles incoming HTTP requests.
//!
//! The steps of a request: [`route`] (no body read) -> authentication -> authorization (a Permit) -> the body
//! is decoded -> the registry's verb -> the response is encoded ([`handler`]).

mod aggregated;
mod app;
mod body;
mod body_memory;
mod browsers;
mod component_pages;
mod connections;
mod context;
mod delete_options;
mod discovery;
mod documents;
mod front;
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
mod paths;
mod peer;
pub mod peer_certificate;
mod polls;
mod query;
mod refusing;
mod request_body;
mod request_head;
mod resolve;
mod resource;
mod respond;
mod response_body;
mod reviews;
pub mod route;
mod socket;
mod tls;
mod tls_options;
mod version;
mod view;
mod watch;
mod websocket;

pub use app::{App, State};
pub use browsers::{BrowserOptions, CrossOrigins};
pub use health::Health;
pub use limits::Limits;
pub use listen::{Listening, serve};
pub use peer_certificate::{ClientAuthorities, PeerCertificate};
pub use tls::{CertificateAndKey, NamedCertificate, ServingCertificates, Tls};
pub use tls_options::TlsOptions;
pub use version::VersionInfo;
