//! `Maintenance.Snapshot`.
use crate::engine::Engine;
use crate::proto::SnapshotResponse;
use std::sync::Arc;
use tonic::Status;
pub(crate) fn stream(
    _e: Arc<Engine>,
) -> impl futures_util::Stream<Item = Result<SnapshotResponse, Status>> + Send + 'static {
    futures_util::stream::empty()
}
