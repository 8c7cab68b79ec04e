//! The HTTP server: TLS, routes, content negotiation, watch streams, discovery, health. No other crate
//! handles incoming HTTP requests.
//!
//! The steps of a request, in order, are those of [`pipeline`]: arrival ([`route`], no body read) ->
//! authentication -> authorization (a Permit) -> the endpoint -> the body is decoded -> the registry's
//! verb -> the response is encoded.

mod aggregated;
mod app;
mod audited;
mod behind;
mod body;
mod body_memory;
mod browsers;
mod component_pages;
mod connect;
mod connections;
mod context;
mod delete_options;
mod discovery;
mod documents;
mod extra_paths;
mod fairness;
mod far_side;
mod front;
mod header_lists;
mod health;
mod health_checks;
mod health_counts;
mod health_log;
mod heavy;
mod host;
mod http1;
mod http2;
mod impersonate;
mod in_flight;
mod kubelets;
mod limits;
mod listen;
mod listing;
mod log_stream;
mod metrics;
pub mod negotiate;
mod outcome;
mod passage;
mod paths;
mod peer;
pub mod peer_certificate;
mod pipeline;
mod polls;
mod proxy;
mod query;
mod refusing;
mod request_body;
mod request_head;
mod request_info;
mod request_object;
mod resolve;
mod resource;
mod respond;
mod response_body;
mod response_object;
mod reviews;
mod rewrite;
pub mod route;
mod session;
mod socket;
mod stream_limit;
mod tls;
mod tls_options;
mod translation;
mod upgrade;
mod version;
mod view;
mod watch;
mod websocket;

pub use app::{App, State};
pub use browsers::{BrowserOptions, CrossOrigins};
pub use extra_paths::{ExtraAnswer, ExtraPath};
pub use fairness::FairnessSource;
pub use health::Health;
pub use kubelets::KubeletAccess;
pub use limits::Limits;
pub use listen::{Listening, serve};
pub use peer_certificate::{ClientAuthorities, PeerCertificate};
pub use tls::{CertificateAndKey, NamedCertificate, ServingCertificates, Tls};
pub use tls_options::TlsOptions;
pub use version::VersionInfo;
