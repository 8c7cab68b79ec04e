//! How much work a request is: the bytes of a list, which are counted before it is encoded, and the
//! watchers of a change.

use super::FlowOfLevel;
use crate::query::Query;
use crate::request_info::{RequestInfo, Verb};
use crate::route::Route;
use keelson_auth::Attributes;
use keelson_fairness::{Work, list_work, mutation_work};
use keelson_registry::Registry;

/// Bytes from which a list costs no more.
const COUNTED_BYTES_MAX: u64 = 1_000_000;

/// Estimates the work of a request. Costs at most a walk over objects of a megabyte, of a list.
pub(crate) fn estimate(
    registry: &Registry,
    flow: &FlowOfLevel,
    info: &RequestInfo,
    attributes: &Attributes,
    query: &Query,
) -> Work {
    let Route::Resource(route) = &info.route else { return Work::ONE };
    let reads_all = match info.verb {
        Verb::List => attributes.name.is_empty(),
        Verb::Watch => query.flag("sendInitialEvents") == Some(true),
        _ => false,
    };
    if !reads_all && !info.is_mutating {
        return Work::ONE;
    }
    let Some(kind) = registry.kind(&route.group, &route.resource) else { return Work::ONE };
    let Some(stored) = registry.cache.resource(&kind.prefix) else { return Work::ONE };
    if info.is_mutating {
        let watchers = stored.cursors() as u64;
        flow.metrics.watchers.observe(watchers);
        return mutation_work(watchers, flow.request_seats_max);
    }
    if flow.request_seats_max == 1 || stored.is_empty() {
        return Work::ONE;
    }
    let limit = query
        .number("limit")
        .ok()
        .flatten()
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| *limit > 0)
        .unwrap_or(usize::MAX);
    let prefix = match &route.namespace {
        Some(namespace) => format!("{namespace}/"),
        None => String::new(),
    };
    let mut bytes = 0;
    for entry in registry.cached_all(&kind).range(&prefix, "").take(limit) {
        bytes += entry.json_len() as u64;
        if bytes >= COUNTED_BYTES_MAX {
            break;
        }
    }
    list_work(bytes, flow.request_seats_max)
}
