//! Deletes expired events, unless the store is etcd, which expires its leases itself.

use keelson_registry::Registry;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the deletion of expired keys.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the task is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        match registry.store.expire(registry.store_time()).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "deleted expired events"),
            Err(error) => {
                let source = error.source();
                tracing::warn!(%error, source, "expired events not deleted; trying again");
            }
        }
    }
}
