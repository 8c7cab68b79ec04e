//! All limits on connections and requests. The defaults are those of kube-apiserver, where it has
//! one.

use std::num::NonZeroU64;
use std::time::Duration;

/// Most unauthenticated connections, independent of [`Limits::connections_max`]. Idle ones take
/// some 60 MB. A client may open a thousand connections before its first request.
pub const UNAUTHENTICATED_CONNECTIONS_MAX: usize = 4096;
/// File descriptors reserved for the store, outgoing connections and the runtime.
const FILES_RESERVED_MIN: u64 = 64;
const FILES_RESERVED_MAX: u64 = 1024;

/// Limits on connections, requests and bodies.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most open connections; further ones wait in the listener's backlog. Half of them, and at
    /// most [`UNAUTHENTICATED_CONNECTIONS_MAX`], may be unauthenticated. One address may have three
    /// quarters of each. Specific to Keelson.
    pub connections_max: usize,
    /// Most concurrent read-only requests (`--max-requests-inflight`); 0 means no limit.
    pub requests_in_flight_max: usize,
    /// Most other concurrent requests (`--max-mutating-requests-inflight`); 0 means no limit.
    pub mutating_requests_in_flight_max: usize,
    /// Most header lines of a request over HTTP/1.1; more are 431. A user behind a proxy may have a
    /// line for each of his groups. `http`'s map of headers cannot outgrow its maximum with so many
    /// names, whatever they are: it would panic. A request has 64 bytes for each while its head is
    /// read, of which only those that are used are touched.
    pub header_lines_max: usize,
    /// Whether requests that are too many wait, by FlowSchemas and priority levels
    /// (`--enable-priority-and-fairness`). The two maxima of requests are then one, for all levels
    /// together.
    pub fairness: bool,
    /// Most open logs, streams to containers and proxied requests. Specific to Keelson.
    pub streams_max: usize,
    /// Most of them that one user has. Specific to Keelson.
    pub streams_of_user_max: usize,
    /// Most bytes a second of an upgraded connection to a node, pod or service, in each direction
    /// (`--max-connection-bytes-per-sec`); `None` means no limit.
    pub connection_bytes_per_second_max: Option<NonZeroU64>,
    /// Probability that a request's HTTP/2 connection gets a GOAWAY (`--goaway-chance`).
    pub goaway_chance: f64,
    /// Maximum age of an HTTP/2 connection before GOAWAY. Specific to Keelson.
    pub connection_age_max: Duration,
    /// Idle timeout of a connection (Go's `IdleTimeout`).
    pub idle_timeout: Duration,
    /// Most bytes of incomplete request heads on all unauthenticated connections. Specific to
    /// Keelson.
    pub unauthenticated_bytes_max: usize,
    /// Most bytes of the bodies of all requests in progress. Specific to Keelson.
    pub bodies_bytes_max: usize,
    /// How long a body waits for memory before its request gets 429.
    pub bodies_wait_max: Duration,
    /// Timeout of the TLS handshake. In kube-apiserver, Go's longer header timeout covers it.
    pub handshake_timeout: Duration,
    /// Timeout of a request's headers, and of the first request of a connection (Go's
    /// `ReadHeaderTimeout`, 32 s in kube-apiserver).
    pub header_timeout: Duration,
    /// Most bytes of a request's line and headers (Go's `DefaultMaxHeaderBytes`).
    pub header_bytes_max: usize,
    /// Most bytes of a request's body (kube-apiserver's `MaxRequestBodyBytes`).
    pub body_bytes_max: usize,
    /// Most bytes of an unread request body that are discarded to keep the connection open (Go's
    /// `maxPostHandlerReadBytes`); a longer rest closes it.
    pub unread_body_bytes_max: u64,
    /// Timeout for discarding such a body. Specific to Keelson: Go has no timeout.
    pub unread_body_timeout: Duration,
    /// Timeout of requests other than watches, including their body (`--request-timeout`).
    pub request_timeout: Duration,
    /// Shortest duration of a watch without a timeout; the longest is twice that
    /// (`--min-request-timeout`).
    pub watch_life_min: Duration,
    /// Period of bookmarks on a watch without events (as in the watch cache).
    pub bookmark_period: Duration,
    /// Most concurrent streams of one HTTP/2 connection (kube-apiserver's
    /// `HTTP2MaxStreamsPerConnection`).
    pub http2_streams_max: u32,
    /// Receive window of one HTTP/2 stream; that of a connection is four times as large
    /// (kube-apiserver's `MaxUploadBufferPerStream`; there a connection has it for each stream).
    pub http2_window_bytes: u32,
    /// Most pending streams reset by the client, and most streams reset by the server because of
    /// client errors, before the connection is closed (against rapid reset attacks).
    pub http2_resets_max: usize,
    /// Period of HTTP/2 pings to a silent client (Go's `ReadIdleTimeout`).
    pub http2_ping_interval: Duration,
    /// Timeout of such a ping (Go's `PingTimeout`).
    pub http2_ping_timeout: Duration,
    /// How long a client may read no bytes of a response. Specific to Keelson.
    pub write_stall_timeout: Duration,
    /// Idle time before TCP keepalive probes are sent (Go's default).
    pub keepalive_time: Duration,
    /// Grace period for open requests at shutdown.
    pub drain_timeout: Duration,
    /// Time over which the ends of watches are spread at shutdown, so that their clients do not
    /// come back all at once (`--shutdown-watch-termination-grace-period`). Open requests have this
    /// time beside the grace period.
    pub watch_end_spread: Duration,
    /// Whether requests on new connections get 429 while open ones end at shutdown
    /// (`--shutdown-send-retry-after`).
    pub sends_retry_after: bool,
    /// Whether the time that tasks hold a worker thread is measured, for `/metrics` and the log.
    pub contention_profiling: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 16_384,
            requests_in_flight_max: 400,
            mutating_requests_in_flight_max: 200,
            header_lines_max: 6500,
            fairness: true,
            streams_max: 4096,
            streams_of_user_max: 2048,
            connection_bytes_per_second_max: None,
            goaway_chance: 0.0,
            connection_age_max: Duration::from_secs(6 * 3600),
            idle_timeout: Duration::from_secs(90),
            unauthenticated_bytes_max: 32 << 20,
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
            watch_end_spread: Duration::ZERO,
            sends_retry_after: false,
            contention_profiling: false,
        }
    }
}

impl Limits {
    /// Lowers the number of connections to what a process with this many file descriptors can have.
    /// An eighth of them, and at least 64, is reserved for other uses. Returns `None` if too few
    /// remain.
    #[must_use]
    pub fn within_files(mut self, files: u64) -> Option<Limits> {
        let reserved = (files / 8).clamp(FILES_RESERVED_MIN, FILES_RESERVED_MAX);
        let left = files.checked_sub(reserved).filter(|left| *left > 0)?;
        self.connections_max =
            self.connections_max.min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(self)
    }

    /// Returns the maximum of unauthenticated connections.
    pub(crate) fn unauthenticated_connections(&self) -> usize {
        (self.connections_max / 2).clamp(1, UNAUTHENTICATED_CONNECTIONS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_descriptors_are_reserved_for_the_store() {
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
