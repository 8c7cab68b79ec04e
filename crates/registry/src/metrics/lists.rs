//! Lists by resource: from the cache or from the store, how many objects were looked at and
//! returned, and how long reads waited for the cache.

use super::RESOURCES_MAX;
use keelson_meta::GroupVersionResource;
use keelson_metrics::{Bounds, Counter, Description, Exposition, Histogram, SeriesMap};
use std::time::Duration;

/// Lists of all resources.
#[derive(Debug)]
pub struct ListMetrics {
    /// By group, index and resource.
    cached: SeriesMap<Cached>,
    /// By group and resource.
    stored: SeriesMap<Stored>,
    consistent: SeriesMap<Consistent>,
    waits: SeriesMap<Wait>,
}

/// Lists from the cache.
#[derive(Debug, Default)]
struct Cached {
    lists: Counter,
    fetched: Counter,
    returned: Counter,
}

/// Lists from the store.
#[derive(Debug, Default)]
struct Stored {
    lists: Counter,
    fetched: Counter,
    evaluated: Counter,
    returned: Counter,
}

/// Reads of the latest state from the cache.
#[derive(Debug, Default)]
struct Consistent {
    done: Counter,
    failed: Counter,
}

/// Waits until the cache was new enough.
#[derive(Debug)]
struct Wait(Histogram);

impl Default for Wait {
    fn default() -> Wait {
        Wait(Histogram::new(&WAIT_SECONDS))
    }
}

impl Default for ListMetrics {
    fn default() -> ListMetrics {
        ListMetrics {
            cached: SeriesMap::new(2 * RESOURCES_MAX),
            stored: SeriesMap::new(RESOURCES_MAX),
            consistent: SeriesMap::new(RESOURCES_MAX),
            waits: SeriesMap::new(RESOURCES_MAX),
        }
    }
}

/// How many objects a list looked at, and how many of them it returned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// Objects that were looked at.
    pub fetched: usize,
    /// Objects in the response.
    pub returned: usize,
}

impl ListMetrics {
    /// Counts a list from the cache; `index` names the index that was used, such as
    /// `f:spec.nodeName`, or is empty.
    pub fn cached(&self, resource: &GroupVersionResource, index: &str, scan: Scan) {
        if let Some(series) = self.cached.get(&[&resource.group, index, &resource.resource]) {
            series.metrics.lists.increment();
            series.metrics.fetched.add(scan.fetched as u64);
            series.metrics.returned.add(scan.returned as u64);
        }
    }

    /// Counts a list from the store.
    pub fn stored(&self, resource: &GroupVersionResource, scan: Scan) {
        if let Some(series) = self.stored.get(&[&resource.group, &resource.resource]) {
            series.metrics.lists.increment();
            series.metrics.fetched.add(scan.fetched as u64);
            series.metrics.evaluated.add(scan.fetched as u64);
            series.metrics.returned.add(scan.returned as u64);
        }
    }

    /// Counts the wait of a read for the cache; `is_latest`: until it had the latest state.
    pub fn waited(
        &self,
        resource: &GroupVersionResource,
        took: Duration,
        is_latest: bool,
        is_done: bool,
    ) {
        let labels = [resource.group.as_str(), resource.resource.as_str()];
        if let Some(series) = self.waits.get(&labels) {
            series.metrics.0.observe_duration(took);
        }
        if let Some(series) = self.consistent.get(&labels).filter(|_| is_latest) {
            let Consistent { done, failed } = &series.metrics;
            if is_done { done.increment() } else { failed.increment() }
        }
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        self.write_cached(out);
        self.write_stored(out);
        let mut consistent = out.family(&CONSISTENT);
        for series in self.consistent.all() {
            let [group, resource] = series.values()[..] else { continue };
            let Consistent { done, failed } = &series.metrics;
            for (success, count) in [("false", failed), ("true", done)] {
                if count.get() > 0 {
                    consistent.value(&["false", group, resource, success], count.get() as f64);
                }
            }
        }
        drop(consistent);
        let mut waits = out.family(&READ_WAIT);
        for series in self.waits.all() {
            waits.histogram(&series.values(), &series.metrics.0);
        }
    }

    fn write_cached(&self, out: &mut Exposition) {
        let all = self.cached.all();
        type Read = fn(&Cached) -> &Counter;
        let by_index: [(&'static Description, Read); 2] =
            [(&CACHE_LISTS, |one| &one.lists), (&CACHE_FETCHED, |one| &one.fetched)];
        for (description, read) in by_index {
            let mut text = out.family(description);
            for series in &all {
                text.value(&series.values(), read(&series.metrics).get() as f64);
            }
        }
        let mut returned = std::collections::BTreeMap::new();
        for series in &all {
            let [group, _, resource] = series.values()[..] else { continue };
            *returned.entry((group, resource)).or_default() += series.metrics.returned.get();
        }
        let mut text = out.family(&CACHE_RETURNED);
        for ((group, resource), count) in returned {
            let count: u64 = count;
            text.value(&[group, resource], count as f64);
        }
    }

    fn write_stored(&self, out: &mut Exposition) {
        let all = self.stored.all();
        type Read = fn(&Stored) -> &Counter;
        let families: [(&'static Description, Read); 4] = [
            (&STORE_LISTS, |one| &one.lists),
            (&STORE_FETCHED, |one| &one.fetched),
            (&STORE_EVALUATED, |one| &one.evaluated),
            (&STORE_RETURNED, |one| &one.returned),
        ];
        for (description, read) in families {
            let mut text = out.family(description);
            for series in &all {
                text.value(&series.values(), read(&series.metrics).get() as f64);
            }
        }
    }
}

static WAIT_SECONDS: Bounds =
    Bounds::seconds(&[0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0]);

const BY_INDEX: &[&str] = &["group", "index", "resource"];
const BY_RESOURCE: &[&str] = &["group", "resource"];

static CACHE_LISTS: Description = Description::counter(
    "apiserver_cache_list_total",
    "[ALPHA] Lists from the cache, by resource and the index that was used.",
    BY_INDEX,
);

static CACHE_FETCHED: Description = Description::counter(
    "apiserver_cache_list_fetched_objects_total",
    "[ALPHA] Objects that lists from the cache looked at, by resource and index.",
    BY_INDEX,
);

static CACHE_RETURNED: Description = Description::counter(
    "apiserver_cache_list_returned_objects_total",
    "[ALPHA] Objects that lists from the cache returned, by resource.",
    BY_RESOURCE,
);

static STORE_LISTS: Description = Description::counter(
    "apiserver_storage_list_total",
    "[ALPHA] Lists from the store, by resource.",
    BY_RESOURCE,
);

static STORE_FETCHED: Description = Description::counter(
    "apiserver_storage_list_fetched_objects_total",
    "[ALPHA] Objects that lists from the store read, by resource.",
    BY_RESOURCE,
);

static STORE_EVALUATED: Description = Description::counter(
    "apiserver_storage_list_evaluated_objects_total",
    "[ALPHA] Objects that lists from the store compared with their selectors, by resource.",
    BY_RESOURCE,
);

static STORE_RETURNED: Description = Description::counter(
    "apiserver_storage_list_returned_objects_total",
    "[ALPHA] Objects that lists from the store returned, by resource.",
    BY_RESOURCE,
);

static CONSISTENT: Description = Description::counter(
    "apiserver_watch_cache_consistent_read_total",
    "[ALPHA] Reads of the latest state from the cache, by resource and by their success.",
    &["fallback", "group", "resource", "success"],
);

static READ_WAIT: Description = Description::histogram(
    "apiserver_watch_cache_read_wait_seconds",
    "[ALPHA] Seconds that reads waited until the cache was new enough, by resource.",
    BY_RESOURCE,
);
