//! [`Shared`]: the bounds of all calls together.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::stall::response_room;
use crate::limits::CALLS_MAX;

/// The bounds of all calls together.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Of the calls that are read or answered at the same time.
    pub calls: Arc<Semaphore>,
    /// Of the bytes of long responses.
    pub response_room: Arc<Semaphore>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { calls: Arc::new(Semaphore::new(CALLS_MAX)), response_room: response_room() }
    }
}
