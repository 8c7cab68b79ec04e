//! Makes objects of the server's own, unless they are there.

use futures_util::future::try_join_all;
use keelson_auth::Permit;
use keelson_meta::{Failure, Value};
use keelson_registry::{Registry, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long another server may take for one of these objects.
const ELSEWHERE_TIME_MAX: Duration = Duration::from_secs(2);

/// Makes objects side by side: their writes share syncs of the disk.
pub(crate) async fn make_all(
    registry: &Arc<Registry>,
    objects: Vec<(Target, Value)>,
    field_manager: &'static str,
) -> Result<(), Failure> {
    let make = |(target, value): (Target, Value)| async move {
        make_as(registry, &target, value, field_manager).await
    };
    try_join_all(objects.into_iter().map(make)).await.map(drop)
}

/// Makes an object of the server's own as a field manager, unless there is one of its name.
pub(crate) async fn make_as(
    registry: &Registry,
    target: &Target,
    value: Value,
    field_manager: &'static str,
) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    match registry.create_if_absent(&permit, target, value, field_manager).await {
        Err(failure) if !made_elsewhere(registry, target).await => Err(failure),
        _ => Ok(()),
    }
}

/// Whether another server on the same store was faster. It may be half-way: the address of a service
/// is taken before the service is there.
async fn made_elsewhere(registry: &Registry, target: &Target) -> bool {
    let until = Instant::now() + ELSEWHERE_TIME_MAX;
    loop {
        let seen = registry.cache.revision();
        if registry.cached(&target.kind, &target.namespace, &target.name).is_some() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if registry.cache.wait(seen.next(), left).await.is_err() {
            return false;
        }
    }
}
