//! Every maximum that a connection or a request meets, in one place. The defaults are those of
//! kube-apiserver, where it has one.

use std::time::Duration;

/// Connections without an authenticated user, whatever number there may be in all: some 60 MB while they are
/// idle. A client that opens a thousand before its first request keeps them all.
pub const UNAUTHENTICATED_CONNECTIONS_MAX: usize = 4096;
/// Files that are not for connections: those of the store, of outgoing connections, of the runtime.
const FILES_RESERVED_MIN: u64 = 64;
const FILES_RESERVED_MAX: u64 = 1024;

/// Limits on connections, requests and bodies.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; more wait in the listener's backlog. Half of them, and at most
    /// [`UNAUTHENTICATED_CONNECTIONS_MAX`], may be without an authenticated user. Of all, and of those, three
    /// quarters may be of one address. Ours: kube-apiserver has none.
    pub connections_max: usize,
    /// Requests at once that do not change anything (`--max-requests-inflight`); 0: any number.
    pub requests_in_flight_max: usize,
    /// Other requests at once (`--max-mutating-requests-inflight`); 0: any number.
    pub mutating_requests_in_flight_max: usize,
    /// The part of requests whose HTTP/2 connection is told to end (`--goaway-chance`).
    pub goaway_chance: f64,
    /// Maximum age of an HTTP/2 connection before GOAWAY. Ours: kube-apiserver has none.
    pub connection_age_max: Duration,
    /// Idle timeout of a connection (Go's `IdleTimeout`).
    pub idle_timeout: Duration,
    /// Bytes of unfinished requests of all clients that have not authenticated. Ours.
    pub unasked_bytes_max: usize,
    /// Bytes of the bodies of all requests that are being read and answered. Ours.
    pub bodies_bytes_max: usize,
    /// How long a body waits for others before its request gets 429.
    pub bodies_wait_max: Duration,
    /// How long a client may take for the TLS handshake. Ours: shorter than Go's header timeout, which
    /// covers it there.
    pub handshake_timeout: Duration,
    /// How long a client may take for a request's headers, and for the first one to begin (Go's
    /// `ReadHeaderTimeout`, 32 s in kube-apiserver).
    pub header_timeout: Duration,
    /// Bytes of a request's line and headers (Go's `DefaultMaxHeaderBytes`).
    pub header_bytes_max: usize,
    /// Bytes of a request's body (kube-apiserver's `MaxRequestBodyBytes`).
    pub body_bytes_max: usize,
    /// Bytes of a request's body that are read after an answer that did not need them, so that the
    /// connection can go on (Go's `maxPostHandlerReadBytes`); a longer rest closes it.
    pub unread_body_bytes_max: u64,
    /// How long the rest of such a body is waited for. Ours: Go waits for ever.
    pub unread_body_timeout: Duration,
    /// How long a request other than a watch may take, its body included
    /// (`--request-timeout`).
    pub request_timeout: Duration,
    /// Shortest life of a watch that names no timeout; the longest is twice that
    /// (`--min-request-timeout`).
    pub watch_life_min: Duration,
    /// Bookmark period of a quiet watch (the watch cache's).
    pub bookmark_period: Duration,
    /// Streams of one HTTP/2 connection (kube-apiserver's `HTTP2MaxStreamsPerConnection`).
    pub http2_streams_max: u32,
    /// Bytes in flight of one HTTP/2 stream; a connection has four times that for all of them
    /// (kube-apiserver's `MaxUploadBufferPerStream`; there a connection has it for each).
    pub http2_window_bytes: u32,
    /// Streams that a client may reset before the server took them up, and that the server resets for
    /// the client's faults, before the connection ends (the rapid reset attacks).
    pub http2_resets_max: usize,
    /// Period of HTTP/2 pings to a silent client (Go's `ReadIdleTimeout`).
    pub http2_ping_interval: Duration,
    /// Timeout of such a ping (Go's `PingTimeout`).
    pub http2_ping_timeout: Duration,
    /// Stall timeout: how long a client may accept no bytes of an answer. Ours: kube-apiserver has none.
    pub write_stall_timeout: Duration,
    /// After how long a silent TCP connection is asked whether it is still there (Go's default).
    pub keepalive_time: Duration,
    /// Grace period for open requests at shutdown.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 16_384,
            requests_in_flight_max: 400,
            mutating_requests_in_flight_max: 200,
            goaway_chance: 0.0,
            connection_age_max: Duration::from_secs(6 * 3600),
            idle_timeout: Duration::from_secs(90),
            unasked_bytes_max: 32 << 20,
            bodies_bytes_max: 64 << 20,
            bodies_wait_max: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(32),
            header_bytes_max: 1 << 20,
            body_bytes_max: 3 << 20,
            unread_body_bytes_max: 256 << 10,
            unread_body_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(60),
            watch_life_min: Duration::from_secs(1800),
            bookmark_period: Duration::from_secs(60),
            http2_streams_max: 100,
            http2_window_bytes: 256 << 10,
            http2_resets_max: 100,
            http2_ping_interval: Duration::from_secs(30),
            http2_ping_timeout: Duration::from_secs(15),
            write_stall_timeout: Duration::from_secs(300),
            keepalive_time: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Lowers what opens files to what a process with so many files can have: an eighth of them, and at
    /// least 64, is for the store and other needs. `None`: there are not enough files to serve.
    #[must_use]
    pub fn within_files(mut self, files: u64) -> Option<Limits> {
        let reserved = (files / 8).clamp(FILES_RESERVED_MIN, FILES_RESERVED_MAX);
        let left = files.checked_sub(reserved).filter(|left| *left > 0)?;
        self.connections_max =
            self.connections_max.min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(self)
    }

    /// Connections that have not authenticated anybody.
    pub(crate) fn unauthenticated_connections(&self) -> usize {
        (self.connections_max / 2).clamp(1, UNAUTHENTICATED_CONNECTIONS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_for_the_store() {
        let check = |files, want| {
            let limits = Limits::default().within_files(files);
            assert_eq!(limits.map(|limits| limits.connections_max), want, "{files}");
        };
        check(64, None);
        check(128, Some(64));
        check(1024, Some(896));
        check(1 << 20, Some(16_384));
        check(u64::MAX, Some(16_384));
    }
}
