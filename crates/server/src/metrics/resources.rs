//! Facts about requests by resource, besides their counts and durations: sizes of bodies,
//! deprecated versions, requests that the server ended early, durations of lists by watch.

use super::RequestLabels;
use crate::request_info::Verb;
use keelson_metrics::{
    Bounds, Counter, Description, Exposition, Gauge, Histogram, Series, SeriesMap,
};
use std::sync::Arc;
use std::time::Duration;

/// Most combinations of labels of each metric.
const SERIES_MAX: usize = 16_384;

/// Facts about the requests for all resources.
#[derive(Debug)]
pub(crate) struct Resources {
    bodies: SeriesMap<BodySizes>,
    deprecated: SeriesMap<Gauge>,
    terminations: SeriesMap<Counter>,
    watch_lists: SeriesMap<WatchListSeconds>,
}

#[derive(Debug)]
struct BodySizes(Histogram);

impl Default for BodySizes {
    fn default() -> BodySizes {
        BodySizes(Histogram::new(&BODY_BYTES))
    }
}

/// Durations of the initial events of watches.
#[derive(Debug)]
pub(crate) struct WatchListSeconds(Histogram);

impl Default for WatchListSeconds {
    fn default() -> WatchListSeconds {
        WatchListSeconds(Histogram::new(&WATCH_LIST_BOUNDS))
    }
}

/// The durations of one resource.
pub(crate) type WatchListSeries = Arc<Series<WatchListSeconds>>;

impl WatchListSeconds {
    /// Counts the time from the start of a watch to the end of its initial events.
    pub fn ended(&self, took: Duration) {
        self.0.observe_duration(took);
    }
}

impl Resources {
    pub fn new() -> Resources {
        Resources {
            bodies: SeriesMap::new(SERIES_MAX),
            deprecated: SeriesMap::new(SERIES_MAX),
            terminations: SeriesMap::new(SERIES_MAX),
            watch_lists: SeriesMap::new(SERIES_MAX),
        }
    }

    /// Counts the body of a request.
    pub fn body(&self, group: &str, resource: &str, verb: Verb, bytes: usize) {
        let verb = match verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "delete_collection",
            Verb::Get | Verb::List | Verb::Watch | Verb::Method(_) => return,
        };
        if let Some(series) = self.bodies.get(&[group, resource, verb]) {
            series.metrics.0.observe(bytes as u64);
        }
    }

    /// Records that somebody asked for a deprecated version, with the warning that he got.
    pub fn deprecated(&self, labels: &RequestLabels<'_>, warning: &str) {
        let values = [
            labels.group,
            release_of_removal(warning),
            labels.resource,
            labels.subresource,
            labels.version,
        ];
        if let Some(series) = self.deprecated.get(&values) {
            series.metrics.set(1);
        }
    }

    /// Counts a request that the server ended early to protect itself: 429, 503, 504.
    pub fn terminated(&self, labels: &RequestLabels<'_>, code: u16) {
        let RequestLabels { component, group, resource, scope, subresource, verb, version } =
            *labels;
        let code = code.to_string();
        let values = [&code, component, group, resource, scope, subresource, verb, version];
        if let Some(series) = self.terminations.get(&values) {
            series.metrics.increment();
        }
    }

    /// Returns the durations of lists by watch of a resource.
    pub fn watch_lists(&self, labels: [&str; 4]) -> Option<WatchListSeries> {
        self.watch_lists.get(&labels)
    }

    pub fn write(&self, out: &mut Exposition) {
        let mut text = out.family(&BODIES);
        for series in self.bodies.all() {
            text.histogram(&series.values(), &series.metrics.0);
        }
        drop(text);
        let mut text = out.family(&DEPRECATED);
        for series in self.deprecated.all() {
            text.value(&series.values(), series.metrics.get() as f64);
        }
        drop(text);
        let mut text = out.family(&TERMINATIONS);
        for series in self.terminations.all() {
            text.value(&series.values(), series.metrics.get() as f64);
        }
        drop(text);
        let mut text = out.family(&WATCH_LISTS);
        for series in self.watch_lists.all() {
            text.histogram(&series.values(), &series.metrics.0);
        }
    }
}

/// Returns the release that a warning about a deprecated version names as that of its removal, such
/// as `1.38`; empty if it names none.
pub fn release_of_removal(warning: &str) -> &str {
    let rest = warning.split_once("unavailable in v").map_or("", |(_, rest)| rest);
    rest.split_once('+').map_or("", |(release, _)| release)
}

static BODY_BYTES: Bounds = Bounds::amount(&[
    50_000.0,
    150_000.0,
    250_000.0,
    350_000.0,
    450_000.0,
    550_000.0,
    650_000.0,
    750_000.0,
    850_000.0,
    950_000.0,
    1_050_000.0,
    1_150_000.0,
    1_250_000.0,
    1_350_000.0,
    1_450_000.0,
    1_550_000.0,
    1_650_000.0,
    1_750_000.0,
    1_850_000.0,
    1_950_000.0,
    2_050_000.0,
    2_150_000.0,
    2_250_000.0,
    2_350_000.0,
    2_450_000.0,
    2_550_000.0,
    2_650_000.0,
    2_750_000.0,
    2_850_000.0,
    2_950_000.0,
    3_050_000.0,
]);

static WATCH_LIST_BOUNDS: Bounds = Bounds::seconds(&[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
]);

static BODIES: Description = Description::histogram(
    "apiserver_request_body_size_bytes",
    "[ALPHA] Bytes of the bodies of requests, by resource and verb.",
    &["group", "resource", "verb"],
);

static DEPRECATED: Description = Description::gauge(
    "apiserver_requested_deprecated_apis",
    "[STABLE] Deprecated versions of resources that were asked for, with the release that removes them.",
    &["group", "removed_release", "resource", "subresource", "version"],
);

static TERMINATIONS: Description = Description::counter(
    "apiserver_request_terminations_total",
    "[ALPHA] Requests that were ended early to protect the server, by the code of the answer.",
    &["code", "component", "group", "resource", "scope", "subresource", "verb", "version"],
);

static WATCH_LISTS: Description = Description::histogram(
    "apiserver_watch_list_duration_seconds",
    "[BETA] Seconds until the initial events of a watch were sent, by resource.",
    &["group", "resource", "scope", "version"],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_a_removal_is_read_from_the_warning() {
        let warning = "batch/v1beta1 CronJob is deprecated in v1.21+, unavailable in v1.25+; use x";
        assert_eq!(release_of_removal(warning), "1.25");
        assert_eq!(release_of_removal("v1 ComponentStatus is deprecated in v1.19+"), "");
    }
}
