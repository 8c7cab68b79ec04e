//! The control loop that empties a namespace that is being deleted and then lets it go.

use keelson_auth::Permit;
use keelson_meta::Failure;
use keelson_registry::options::{DeleteOptions, ListOptions, WatchOptions};
use keelson_registry::{Kind, Registry, Target, WatchEvent, WatchRefusal};
use std::sync::Arc;
use std::time::Duration;

/// How long until a namespace whose content is still going is looked at again.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs until it is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        if let Err(error) = follow(&registry).await {
            tracing::warn!(%error, "namespace controller");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Watches namespaces and empties those that are being deleted.
async fn follow(registry: &Arc<Registry>) -> Result<(), Failure> {
    let permit = Permit::internal("system:serviceaccount:kube-system:namespace-controller");
    let all = registry.target("", "namespaces", "", "");
    let session = registry.watch(&permit, &all, &WatchOptions::default()).await;
    let mut session = session.map_err(WatchRefusal::into_failure)?;
    let mut events: Vec<WatchEvent> = vec![];
    let mut waiting: Vec<String> = vec![];
    loop {
        events.clear();
        if session.take(&mut events).is_err() {
            return Ok(());
        }
        for event in &events {
            let name = event.entry.name();
            if event.entry.field("status.phase") == Some("Terminating")
                && !waiting.iter().any(|known| known == name)
            {
                waiting.push(name.to_owned());
            }
        }
        let mut left = vec![];
        for name in waiting.drain(..) {
            match empty(registry, &permit, &name).await {
                Ok(true) => {}
                Ok(false) => left.push(name),
                // What keeps one from going must not keep the others.
                Err(error) => {
                    tracing::warn!(%error, namespace = name, "a namespace cannot be emptied yet");
                    left.push(name);
                }
            }
        }
        waiting = left;
        if !events.is_empty() {
            continue;
        }
        if waiting.is_empty() {
            if session.changed().await.is_err() {
                return Ok(());
            }
        } else {
            let _ = tokio::time::timeout(AGAIN, session.changed()).await;
        }
    }
}

/// Deletes what is in a namespace; true when the namespace is gone. Pods go before everything that may
/// protect them (CVE-2024-7598).
async fn empty(registry: &Arc<Registry>, permit: &Permit, name: &str) -> Result<bool, Failure> {
    let mut kinds = registry.kinds();
    kinds.retain(|kind| kind.namespaced);
    let is_pods = |kind: &Kind| kind.gvr.group.is_empty() && kind.gvr.resource == "pods";
    kinds.sort_by_key(|kind| (!is_pods(kind), kind.gvr.qualified()));
    let mut remaining = 0;
    for kind in kinds {
        let target = Target::of(&kind, name, "");
        let every = ListOptions::default();
        let options = DeleteOptions::default();
        if registry.list(permit, &target, &every).await?.items.is_empty() {
            continue;
        }
        registry.delete_collection(permit, &target, &every, &options, &mut vec![]).await?;
        remaining += registry.list(permit, &target, &every).await?.items.len();
        if is_pods(&kind) && remaining > 0 {
            return Ok(false);
        }
    }
    if remaining > 0 {
        return Ok(false);
    }
    registry.finalize_namespace(permit, name).await
}
