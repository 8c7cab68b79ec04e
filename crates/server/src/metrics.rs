//! `/metrics`: the server's metrics, with the names, labels and buckets of kube-apiserver.
//!
//! Label values come from closed sets: verbs, codes, and resources of the API table. Client input
//! is never a label.

mod access;
mod cached;
mod filters;
mod process;
mod registry;
mod requests;
mod resources;

pub(crate) use access::Access;
pub(crate) use filters::{Filter, Filters};
pub(crate) use requests::{RequestLabels, RequestObserver, Requests};
pub(crate) use resources::{Resources, WatchListSeries, release_of_removal};

use crate::version::VersionInfo;
use keelson_metrics::{
    Bounds, Counter, Description, Exposition, Histogram, MetricType, SeriesMap, Unit,
};
use keelson_registry::Registry;
use tokio::time::Instant;

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
    pub filters: Filters,
    pub resources: Resources,
    watches: SeriesMap<WatchMetrics>,
    pub handshake_errors: Counter,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics {
            requests: Requests::new(),
            access: Access::new(),
            filters: Filters::new(),
            resources: Resources::new(),
            watches: SeriesMap::new(WATCHED_RESOURCES_MAX),
            handshake_errors: Counter::default(),
        }
    }

    /// Returns the metrics of the watches of a resource.
    pub fn watches(&self, group: &str, resource: &str, version: &str) -> Option<WatchSeries> {
        self.watches.get(&[group, resource, version])
    }

    pub fn write(&self, out: &mut Exposition) {
        self.requests.write(out);
        self.access.write(out);
        self.filters.write(out);
        self.resources.write(out);
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

/// Writes what a registry has and counts; `store_bytes` is the size of the file of its store.
pub(crate) fn write_registry(
    registry: &Registry,
    version: &VersionInfo,
    store_bytes: &[Option<u64>],
    out: &mut Exposition,
) {
    registry.options.admission.write_metrics(out);
    registry.write_metrics(Instant::now(), out);
    registry::write(registry, version, out);
    cached::write(registry, out);
    if store_bytes.iter().all(Option::is_none) {
        return;
    }
    let mut text = out.family(&STORE_BYTES);
    for (number, bytes) in store_bytes.iter().enumerate() {
        if let Some(bytes) = bytes {
            text.value(&[&format!("etcd-{number}")], *bytes as f64);
        }
    }
}

/// Writes what is of the whole process.
pub(crate) fn write_process(out: &mut Exposition) {
    process::write(out);
    crate::polls::write(out);
    keelson_egress::metrics::write(out);
}

/// Writes when the process began.
pub(crate) fn write_start(out: &mut Exposition) {
    process::write_start(out);
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

static STORE_BYTES: Description = Description::gauge(
    "apiserver_storage_size_bytes",
    "[STABLE] Bytes of the file of the store.",
    &["storage_cluster_id"],
);

static HANDSHAKE_ERRORS: Description = Description {
    name: "apiserver_tls_handshake_errors_total",
    help: "[ALPHA] Connections that ended in their TLS handshake.",
    metric_type: MetricType::Counter,
    labels: &[],
};
