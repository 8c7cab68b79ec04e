//! What the cache holds of each resource and has counted, read when it is scraped.

use keelson_cache::{HISTORY_EVENTS_MAX, ResourceCounts};
use keelson_metrics::{Description, Exposition};
use keelson_registry::Registry;
use keelson_store::Revision;

/// One resource.
struct Row<'a> {
    group: &'a str,
    resource: &'a str,
    counts: ResourceCounts,
    revision: Revision,
}

pub(super) fn write(registry: &Registry, out: &mut Exposition) {
    let api = registry.api();
    let mut rows: Vec<Row<'_>> = api
        .kinds()
        // Events are in two groups, and are stored once.
        .filter(|kind| kind.gvr.group != "events.k8s.io")
        .map(|kind| {
            let stored = registry.cache.resource(&kind.prefix);
            let counts = stored.as_ref().map(|stored| stored.counts()).unwrap_or_default();
            let revision = stored.map(|stored| registry.cache.revision_of(&stored));
            let revision = revision.unwrap_or_else(|| registry.cache.revision());
            Row { group: &kind.gvr.group, resource: &kind.gvr.resource, counts, revision }
        })
        .collect();
    rows.sort_by_key(|row| (row.group, row.resource));
    write_objects(&rows, out);
    type Read = fn(&ResourceCounts) -> f64;
    let always: [(&'static Description, Read); 3] = [
        (&SIZES, |counts| counts.bytes as f64),
        (&LOADS, |counts| counts.loads as f64),
        (&CAPACITY, |_| HISTORY_EVENTS_MAX as f64),
    ];
    for (description, read) in always {
        let mut text = out.family(description);
        for row in &rows {
            text.value(&[row.group, row.resource], read(&row.counts));
        }
    }
    let mut text = out.family(&REVISION);
    for row in &rows {
        text.value(&[row.group, row.resource], row.revision.0 as f64);
    }
    drop(text);
    // As in kube-apiserver, there are series once there was an event.
    let counted: [(&'static Description, Read); 4] = [
        (&STORE_EVENTS, |counts| counts.events as f64),
        (&RECEIVED, |counts| counts.events as f64),
        (&DISPATCHED, |counts| counts.events as f64),
        (&INITIAL, |counts| counts.initial_events as f64),
    ];
    for (description, read) in counted {
        let mut text = out.family(description);
        for row in rows.iter().filter(|row| read(&row.counts) > 0.0) {
            text.value(&[row.group, row.resource], read(&row.counts));
        }
    }
}

/// Writes the number of objects by resource: with group and resource, and by the full name of the
/// resource.
fn write_objects(rows: &[Row<'_>], out: &mut Exposition) {
    let mut text = out.family(&RESOURCE_OBJECTS);
    for row in rows {
        text.value(&[row.group, row.resource], row.counts.objects as f64);
    }
    drop(text);
    let name = |row: &Row<'_>| match row.group {
        "" => row.resource.to_owned(),
        group => format!("{}.{group}", row.resource),
    };
    let mut named: Vec<_> = rows.iter().map(|row| (name(row), row.counts.objects)).collect();
    named.sort();
    let mut text = out.family(&STORAGE_OBJECTS);
    for (name, objects) in named {
        text.value(&[&name], objects as f64);
    }
}

const LABELS: &[&str] = &["group", "resource"];

static RESOURCE_OBJECTS: Description =
    Description::gauge("apiserver_resource_objects", "[ALPHA] Stored objects by resource.", LABELS);

static STORAGE_OBJECTS: Description = Description::gauge(
    "apiserver_storage_objects",
    "[STABLE] (Deprecated since 1.34.0) Stored objects by resource; apiserver_resource_objects says the same.",
    &["resource"],
);

static SIZES: Description = Description::gauge(
    "apiserver_resource_size_estimate_bytes",
    "[ALPHA] Bytes of the stored objects by resource.",
    LABELS,
);

static LOADS: Description = Description::counter(
    "apiserver_watch_cache_initializations_total",
    "[ALPHA] How often the objects of a resource were loaded into the cache.",
    LABELS,
);

static CAPACITY: Description = Description::gauge(
    "watch_cache_capacity",
    "[ALPHA] Most changes of a resource that the cache keeps.",
    LABELS,
);

static REVISION: Description = Description::gauge(
    "apiserver_watch_cache_resource_version",
    "[ALPHA] The revision up to which the cache has the changes of a resource.",
    LABELS,
);

static STORE_EVENTS: Description = Description::counter(
    "apiserver_storage_events_received_total",
    "[BETA] Events of the store by resource.",
    LABELS,
);

static RECEIVED: Description = Description::counter(
    "apiserver_watch_cache_events_received_total",
    "[ALPHA] Events that the cache received, by resource.",
    LABELS,
);

static DISPATCHED: Description = Description::counter(
    "apiserver_watch_cache_events_dispatched_total",
    "[ALPHA] Events that the cache passed on to watches, by resource.",
    LABELS,
);

static INITIAL: Description = Description::counter(
    "apiserver_init_events_total",
    "[ALPHA] Objects that watches began with, by resource.",
    LABELS,
);
