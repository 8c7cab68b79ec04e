//! Metrics of requests: count, duration and size, by resource, verb and code.

use keelson_metrics::{
    Bounds, Counter, Description, Exposition, FamilyText, Gauge, Histogram, MetricType, Series,
    SeriesMap, Unit,
};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;

/// Most combinations of resource, scope and verb with their own series.
const SERIES_MAX: usize = 16_384;

/// The values of the label `dry_run`.
const DRY_RUNS: [&str; 3] = ["", "All", "invalid"];
/// The values of the label `request_kind`.
const REQUEST_KINDS: [&str; 2] = ["mutating", "readOnly"];

/// Request metrics of all resources.
#[derive(Debug)]
pub(crate) struct Requests {
    series: SeriesMap<RequestMetrics>,
    /// Requests in flight, by `REQUEST_KINDS`.
    in_flight: [Gauge; 2],
}

/// Requests of one verb for one resource.
#[derive(Debug, Default)]
struct RequestMetrics {
    /// Durations, by `DRY_RUNS`.
    seconds: [OnceLock<Histogram>; 3],
    /// Durations without webhooks.
    sli_seconds: OnceLock<Histogram>,
    /// Response sizes.
    sizes: OnceLock<Histogram>,
    /// Few, so a linear search is enough.
    results: RwLock<Vec<(ResultLabels, Counter)>>,
    /// Long-running requests in progress.
    running: Gauge,
}

/// The labels of `apiserver_request_total` that differ between requests of one verb for one
/// resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ResultLabels {
    code: u16,
    /// Index into `DRY_RUNS`.
    dry_run: usize,
}

/// The labels of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLabels<'a> {
    /// `apiserver`; empty for non-resource paths.
    pub component: &'static str,
    pub group: &'a str,
    pub resource: &'a str,
    /// `resource`, `namespace` or `cluster`.
    pub scope: &'static str,
    pub subresource: &'a str,
    pub verb: &'static str,
    pub version: &'a str,
}

/// Observes a request, and records it in the metrics when it is dropped.
#[derive(Debug)]
pub(crate) struct RequestObserver {
    metrics: Arc<super::Metrics>,
    series: Arc<Series<RequestMetrics>>,
    verb: &'static str,
    started: Instant,
    /// How long it waited for admission webhooks.
    webhooks_took: Duration,
    result: ResultLabels,
    /// Bytes sent so far.
    bytes: u64,
}

impl RequestObserver {
    /// Starts to observe a request. Returns `None` if there are too many series.
    pub fn begin(
        metrics: &Arc<super::Metrics>,
        labels: &RequestLabels<'_>,
        started: Instant,
        dry_run: &[&str],
    ) -> Option<RequestObserver> {
        let RequestLabels { component, group, resource, scope, subresource, verb, version } =
            *labels;
        let values = [component, group, resource, scope, subresource, verb, version];
        let series = metrics.requests.series.get(&values)?;
        if is_long_running(verb) {
            series.metrics.running.add(1);
        } else {
            metrics.requests.in_flight[request_kind(verb)].add(1);
        }
        let result = ResultLabels { code: 0, dry_run: dry_run_label(dry_run) };
        Some(RequestObserver {
            metrics: metrics.clone(),
            series,
            verb,
            started,
            webhooks_took: Duration::ZERO,
            result,
            bytes: 0,
        })
    }

    /// Records the status of the response.
    pub fn answered(&mut self, code: u16) {
        self.result.code = code;
    }

    /// Records how long admission webhooks took.
    pub fn waited_for_webhooks(&mut self, took: Duration) {
        self.webhooks_took = took;
    }

    /// Counts bytes of the response that were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for RequestObserver {
    fn drop(&mut self) {
        let metrics = &self.series.metrics;
        let took = self.started.elapsed();
        let seconds = &metrics.seconds[self.result.dry_run];
        seconds.get_or_init(|| Histogram::new(&SECONDS)).observe_duration(took);
        if self.verb != "WATCH" {
            let sli = metrics.sli_seconds.get_or_init(|| Histogram::new(&SLI_SECONDS));
            sli.observe_duration(took.saturating_sub(self.webhooks_took));
        }
        if matches!(self.verb, "GET" | "LIST" | "WATCH") {
            metrics.sizes.get_or_init(|| Histogram::new(&BYTES)).observe(self.bytes);
        }
        if is_long_running(self.verb) {
            metrics.running.add(-1);
        } else {
            self.metrics.requests.in_flight[request_kind(self.verb)].add(-1);
        }
        metrics.count(self.result);
    }
}

impl RequestMetrics {
    fn count(&self, result: ResultLabels) {
        let known = self.results.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = known.iter().find(|(known, _)| *known == result) {
            return count.increment();
        }
        drop(known);
        let mut known = self.results.write().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(known, _)| *known == result).unwrap_or_else(|| {
            known.push((result, Counter::default()));
            known.len() - 1
        });
        known[at].1.increment();
    }
}

impl Requests {
    pub fn new() -> Requests {
        Requests { series: SeriesMap::new(SERIES_MAX), in_flight: Default::default() }
    }

    pub fn write(&self, out: &mut Exposition) {
        let all = self.series.all();
        let mut text = out.family(&IN_FLIGHT);
        for (kind, running) in REQUEST_KINDS.iter().zip(&self.in_flight) {
            text.value(&[kind], running.get() as f64);
        }
        drop(text);
        write_totals(&all, &mut out.family(&TOTAL));
        let mut text = out.family(&DURATION);
        for series in &all {
            for (dry_run, seconds) in DRY_RUNS.iter().zip(&series.metrics.seconds) {
                if let Some(seconds) = seconds.get() {
                    let mut values = series.values();
                    values.insert(1, dry_run);
                    text.histogram(&values, seconds);
                }
            }
        }
        drop(text);
        type Which = fn(&RequestMetrics) -> Option<&Histogram>;
        let sli: Which = |metrics| metrics.sli_seconds.get();
        let sizes: Which = |metrics| metrics.sizes.get();
        let families = [(&SLI_DURATION, sli), (&SLO_DURATION, sli), (&SIZES, sizes)];
        for (described, which) in families {
            let mut text = match described.name == SLO_DURATION.name {
                true => out.hidden_family(described),
                false => out.family(described),
            };
            for series in &all {
                if let Some(histogram) = which(&series.metrics) {
                    text.histogram(&series.values(), histogram);
                }
            }
        }
        let mut text = out.family(&LONG_RUNNING);
        for series in &all {
            let values = series.values();
            if is_long_running(values[5]) {
                text.value(&values, series.metrics.running.get() as f64);
            }
        }
    }
}

fn write_totals(all: &[Arc<Series<RequestMetrics>>], text: &mut FamilyText<'_, '_>) {
    for series in all {
        let results = series.metrics.results.read().unwrap_or_else(PoisonError::into_inner);
        let mut counts: Vec<_> =
            results.iter().map(|(result, count)| (*result, count.get())).collect();
        drop(results);
        counts.sort_unstable();
        for (result, count) in counts {
            let code = result.code.to_string();
            let values = series.values();
            let [component, group, resource, scope, subresource, verb, version] = values[..] else {
                continue;
            };
            let dry_run = DRY_RUNS[result.dry_run];
            let labels =
                [&code, component, dry_run, group, resource, scope, subresource, verb, version];
            text.value(&labels, count as f64);
        }
    }
}

fn is_long_running(verb: &str) -> bool {
    matches!(verb, "WATCH" | "CONNECT")
}

/// Index into `REQUEST_KINDS`.
fn request_kind(verb: &str) -> usize {
    usize::from(matches!(verb, "GET" | "LIST"))
}

/// Index into `DRY_RUNS`.
fn dry_run_label(given: &[&str]) -> usize {
    match given {
        [] => 0,
        given if given.iter().all(|value| *value == "All") => 1,
        _ => 2,
    }
}

static SECONDS: Bounds = Bounds {
    unit: Unit::Seconds,
    upper: &[
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
        10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
    ],
};

static SLI_SECONDS: Bounds = Bounds {
    unit: Unit::Seconds,
    upper: &[
        0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
        20.0, 30.0, 45.0, 60.0,
    ],
};

static BYTES: Bounds =
    Bounds { unit: Unit::Amount, upper: &[1000.0, 10_000.0, 100_000.0, 1e6, 1e7, 1e8, 1e9] };

static TOTAL: Description = Description {
    name: "apiserver_request_total",
    help: "[STABLE] Requests by resource, scope, verb, dry run and the code of the answer.",
    metric_type: MetricType::Counter,
    labels: &[
        "code",
        "component",
        "dry_run",
        "group",
        "resource",
        "scope",
        "subresource",
        "verb",
        "version",
    ],
};

static DURATION: Description = Description {
    name: "apiserver_request_duration_seconds",
    help: "[STABLE] Seconds from the first to the last byte of requests, by resource, scope, verb and dry run.",
    metric_type: MetricType::Histogram,
    labels: &[
        "component",
        "dry_run",
        "group",
        "resource",
        "scope",
        "subresource",
        "verb",
        "version",
    ],
};

const LABELS: &[&str] =
    &["component", "group", "resource", "scope", "subresource", "verb", "version"];

static SLI_DURATION: Description = Description {
    name: "apiserver_request_sli_duration_seconds",
    help: "[ALPHA] Seconds of requests that are no watches, without the time of webhooks, by resource, scope and verb.",
    metric_type: MetricType::Histogram,
    labels: LABELS,
};

static SLO_DURATION: Description = Description::histogram(
    "apiserver_request_slo_duration_seconds",
    "[ALPHA] (Deprecated since 1.27.0) The same as apiserver_request_sli_duration_seconds.",
    LABELS,
);

static SIZES: Description = Description {
    name: "apiserver_response_sizes",
    help: "[STABLE] Bytes of the results to reads, by resource, scope and verb.",
    metric_type: MetricType::Histogram,
    labels: LABELS,
};

static LONG_RUNNING: Description = Description {
    name: "apiserver_longrunning_requests",
    help: "[STABLE] Watches and connections that are being answered, by resource, scope and verb.",
    metric_type: MetricType::Gauge,
    labels: LABELS,
};

static IN_FLIGHT: Description = Description {
    name: "apiserver_current_inflight_requests",
    help: "[STABLE] Requests that are being answered, long-running ones left out, by kind.",
    metric_type: MetricType::Gauge,
    labels: &["request_kind"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sli_duration_excludes_webhooks() {
        let metrics = Arc::new(super::super::Metrics::new());
        let labels = RequestLabels {
            component: "apiserver",
            group: "",
            resource: "pods",
            scope: "resource",
            subresource: "",
            verb: "POST",
            version: "v1",
        };
        let started = Instant::now() - Duration::from_secs(50);
        let mut observer = RequestObserver::begin(&metrics, &labels, started, &[])
            .expect("below the maximum of series");
        observer.waited_for_webhooks(Duration::from_secs(50 - 10));
        observer.answered(201);
        drop(observer);
        let mut out = Exposition::default();
        metrics.requests.write(&mut out);
        let text = out.finish();
        let has = |line: &str| assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        let labels = "group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\"";
        for (name, dry_run, bound, count) in [
            ("duration", "dry_run=\"\",", 45, 0),
            ("duration", "dry_run=\"\",", 60, 1),
            ("sli_duration", "", 8, 0),
            ("sli_duration", "", 15, 1),
        ] {
            has(&format!(
                "apiserver_request_{name}_seconds_bucket{{component=\"apiserver\",{dry_run}{labels},\
                 verb=\"POST\",version=\"v1\",le=\"{bound}\"}} {count}"
            ));
        }
        has(&format!(
            "apiserver_request_total{{code=\"201\",component=\"apiserver\",dry_run=\"\",{labels},\
             verb=\"POST\",version=\"v1\"}} 1"
        ));
        has("apiserver_current_inflight_requests{request_kind=\"mutating\"} 0");
    }
}
