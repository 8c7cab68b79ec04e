//! `/metrics`: the server's metrics, with the names, labels and buckets of kube-apiserver.
//!
//! Label values come from closed sets: verbs, codes, and resources of the API table. Client input is never a label.

mod access;
mod process;
mod registry;
mod requests;

pub(crate) use access::Access;
pub(crate) use requests::{RequestLabels, RequestObserver, Requests};

use crate::fairness::Fairness;
use crate::health_counts::HealthCounts;
use crate::version::VersionInfo;
use keelson_audit::Audit;
use keelson_metrics::{
    Bounds, Counter, Description, Exposition, Histogram, MetricType, SeriesMap, Unit,
};
use keelson_registry::Registry;

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str =
    "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Most resources with their own watch metrics.
const WATCHED_RESOURCES_MAX: usize = 4096;

/// Metrics of a running server.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub requests: Requests,
    pub access: Access,
    watches: SeriesMap<WatchMetrics>,
    pub handshake_errors: Counter,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics {
            requests: Requests::new(),
            access: Access::new(),
            watches: SeriesMap::new(WATCHED_RESOURCES_MAX),
            handshake_errors: Counter::default(),
        }
    }

    /// Returns the metrics of the watches of a resource.
    pub fn watches(&self, group: &str, resource: &str, version: &str) -> Option<WatchSeries> {
        self.watches.get(&[group, resource, version])
    }

    fn write(&self, out: &mut Exposition) {
        self.requests.write(out);
        self.access.write(out);
        out.family(&HANDSHAKE_ERRORS).value(&[], self.handshake_errors.get() as f64);
        let watches = self.watches.all();
        let mut events = out.family(&WATCH_EVENTS);
        for series in &watches {
            events.value(&series.values(), series.metrics.sizes.total() as f64);
        }
        drop(events);
        let mut sizes = out.family(&WATCH_EVENTS_SIZES);
        for series in &watches {
            sizes.histogram(&series.values(), &series.metrics.sizes);
        }
    }
}

pub(crate) type WatchSeries = std::sync::Arc<keelson_metrics::Series<WatchMetrics>>;

/// Metrics of the watches of a resource in a version.
#[derive(Debug)]
pub(crate) struct WatchMetrics {
    /// Sizes of the events that were sent.
    pub sizes: Histogram,
}

impl Default for WatchMetrics {
    fn default() -> WatchMetrics {
        WatchMetrics { sizes: Histogram::new(&EVENT_BYTES) }
    }
}

/// Returns the text of all metrics.
pub(crate) fn text(
    metrics: &Metrics,
    fairness: Option<&Fairness>,
    audit: Option<&Audit>,
    registry: &Registry,
    version: &VersionInfo,
) -> String {
    let mut out = Exposition::default();
    metrics.write(&mut out);
    if let Some(fairness) = fairness {
        fairness.write(&mut out);
    }
    match audit {
        Some(audit) => audit.metrics().write(&mut out),
        None => keelson_audit::Metrics::default().write(&mut out),
    }
    registry.options.admission.metrics().write(&mut out);
    registry::write(registry, version, &mut out);
    process::write(&mut out);
    crate::polls::write(&mut out);
    out.finish()
}

/// Returns the text of `/metrics/slis`.
pub(crate) fn slis(checks: &HealthCounts) -> String {
    let mut out = Exposition::default();
    checks.write(&mut out);
    process::write_start(&mut out);
    out.finish()
}

static EVENT_BYTES: Bounds = Bounds {
    unit: Unit::Amount,
    upper: &[1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0],
};

static WATCH_EVENTS: Description = Description {
    name: "apiserver_watch_events_total",
    help: "[ALPHA] Events sent to watches, by resource.",
    metric_type: MetricType::Counter,
    labels: &["group", "resource", "version"],
};

static WATCH_EVENTS_SIZES: Description = Description {
    name: "apiserver_watch_events_sizes",
    help: "[ALPHA] Bytes of the events sent to watches, by resource.",
    metric_type: MetricType::Histogram,
    labels: &["group", "resource", "version"],
};

static HANDSHAKE_ERRORS: Description = Description {
    name: "apiserver_tls_handshake_errors_total",
    help: "[ALPHA] Connections that ended in their TLS handshake.",
    metric_type: MetricType::Counter,
    labels: &[],
};
