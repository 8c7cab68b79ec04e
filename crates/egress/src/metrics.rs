//! Requests to other servers, by host: webhooks, issuers of tokens, servers behind this one. They
//! are the process's, as the names of `client-go` are, and have those names.

use crate::Error;
use http::StatusCode;
use keelson_metrics::{Bounds, Counter, Description, Exposition, Histogram, SeriesMap};
use std::sync::LazyLock;
use std::time::Duration;

/// Most combinations of host, method and code. Hosts come from configurations.
const SERIES_MAX: usize = 4096;

#[derive(Debug)]
struct Requests {
    /// By host and verb.
    exchanges: SeriesMap<Exchanges>,
    /// By code, host and method.
    codes: SeriesMap<Counter>,
}

#[derive(Debug)]
struct Exchanges {
    seconds: Histogram,
    sent: Histogram,
    received: Histogram,
}

impl Default for Exchanges {
    fn default() -> Exchanges {
        let bytes = || Histogram::new(&BYTES);
        Exchanges { seconds: Histogram::new(&SECONDS), sent: bytes(), received: bytes() }
    }
}

static REQUESTS: LazyLock<Requests> = LazyLock::new(|| Requests {
    exchanges: SeriesMap::new(SERIES_MAX),
    codes: SeriesMap::new(SERIES_MAX),
});

/// A request to a host.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub host: &'a str,
    pub method: &'a str,
    pub bytes: usize,
}

/// Counts a request by its response, with status and length, or by its failure.
pub(crate) fn ended(
    request: Sent<'_>,
    outcome: Result<(StatusCode, usize), &Error>,
    took: Duration,
) {
    let Sent { host, method, bytes } = request;
    if let Some(series) = REQUESTS.exchanges.get(&[host, method]) {
        series.metrics.seconds.observe_duration(took);
        series.metrics.sent.observe(bytes as u64);
        if let Ok((_, length)) = outcome {
            series.metrics.received.observe(length as u64);
        }
    }
    let code = outcome.as_ref().map_or("<error>", |(status, _)| status.as_str());
    if let Some(series) = REQUESTS.codes.get(&[code, host, method]) {
        series.metrics.increment();
    }
}

/// The connections through proxies of networks.
#[derive(Debug)]
struct Dials {
    /// By protocol and transport.
    starts: SeriesMap<Counter>,
    /// By protocol and transport.
    seconds: SeriesMap<DialSeconds>,
    /// By protocol, stage and transport.
    failures: SeriesMap<Counter>,
}

#[derive(Debug)]
struct DialSeconds(Histogram);

impl Default for DialSeconds {
    fn default() -> DialSeconds {
        DialSeconds(Histogram::new(&DIAL_BOUNDS))
    }
}

static DIALS: LazyLock<Dials> = LazyLock::new(|| Dials {
    starts: SeriesMap::new(SERIES_MAX),
    seconds: SeriesMap::new(SERIES_MAX),
    failures: SeriesMap::new(SERIES_MAX),
});

/// Counts a connection through a proxy that is begun.
pub(crate) fn dial_started(protocol: &str, transport: &str) {
    if let Some(series) = DIALS.starts.get(&[protocol, transport]) {
        series.metrics.increment();
    }
}

/// Counts a connection through a proxy that is open.
pub(crate) fn dialed(protocol: &str, transport: &str, took: Duration) {
    if let Some(series) = DIALS.seconds.get(&[protocol, transport]) {
        series.metrics.0.observe_duration(took);
    }
}

/// Counts a connection through a proxy that failed at a stage.
pub(crate) fn dial_failed(protocol: &str, stage: &str, transport: &str) {
    if let Some(series) = DIALS.failures.get(&[protocol, stage, transport]) {
        series.metrics.increment();
    }
}

fn write_dials(out: &mut Exposition) {
    let mut text = out.family(&DIAL_STARTS);
    for series in DIALS.starts.all() {
        text.value(&series.values(), series.metrics.get() as f64);
    }
    drop(text);
    let mut text = out.family(&DIAL_SECONDS);
    for series in DIALS.seconds.all() {
        text.histogram(&series.values(), &series.metrics.0);
    }
    drop(text);
    let mut text = out.family(&DIAL_FAILURES);
    for series in DIALS.failures.all() {
        text.value(&series.values(), series.metrics.get() as f64);
    }
}

/// Writes the metrics of all requests of this process.
pub fn write(out: &mut Exposition) {
    write_dials(out);
    let all = REQUESTS.exchanges.all();
    type Which = fn(&Exchanges) -> &Histogram;
    let histograms: [(&'static Description, Which); 3] = [
        (&REQUEST_SECONDS, |one| &one.seconds),
        (&REQUEST_BYTES, |one| &one.sent),
        (&RESPONSE_BYTES, |one| &one.received),
    ];
    for (description, which) in histograms {
        let mut text = out.family(description);
        for series in all.iter().filter(|series| which(&series.metrics).total() > 0) {
            text.histogram(&series.values(), which(&series.metrics));
        }
    }
    let mut text = out.family(&REQUESTS_TOTAL);
    for series in REQUESTS.codes.all() {
        text.value(&series.values(), series.metrics.get() as f64);
    }
}

static DIAL_BOUNDS: Bounds = Bounds::seconds(&[0.005, 0.025, 0.1, 0.5, 2.5, 12.5]);

static DIAL_STARTS: Description = Description::counter(
    "apiserver_egress_dialer_dial_start_total",
    "[ALPHA] Connections through proxies that were begun, by the proxy's protocol and transport.",
    &["protocol", "transport"],
);

static DIAL_SECONDS: Description = Description::histogram(
    "apiserver_egress_dialer_dial_duration_seconds",
    "[ALPHA] Seconds until a connection through a proxy was open, by its protocol and transport.",
    &["protocol", "transport"],
);

static DIAL_FAILURES: Description = Description::counter(
    "apiserver_egress_dialer_dial_failure_count",
    "[ALPHA] Connections through proxies that failed, by the proxy's protocol, stage and transport.",
    &["protocol", "stage", "transport"],
);

static SECONDS: Bounds =
    Bounds::seconds(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

static BYTES: Bounds = Bounds::amount(&[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
]);

static REQUEST_SECONDS: Description = Description::histogram(
    "rest_client_request_duration_seconds",
    "[ALPHA] Seconds that requests to other servers took, by host and method.",
    &["host", "verb"],
);

static REQUEST_BYTES: Description = Description::histogram(
    "rest_client_request_size_bytes",
    "[ALPHA] Bytes of the bodies of requests to other servers, by host and method.",
    &["host", "verb"],
);

static RESPONSE_BYTES: Description = Description::histogram(
    "rest_client_response_size_bytes",
    "[ALPHA] Bytes of the bodies of responses of other servers, by host and method.",
    &["host", "verb"],
);

static REQUESTS_TOTAL: Description = Description::counter(
    "rest_client_requests_total",
    "[ALPHA] Requests to other servers, by host, method and the code of the response.",
    &["code", "host", "method"],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_host_and_code() {
        let request = Sent { host: "metrics.example.com:443", method: "POST", bytes: 300 };
        ended(request, Ok((StatusCode::CREATED, 5000)), Duration::from_millis(20));
        let mut out = Exposition::default();
        write(&mut out);
        let text = out.finish();
        for line in [
            "rest_client_requests_total{code=\"201\",host=\"metrics.example.com:443\",method=\"POST\"} 1",
            "rest_client_request_duration_seconds_bucket{host=\"metrics.example.com:443\",\
             verb=\"POST\",le=\"0.025\"} 1",
            "rest_client_request_size_bytes_sum{host=\"metrics.example.com:443\",verb=\"POST\"} 300",
            "rest_client_response_size_bytes_bucket{host=\"metrics.example.com:443\",verb=\"POST\",\
             le=\"4096\"} 0",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }
}
