//! The loop that follows CustomResourceDefinitions: it accepts their names, has their resources served, and
//! empties those that are deleted. It is part of every server, whatever `--controllers` says.

use super::Definitions;
use keelson_auth::Permit;
use keelson_meta::Failure;
use keelson_registry::options::WatchOptions;
use keelson_registry::{Entry, EventKind, Registry, WatchEvent, WatchRefusal};
use std::sync::Arc;
use std::time::Duration;

/// Retry interval of a terminating definition whose objects are not all deleted.
const AGAIN: Duration = Duration::from_millis(200);

/// Retry interval after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Runs until it is aborted.
pub async fn run(registry: Arc<Registry>) {
    loop {
        if let Err(error) = follow(&registry).await {
            tracing::warn!(%error, "definition controller failed; watching anew");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow(registry: &Arc<Registry>) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    let definitions = Definitions::default();
    if registry.kind("apiextensions.k8s.io", "customresourcedefinitions").is_none() {
        std::future::pending::<()>().await;
    }
    let all = registry.target("apiextensions.k8s.io", "customresourcedefinitions", "", "");
    let session = registry.watch(&permit, &all, &WatchOptions::default()).await;
    let mut session = session.map_err(WatchRefusal::into_failure)?;
    let (mut events, mut left): (Vec<WatchEvent>, Vec<Entry>) = (vec![], vec![]);
    loop {
        if session.take(&mut events).is_err() {
            return Ok(());
        }
        let mut waiting = std::mem::take(&mut left);
        for event in events.drain(..) {
            match event.kind {
                EventKind::Deleted => waiting.extend(definitions.forget(registry, &event.entry)),
                _ => waiting.push(event.entry),
            }
        }
        let mut pause = AGAIN;
        for entry in waiting {
            match definitions.follow(registry, &permit, &entry).await {
                Ok(again) => left.extend(again),
                Err(error) if error.code == 404 => {}
                Err(error) => {
                    tracing::warn!(%error, name = entry.name(), "definition not followed; trying again");
                    left.push(entry);
                    pause = AFTER_FAILURE;
                }
            }
        }
        if left.is_empty() {
            if session.changed().await.is_err() {
                return Ok(());
            }
        } else {
            let _ = tokio::time::timeout(pause, session.changed()).await;
        }
    }
}
