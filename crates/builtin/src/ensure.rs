//! Creates objects on the server's own account, unless they exist.

use futures_util::future::try_join_all;
use keelson_auth::Permit;
use keelson_meta::{Failure, Value};
use keelson_registry::{Registry, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait for an object that another server is creating.
const ELSEWHERE_TIME_MAX: Duration = Duration::from_secs(2);

/// Creates the objects that do not exist. They are created concurrently, so that their writes share
/// syncs of the disk.
pub(crate) async fn ensure_all(
    registry: &Arc<Registry>,
    objects: Vec<(Target, Value)>,
    field_manager: &'static str,
) -> Result<(), Failure> {
    let ensure = |(target, value): (Target, Value)| async move {
        ensure_object(registry, &target, value, field_manager).await
    };
    try_join_all(objects.into_iter().map(ensure)).await.map(drop)
}

/// Creates an object unless there is one with its name.
pub(crate) async fn ensure_object(
    registry: &Registry,
    target: &Target,
    value: Value,
    field_manager: &'static str,
) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    match registry.create_if_absent(&permit, target, value, field_manager).await {
        Err(failure) if !is_created_elsewhere(registry, target).await => Err(failure),
        _ => Ok(()),
    }
}

/// Returns whether another server on the same store creates the object. It may not have finished:
/// the cluster IP of a service is allocated before the service is stored.
async fn is_created_elsewhere(registry: &Registry, target: &Target) -> bool {
    let deadline = Instant::now() + ELSEWHERE_TIME_MAX;
    let objects = registry.objects(&target.kind);
    loop {
        let revision = registry.cache.revision_of(&objects);
        if registry.cached(&target.kind, &target.namespace, &target.name).is_some() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if registry.cache.wait_of(&objects, revision.next(), left).await.is_err() {
            return false;
        }
    }
}
