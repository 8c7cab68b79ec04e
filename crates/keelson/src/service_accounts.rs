//! The control loop that gives every namespace its service account `default`, as which pods run that
//! name none.

use keelson_auth::Permit;
use keelson_meta::{Failure, value};
use keelson_registry::options::WatchOptions;
use keelson_registry::{EventKind, Registry, WatchEvent, WatchRefusal, WatchSession};
use std::sync::Arc;
use std::time::Duration;

/// How long until it is tried again after a failure.
const AGAIN: Duration = Duration::from_millis(500);
const NAME: &str = "default";

/// Runs until it is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        if let Err(error) = follow(&registry).await {
            tracing::warn!(%error, "service account controller");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Watches namespaces, and accounts for those that are deleted.
async fn follow(registry: &Arc<Registry>) -> Result<(), Failure> {
    let permit = Permit::internal("system:serviceaccount:kube-system:service-account-controller");
    let mut namespaces = watch(registry, &permit, "namespaces").await?;
    let mut accounts = watch(registry, &permit, "serviceaccounts").await?;
    let mut events: Vec<WatchEvent> = vec![];
    loop {
        events.clear();
        if namespaces.take(&mut events).is_err() {
            return Ok(());
        }
        for event in &events {
            if event.entry.field("status.phase") != Some("Terminating") {
                ensure(registry, &permit, event.entry.name()).await?;
            }
        }
        events.clear();
        if accounts.take(&mut events).is_err() {
            return Ok(());
        }
        for event in &events {
            if event.kind == EventKind::Deleted && event.entry.name() == NAME {
                ensure(registry, &permit, event.entry.namespace()).await?;
            }
        }
        let changed = tokio::select! {
            changed = namespaces.changed() => changed,
            changed = accounts.changed() => changed,
        };
        if changed.is_err() {
            return Ok(());
        }
    }
}

async fn watch(
    registry: &Arc<Registry>,
    permit: &Permit,
    resource: &str,
) -> Result<WatchSession, Failure> {
    let all = registry.target("", resource, "", "");
    let session = registry.watch(permit, &all, &WatchOptions::default()).await;
    session.map_err(WatchRefusal::into_failure)
}

async fn ensure(registry: &Registry, permit: &Permit, namespace: &str) -> Result<(), Failure> {
    let target = registry.target("", "serviceaccounts", namespace, NAME);
    let account = value!({"metadata": {"name": NAME, "namespace": namespace}});
    match registry.make_missing(permit, &target, account, "kube-controller-manager").await {
        // The namespace went away meanwhile, or is going.
        Err(status) if matches!(status.code, 403 | 404) => Ok(()),
        made => made,
    }
}
