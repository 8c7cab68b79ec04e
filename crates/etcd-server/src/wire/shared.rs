//! [`Shared`]: the bounds of all calls together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::unfinished::Unfinished;
use crate::limits::{
    ANSWERED_MAX, OPEN_CALLS_MAX, RANGES_MAX, RANGES_MIN, UNFINISHED_BYTES_MAX, UNFINISHED_MAX,
};
use crate::room::ResponseRoom;
use crate::watch::PastReads;

/// The bounds of all calls together.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Of the calls that are answered at the same time.
    pub answered: Arc<Semaphore>,
    /// Of the ranges of many keys that are read at the same time.
    pub ranges: Arc<Semaphore>,
    /// Of the calls whose requests have not arrived as a whole.
    pub unfinished: Arc<Unfinished>,
    /// Of the bytes of long responses.
    pub response_room: ResponseRoom,
    /// Of the watches that read the past at the same time.
    pub past_reads: PastReads,
    /// Of the calls whose responses have not ended.
    open: Arc<Semaphore>,
}

impl Shared {
    /// Takes the place of a call; `None` if there are too many.
    pub(crate) fn open_call(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.open).try_acquire_owned().ok()
    }

    /// Whether responses that nobody reads take up what others need.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.response_room.is_wanted() || self.open.available_permits() < OPEN_CALLS_MAX / 4
    }
}

impl Default for Shared {
    fn default() -> Self {
        let response_room = ResponseRoom::default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            answered: Arc::new(Semaphore::new(ANSWERED_MAX)),
            ranges: Arc::new(Semaphore::new(processors.clamp(RANGES_MIN, RANGES_MAX))),
            unfinished: Arc::new(Unfinished::new(UNFINISHED_MAX, UNFINISHED_BYTES_MAX)),
            past_reads: PastReads::new(response_room.clone()),
            response_room,
            open: Arc::new(Semaphore::new(OPEN_CALLS_MAX)),
        }
    }
}
