//! Repairs the allocations of services: addresses and node ports that no service has are freed, those
//! that a service has and that count as free are taken. Every server runs this loop, as every
//! kube-apiserver does.

use keelson_builtin::{PortLeaks, Services};
use keelson_registry::Registry;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks. A port that no service has is freed at the fourth look, an address once it is
/// older than a minute.
const INTERVAL: Duration = Duration::from_secs(180);

/// Runs until it is aborted. The first look is right away: what the process before left half-way.
pub(crate) async fn run(registry: Arc<Registry>, services: Arc<Services>) {
    let mut leaks = PortLeaks::default();
    loop {
        if let Err(error) = services.free_leaked_addresses(&registry).await {
            tracing::warn!(%error, "service addresses not repaired; trying again in three minutes");
        }
        tokio::time::sleep(INTERVAL).await;
        if let Err(error) = services.repair(&registry).await {
            tracing::warn!(%error, "service addresses not repaired; trying again in three minutes");
        }
        if let Err(error) = services.free_leaked_ports(&registry, &mut leaks).await {
            tracing::warn!(%error, "node ports not repaired; trying again in three minutes");
        }
    }
}
