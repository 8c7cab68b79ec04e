//! Definitions that are deleted: their objects go first, then the definition may.

use super::changes::{AFTER_FAILURE, own_permit, wait, watch};
use super::{own_options, target_of};
use keelson_auth::Permit;
use keelson_kinds::definitions::{CLEANUP_FINALIZER, set_condition};
use keelson_meta::{Failure, Object, Str, Value};
use keelson_registry::options::{DeleteOptions, ListOptions};
use keelson_registry::{NewObject, Registry, Subresource, Target, WatchEvent};
use keelson_schema::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Definitions that are emptied side by side.
const EMPTIED_AT_ONCE_MAX: usize = 8;

/// Retry interval of a definition whose objects are not all deleted: somebody's finalizer holds them.
const HELD: Duration = Duration::from_millis(200);

/// Runs until the watch ends; then nothing is under way any more.
pub(super) async fn run(registry: &Arc<Registry>) -> Result<(), Failure> {
    let mut session = watch(registry).await?;
    let turns = Arc::new(Semaphore::new(EMPTIED_AT_ONCE_MAX));
    // At most one task for each definition.
    let (mut tasks, mut names) = (JoinSet::new(), HashSet::new());
    let mut events: Vec<WatchEvent> = vec![];
    loop {
        tokio::select! {
            is_open = wait(&mut session, &mut events) => {
                if !is_open {
                    return Ok(());
                }
                for event in events.drain(..) {
                    let name = Str::from(event.entry.name());
                    if is_to_be_emptied(registry, &name) && names.insert(name.clone()) {
                        tasks.spawn(empty(registry.clone(), turns.clone(), name));
                    }
                }
            }
            Some(done) = tasks.join_next() => {
                let name = match done {
                    Ok(name) => name,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => return Ok(()),
                };
                // Another one by its name may have been deleted meanwhile.
                if is_to_be_emptied(registry, &name) {
                    tasks.spawn(empty(registry.clone(), turns.clone(), name));
                } else {
                    names.remove(&name);
                }
            }
        }
    }
}

/// Whether a definition is deleted and not emptied yet; then no further objects of it are made.
fn is_to_be_emptied(registry: &Registry, name: &str) -> bool {
    let Some(target) = target_of(registry, name) else { return false };
    let Some(entry) = registry.cached(&target.kind, "", name) else { return false };
    let text = entry.json_slice();
    let member = |name| json::value_range(text, &["metadata", name]).map(|place| &text[place]);
    let is_held = member("finalizers").is_some_and(|finalizers| {
        let parsed = json::parse(finalizers).ok().map(|parsed| parsed.value);
        let names = parsed.as_ref().and_then(Value::as_array).unwrap_or_default();
        names.iter().any(|name| name.as_str() == Some(CLEANUP_FINALIZER))
    });
    if !is_held || member("deletionTimestamp").is_none() {
        return false;
    }
    if let Some((resource, group)) = name.split_once('.')
        && let Some(kind) = registry.kind(group, resource)
    {
        kind.is_terminating.store(true, Ordering::Relaxed);
    }
    true
}

/// Empties a definition, in its turn and until it may go; gives its name back.
async fn empty(registry: Arc<Registry>, turns: Arc<Semaphore>, name: Str) -> Str {
    let permit = own_permit();
    loop {
        let turn = turns.acquire().await;
        let pause = match empty_now(&registry, &permit, &name).await {
            Ok(true) => HELD,
            Ok(false) => return name,
            Err(error) if error.code == 404 => return name,
            Err(error) => {
                tracing::warn!(%error, %name, "definition not emptied; trying again");
                AFTER_FAILURE
            }
        };
        drop(turn);
        tokio::time::sleep(pause).await;
    }
}

/// Deletes the objects of a definition, and then its finalizer. True: there are objects left.
async fn empty_now(registry: &Registry, permit: &Permit, name: &str) -> Result<bool, Failure> {
    if !is_to_be_emptied(registry, name) {
        return Ok(false);
    }
    let Some(target) = target_of(registry, name) else { return Ok(false) };
    let Some((resource, group)) = name.split_once('.') else { return Ok(false) };
    if let Some(kind) = registry.kind(group, resource) {
        let all = Target::of(&kind, "", "");
        let (every, options) = (ListOptions::default(), DeleteOptions::default());
        registry.delete_collection(permit, &all, &every, &options, &mut vec![]).await?;
        registry.wait_for_known().await?;
        if !registry.objects(&kind).is_empty() {
            return Ok(true);
        }
    }
    release(registry, permit, &target).await?;
    registry.withdraw(group, resource);
    registry.wait_for_known().await?;
    Ok(false)
}

/// Says of a definition that it is emptied, and takes its finalizer off.
async fn release(registry: &Registry, permit: &Permit, target: &Target) -> Result<(), Failure> {
    let now = registry.clock.now().text();
    let completed = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        let why = "removed all instances";
        let reason = ("InstanceDeletionCompleted", why);
        set_condition(&mut object, ("Terminating", false), reason, &now);
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let options = own_options();
    registry.modify(permit, target, Subresource::Status, &completed, &options).await?;
    let released = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        let finalizers = object.array_at(&["metadata", "finalizers"]).iter();
        let left = finalizers.filter(|name| name.as_str() != Some(CLEANUP_FINALIZER)).cloned();
        let left: Vec<Value> = left.collect();
        object.metadata_mut().insert("finalizers", left);
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    registry.modify(permit, target, Subresource::None, &released, &options).await?;
    Ok(())
}
