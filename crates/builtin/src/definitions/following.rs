//! The loop that follows CustomResourceDefinitions: it accepts their names and has their resources served. Beside
//! it those that are deleted are emptied, which may take long and holds no other definition up. Both are part of
//! every server, whatever `--controllers` says.

use super::changes::{AFTER_FAILURE, own_permit, wait, watch};
use super::{Definitions, emptying};
use keelson_meta::{Failure, Str};
use keelson_registry::{EventKind, Registry, WatchEvent};
use std::sync::Arc;
use std::time::Duration;

/// Retry interval of a watch that ended, and of definitions that want a name that was given up.
const AGAIN: Duration = Duration::from_millis(200);

/// Runs until it is aborted.
pub async fn run(registry: Arc<Registry>) {
    if registry.kind("apiextensions.k8s.io", "customresourcedefinitions").is_none() {
        std::future::pending::<()>().await;
    }
    loop {
        let ended = tokio::select! {
            ended = follow(&registry) => ended,
            ended = emptying::run(&registry) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "definition controller failed; watching anew");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow(registry: &Registry) -> Result<(), Failure> {
    let permit = own_permit();
    let mut session = watch(registry).await?;
    let definitions = Definitions::stored(registry);
    let (mut events, mut left): (Vec<WatchEvent>, Vec<Str>) = (vec![], vec![]);
    let mut pause = AGAIN;
    loop {
        if left.is_empty() {
            if !wait(&mut session, &mut events).await {
                return Ok(());
            }
        } else if let Ok(false) = tokio::time::timeout(pause, wait(&mut session, &mut events)).await
        {
            return Ok(());
        }
        let mut waiting = std::mem::take(&mut left);
        let made = events.iter().filter(|event| event.kind != EventKind::Deleted);
        made.for_each(|event| definitions.know(event.entry.name()));
        for event in events.drain(..) {
            let name = event.entry.name();
            match event.kind {
                EventKind::Deleted => waiting.extend(definitions.forget(registry, name)),
                _ => waiting.push(name.into()),
            }
        }
        pause = AGAIN;
        for name in waiting {
            match definitions.follow(registry, &permit, &name).await {
                Ok(again) => left.extend(again),
                Err(error) if error.code == 404 => {}
                Err(error) => {
                    tracing::warn!(%error, %name, "definition not followed; trying again");
                    left.push(name);
                    pause = AFTER_FAILURE;
                }
            }
        }
    }
}
