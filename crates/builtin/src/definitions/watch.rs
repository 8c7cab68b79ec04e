//! The watch of CustomResourceDefinitions, and the permit, of both control loops.

use keelson_auth::Permit;
use keelson_meta::Failure;
use keelson_registry::options::WatchOptions;
use keelson_registry::{Registry, WatchEvent, WatchRefusal, WatchSession};
use std::time::Duration;

/// Retry interval after a failure.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Returns the permit of the server's own requests.
pub(super) fn own_permit() -> Permit {
    Permit::internal("system:apiserver")
}

/// Starts a watch of all definitions.
pub(super) async fn watch(registry: &Registry) -> Result<WatchSession, Failure> {
    let all = registry.target("apiextensions.k8s.io", "customresourcedefinitions", "", "");
    let session = registry.watch(&own_permit(), &all, &WatchOptions::default()).await;
    session.map_err(WatchRefusal::into_failure)
}

/// Waits for events and appends them. Returns false if the watch has ended.
pub(super) async fn next_events(session: &mut WatchSession, events: &mut Vec<WatchEvent>) -> bool {
    loop {
        if session.take(events).is_err() {
            return false;
        }
        if !events.is_empty() {
            return true;
        }
        if session.changed().await.is_err() {
            return false;
        }
    }
}
