//! Lets events expire: in a store that keeps time by ours, which etcd does not.

use keelson_registry::Registry;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the deletion of expired keys.
const LOOK: Duration = Duration::from_secs(1);

/// Runs until it is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(LOOK).await;
        match registry.store.expire(registry.store_time()).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "deleted expired events"),
            Err(error) => {
                let source = error.source();
                tracing::warn!(%error, source, "expired events are not deleted; trying again");
            }
        }
    }
}
