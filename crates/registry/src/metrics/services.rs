//! Allocations of cluster IPs and node ports.

use keelson_metrics::{Bounds, Counter, Description, Exposition, Gauge, Histogram, SeriesMap};
use std::time::Duration;

/// Most ranges of addresses with their own series.
const RANGES_MAX: usize = 256;
/// The values of the label `scope`: chosen by the server, or asked for by the client.
const SCOPES: [&str; 2] = ["dynamic", "static"];

/// How an address or a port was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationWay {
    /// The server chose it.
    Dynamic,
    /// The client asked for it.
    Static,
}

/// Allocations of cluster IPs by range, and of node ports.
#[derive(Debug)]
pub struct ServiceMetrics {
    addresses: SeriesMap<Allocations>,
    ports: [Outcomes; 2],
    ports_allocated: Gauge,
    ports_available: Gauge,
}

#[derive(Debug, Default)]
struct Outcomes {
    allocated: Counter,
    failed: Counter,
}

#[derive(Debug)]
struct Allocations {
    /// By `SCOPES`.
    outcomes: [Outcomes; 2],
    seconds: Histogram,
}

impl Default for Allocations {
    fn default() -> Allocations {
        Allocations { outcomes: Default::default(), seconds: Histogram::new(&SECONDS) }
    }
}

impl Default for ServiceMetrics {
    fn default() -> ServiceMetrics {
        ServiceMetrics {
            addresses: SeriesMap::new(RANGES_MAX),
            ports: Default::default(),
            ports_allocated: Gauge::default(),
            ports_available: Gauge::default(),
        }
    }
}

impl Outcomes {
    fn count(&self, is_done: bool) {
        if is_done { self.allocated.increment() } else { self.failed.increment() }
    }
}

impl ServiceMetrics {
    /// Counts the allocation of an address of a range, or the failure of it.
    pub fn address(&self, range: &str, how: AllocationWay, is_done: bool, took: Duration) {
        if let Some(series) = self.addresses.get(&[range]) {
            series.metrics.outcomes[how as usize].count(is_done);
            if is_done {
                series.metrics.seconds.observe_duration(took);
            }
        }
    }

    /// Counts the allocation of a node port, or the failure of it.
    pub fn port(&self, how: AllocationWay, is_done: bool) {
        self.ports[how as usize].count(is_done);
    }

    /// Records how many node ports are allocated and how many are free.
    pub fn ports_in_use(&self, allocated: usize, available: usize) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.ports_allocated.set(number(allocated));
        self.ports_available.set(number(available));
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        let all = self.addresses.all();
        type Read = fn(&Outcomes) -> &Counter;
        let outcomes: [(&'static Description, &'static Description, Read); 2] = [
            (&ADDRESSES, &PORTS, |one| &one.allocated),
            (&ADDRESS_ERRORS, &PORT_ERRORS, |one| &one.failed),
        ];
        for (of_addresses, of_ports, read) in outcomes {
            let mut text = out.family(of_addresses);
            for series in &all {
                let [range] = series.values()[..] else { continue };
                for (scope, outcomes) in SCOPES.iter().zip(&series.metrics.outcomes) {
                    let count = read(outcomes).get();
                    if count > 0 {
                        text.value(&[range, scope], count as f64);
                    }
                }
            }
            drop(text);
            let mut text = out.family(of_ports);
            for (scope, outcomes) in SCOPES.iter().zip(&self.ports) {
                let count = read(outcomes).get();
                if count > 0 {
                    text.value(&[scope], count as f64);
                }
            }
        }
        out.family(&PORTS_ALLOCATED).value(&[], self.ports_allocated.get() as f64);
        out.family(&PORTS_AVAILABLE).value(&[], self.ports_available.get() as f64);
        let mut text = out.family(&ADDRESS_SECONDS);
        for series in &all {
            text.histogram(&series.values(), &series.metrics.seconds);
        }
    }
}

static SECONDS: Bounds =
    Bounds::seconds(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

static ADDRESSES: Description = Description::counter(
    "kube_apiserver_clusterip_allocator_allocation_total",
    "[ALPHA] Cluster IPs that were allocated, by range, and by whether the client asked for them.",
    &["cidr", "scope"],
);

static ADDRESS_ERRORS: Description = Description::counter(
    "kube_apiserver_clusterip_allocator_allocation_errors_total",
    "[ALPHA] Cluster IPs that could not be allocated, by range, and by whether the client asked for them.",
    &["cidr", "scope"],
);

static ADDRESS_SECONDS: Description = Description::histogram(
    "kube_apiserver_clusterip_allocator_allocation_duration_seconds",
    "[ALPHA] Seconds that the allocation of a cluster IP took, by range.",
    &["cidr"],
);

static PORTS: Description = Description::counter(
    "kube_apiserver_nodeport_allocator_allocation_total",
    "[ALPHA] Node ports that were allocated, by whether the client asked for them.",
    &["scope"],
);

static PORT_ERRORS: Description = Description::counter(
    "kube_apiserver_nodeport_allocator_allocation_errors_total",
    "[ALPHA] Node ports that could not be allocated, by whether the client asked for them.",
    &["scope"],
);

static PORTS_ALLOCATED: Description = Description::gauge(
    "kube_apiserver_nodeport_allocator_allocated_ports",
    "[ALPHA] Node ports that are allocated.",
    &[],
);

static PORTS_AVAILABLE: Description = Description::gauge(
    "kube_apiserver_nodeport_allocator_available_ports",
    "[ALPHA] Node ports that are free.",
    &[],
);
