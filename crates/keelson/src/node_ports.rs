//! The loop that frees ports of nodes which no service has, since a write of one was cut off. Every server
//! runs it, as every kube-apiserver does: it changes the ports only where they stand as it has seen them.

use keelson_registry::{PortLeaks, Registry};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks; a port that nobody has is freed after four of them.
const INTERVAL: Duration = Duration::from_secs(180);

/// Runs until it is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    let mut leaks = PortLeaks::default();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(error) = registry.free_leaked_ports(&mut leaks).await {
            tracing::warn!(%error, "ports of nodes");
        }
    }
}
