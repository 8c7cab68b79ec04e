//! The control loop of CustomResourceDefinitions: accepts their names and serves their resources.
//! Deleted definitions are finalized concurrently, because that may take long. Both run in every
//! server, whatever `--controllers` says.

use super::watch::{AFTER_FAILURE, next_events, own_permit, watch};
use super::{Definitions, finalizer};
use keelson_meta::{Failure, Str};
use keelson_registry::{EventKind, Registry, WatchEvent};
use std::sync::Arc;
use std::time::Duration;

/// Retry interval of a watch that ended, and of definitions after a name was released.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Runs until it is aborted.
pub async fn run(registry: Arc<Registry>) {
    if registry.kind("apiextensions.k8s.io", "customresourcedefinitions").is_none() {
        std::future::pending::<()>().await;
    }
    loop {
        let result = tokio::select! {
            result = sync_all(&registry) => result,
            result = finalizer::run(&registry) => result,
        };
        if let Err(error) = result {
            tracing::warn!(%error, "definition controller failed; restarting watch");
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Syncs definitions until the watch ends.
async fn sync_all(registry: &Registry) -> Result<(), Failure> {
    let permit = own_permit();
    let mut session = watch(registry).await?;
    let definitions = Definitions::stored(registry);
    let mut events: Vec<WatchEvent> = vec![];
    let mut retries: Vec<Str> = vec![];
    let mut pause = RETRY_INTERVAL;
    loop {
        if retries.is_empty() {
            if !next_events(&mut session, &mut events).await {
                return Ok(());
            }
        } else if let Ok(false) =
            tokio::time::timeout(pause, next_events(&mut session, &mut events)).await
        {
            return Ok(());
        }
        let mut queue = std::mem::take(&mut retries);
        let stored = events.iter().filter(|event| event.kind != EventKind::Deleted);
        stored.for_each(|event| definitions.add(event.entry.name()));
        for event in events.drain(..) {
            let name = event.entry.name();
            match event.kind {
                EventKind::Deleted => queue.extend(definitions.remove(registry, name)),
                _ => queue.push(name.into()),
            }
        }
        pause = RETRY_INTERVAL;
        for name in queue {
            match definitions.sync(registry, &permit, &name).await {
                Ok(others) => retries.extend(others),
                Err(error) if error.code == 404 => {}
                Err(error) => {
                    tracing::warn!(%error, %name, "definition not synced; trying again");
                    retries.push(name);
                    pause = AFTER_FAILURE;
                }
            }
        }
    }
}
