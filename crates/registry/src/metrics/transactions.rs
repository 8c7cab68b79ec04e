//! Durations of the store's transactions by resource. They have the names that etcd's have in
//! kube-apiserver, whichever store there is.

use super::RESOURCES_MAX;
use keelson_meta::GroupVersionResource;
use keelson_metrics::{Bounds, Description, Exposition, Histogram, SeriesMap};
use std::time::Duration;

/// Transactions of all resources.
#[derive(Debug)]
pub struct Transactions(SeriesMap<TransactionMetrics>);

/// Durations of one operation on one resource.
#[derive(Debug)]
pub struct TransactionMetrics(Histogram);

impl Default for TransactionMetrics {
    fn default() -> TransactionMetrics {
        TransactionMetrics(Histogram::new(&SECONDS))
    }
}

impl Default for Transactions {
    fn default() -> Transactions {
        // Create, update, delete and list.
        Transactions(SeriesMap::new(4 * RESOURCES_MAX))
    }
}

impl Transactions {
    /// Counts a transaction: `create`, `update`, `delete`, or the read `list`.
    pub fn observe(&self, resource: &GroupVersionResource, operation: &str, took: Duration) {
        if let Some(series) = self.0.get(&[&resource.group, operation, &resource.resource]) {
            series.metrics.0.observe_duration(took);
        }
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        let all = self.0.all();
        let mut seconds = out.family(&REQUEST_SECONDS);
        for series in &all {
            seconds.histogram(&series.values(), &series.metrics.0);
        }
        drop(seconds);
        let mut requests = out.family(&REQUESTS);
        for series in &all {
            requests.value(&series.values(), series.metrics.0.total() as f64);
        }
    }
}

static SECONDS: Bounds = Bounds::seconds(&[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
]);

const LABELS: &[&str] = &["group", "operation", "resource"];

static REQUEST_SECONDS: Description = Description::histogram(
    "etcd_request_duration_seconds",
    "[ALPHA] Seconds that requests to the store took, by operation and resource.",
    LABELS,
);

static REQUESTS: Description = Description::counter(
    "etcd_requests_total",
    "[ALPHA] Requests to the store, by operation and resource.",
    LABELS,
);
