//! The spans of requests to other processes (otelhttp's semantic conventions).

use crate::peer::{Peer, Scheme};
use http::{Method, Response, Version};
use keelson_traces::Span;

/// Starts the span of a request, below the current span.
pub(crate) fn start(method: &Method, peer: &Peer, path: &str) -> Span {
    let span = keelson_traces::start_client("HTTP", keelson_traces::HTTP);
    if span.is_recorded() {
        let scheme = match peer.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
        };
        span.rename(format!("HTTP {method}"));
        span.set("http.request.method", method.as_str());
        span.set("url.full", format!("{scheme}://{}{path}", peer.authority()));
        span.set("server.address", peer.host.as_str());
        span.set("server.port", peer.port);
    }
    span
}

/// Records the status of the response.
pub(crate) fn answered<T>(span: &Span, response: &Response<T>) {
    let status = response.status();
    span.set(
        "network.protocol.version",
        match response.version() {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        },
    );
    span.set("http.response.status_code", status.as_u16());
    // Of a client, as of no server, these are failures too.
    if status.is_client_error() || status.is_server_error() {
        span.fail();
    }
}
