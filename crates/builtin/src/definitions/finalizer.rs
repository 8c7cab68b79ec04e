//! Finalizes deleted definitions: deletes their objects, then removes the finalizer (apiextensions
//! `pkg/controller/finalizer`).

use super::watch::{AFTER_FAILURE, next_events, own_permit, watch};
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

/// Maximum definitions that are finalized concurrently.
const CONCURRENT_MAX: usize = 8;

/// Retry interval of a definition with objects that have finalizers.
const OBJECTS_LEFT: Duration = Duration::from_millis(200);

/// Runs until the watch ends. Dropping it aborts all tasks.
pub(super) async fn run(registry: &Arc<Registry>) -> Result<(), Failure> {
    let mut session = watch(registry).await?;
    let slots = Arc::new(Semaphore::new(CONCURRENT_MAX));
    // There is at most one task for each definition.
    let mut tasks = JoinSet::new();
    let mut names = HashSet::new();
    let mut events: Vec<WatchEvent> = vec![];
    loop {
        tokio::select! {
            is_open = next_events(&mut session, &mut events) => {
                if !is_open {
                    return Ok(());
                }
                for event in events.drain(..) {
                    let name = Str::from(event.entry.name());
                    if needs_finalizing(registry, &name) && names.insert(name.clone()) {
                        tasks.spawn(finalize(registry.clone(), slots.clone(), name));
                    }
                }
            }
            Some(done) = tasks.join_next() => {
                let name = match done {
                    Ok(name) => name,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => return Ok(()),
                };
                // A new definition with this name may have been deleted in the meantime.
                if needs_finalizing(registry, &name) {
                    tasks.spawn(finalize(registry.clone(), slots.clone(), name));
                } else {
                    names.remove(&name);
                }
            }
        }
    }
}

/// Returns whether a definition is being deleted and has the cleanup finalizer. If so, marks its
/// kind as terminating, so that no objects can be created.
fn needs_finalizing(registry: &Registry, name: &str) -> bool {
    let Some(target) = target_of(registry, name) else { return false };
    let Some(entry) = registry.cached(&target.kind, "", name) else { return false };
    let text = &*entry.json_slice();
    let member = |name| json::value_range(text, &["metadata", name]).map(|range| &text[range]);
    let has_finalizer = member("finalizers").is_some_and(|finalizers| {
        let parsed = json::parse(finalizers).ok().map(|parsed| parsed.value);
        let names = parsed.as_ref().and_then(Value::as_array).unwrap_or_default();
        names.iter().any(|name| name.as_str() == Some(CLEANUP_FINALIZER))
    });
    if !has_finalizer || member("deletionTimestamp").is_none() {
        return false;
    }
    if let Some((resource, group)) = name.split_once('.')
        && let Some(kind) = registry.kind(group, resource)
    {
        kind.is_terminating.store(true, Ordering::Relaxed);
    }
    true
}

/// Finalizes a definition, with retries; returns its name.
async fn finalize(registry: Arc<Registry>, slots: Arc<Semaphore>, name: Str) -> Str {
    let permit = own_permit();
    loop {
        let slot = slots.acquire().await;
        let pause = match delete_objects(&registry, &permit, &name).await {
            Ok(true) => OBJECTS_LEFT,
            Ok(false) => return name,
            Err(error) if error.code == 404 => return name,
            Err(error) => {
                tracing::warn!(%error, %name, "definition not emptied; trying again");
                AFTER_FAILURE
            }
        };
        drop(slot);
        tokio::time::sleep(pause).await;
    }
}

/// Deletes the objects of a definition. Returns true if there are objects left; otherwise removes
/// the finalizer.
async fn delete_objects(registry: &Registry, permit: &Permit, name: &str) -> Result<bool, Failure> {
    if !needs_finalizing(registry, name) {
        return Ok(false);
    }
    let Some(target) = target_of(registry, name) else { return Ok(false) };
    let Some((resource, group)) = name.split_once('.') else { return Ok(false) };
    begin(registry, permit, &target).await?;
    if let Some(kind) = registry.kind(group, resource) {
        let all = Target::of(&kind, "", "");
        let list = ListOptions::default();
        let options = DeleteOptions::default();
        registry.delete_collection(permit, &all, &list, &options, &mut vec![]).await?;
        registry.wait_for_known().await?;
        if !registry.objects(&kind).is_empty() {
            return Ok(true);
        }
    }
    remove_finalizer(registry, permit, &target).await?;
    registry.withdraw(group, resource);
    registry.wait_for_known().await?;
    Ok(false)
}

/// Says in the condition Terminating that the objects are being deleted, unless it says so.
async fn begin(registry: &Registry, permit: &Permit, target: &Target) -> Result<(), Failure> {
    let now = registry.clock.now().text();
    let begun = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        let reason = "InstanceDeletionInProgress";
        let message = "CustomResource deletion is in progress";
        set_condition(&mut object, "Terminating", true, reason, message, &now);
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let options = own_options();
    registry.modify(permit, target, Subresource::Status, &begun, &options).await.map(drop)
}

/// Sets the condition Terminating to false and removes the finalizer. As upstream, this is an
/// update of the status: a definition that is not valid can be deleted, too.
async fn remove_finalizer(
    registry: &Registry,
    permit: &Permit,
    target: &Target,
) -> Result<(), Failure> {
    let now = registry.clock.now().text();
    let completed = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        let reason = "InstanceDeletionCompleted";
        let message = "removed all instances";
        set_condition(&mut object, "Terminating", false, reason, message, &now);
        let finalizers = object.array_at(&["metadata", "finalizers"]).iter();
        let others: Vec<Value> =
            finalizers.filter(|name| name.as_str() != Some(CLEANUP_FINALIZER)).cloned().collect();
        object.metadata_mut().insert("finalizers", others);
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let options = own_options();
    registry.modify(permit, target, Subresource::Status, &completed, &options).await.map(drop)
}
