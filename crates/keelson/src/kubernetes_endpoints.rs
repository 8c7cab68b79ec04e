//! Keeps the endpoints of the service `kubernetes`: the addresses of all servers that share the store, as each
//! kube-apiserver does.

use keelson_builtin::{
    end_endpoint_lease, endpoint_leases, renew_endpoint_lease, write_kubernetes_endpoints,
};
use keelson_meta::Failure;
use keelson_registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Between two looks; a server that says nothing for one and a half of them no longer counts.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long a server that stops tries to remove its endpoint.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

/// Runs until it is told to stop. Servers that share a store are all endpoints, each until it stops.
pub(crate) async fn run(registry: Arc<Registry>, is_shared: bool, mut stop: watch::Receiver<bool>) {
    loop {
        if let Err(error) = reconcile(&registry, is_shared).await {
            tracing::warn!(%error, "endpoints of the service kubernetes not written; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    if is_shared {
        match timeout(LEAVE_TIME_MAX, leave(&registry)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "still an endpoint until its lease ends"),
            Err(_) => {
                tracing::warn!("still an endpoint until its lease ends: etcd does not answer")
            }
        }
    }
}

async fn reconcile(registry: &Registry, is_shared: bool) -> Result<(), Failure> {
    let addresses = if is_shared {
        renew_endpoint_lease(registry).await?;
        endpoint_leases(registry).await?
    } else {
        vec![registry.options.advertise_address.to_string()]
    };
    write_kubernetes_endpoints(registry, &addresses).await
}

async fn leave(registry: &Registry) -> Result<(), Failure> {
    end_endpoint_lease(registry).await?;
    let others = endpoint_leases(registry).await?;
    write_kubernetes_endpoints(registry, &others).await
}
