//! [`Shared`]: the bounds of all calls together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::unfinished::Unfinished;
use crate::limits::{
    ANSWERED_MAX, OPEN_CALLS_MAX, RANGES_MAX, RESPONSES_KILOBYTES_MAX, UNFINISHED_BYTES_MAX,
    UNFINISHED_MAX,
};

/// The bounds of all calls together.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Of the calls that are answered at the same time.
    pub answered: Arc<Semaphore>,
    /// Of the ranges of many keys that are read at the same time.
    pub ranges: Arc<Semaphore>,
    /// Of the calls whose requests have not arrived as a whole.
    pub unfinished: Arc<Unfinished>,
    /// Of the kilobytes of long responses.
    pub response_room: Arc<Semaphore>,
    /// Of the calls whose responses have not ended.
    open: Arc<Semaphore>,
    /// How many wait for room that those take up who do not read.
    wanted: Arc<AtomicUsize>,
}

/// While there is one, clients that do not read lose their streams soon.
pub(crate) struct Wanted(Arc<AtomicUsize>);

impl Shared {
    /// Takes the place of a call; `None` if there are too many.
    pub(crate) fn open_call(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.open).try_acquire_owned().ok()
    }

    /// Asks those for room who do not read.
    pub(crate) fn want_room(&self) -> Wanted {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        Wanted(Arc::clone(&self.wanted))
    }

    /// Whether responses that nobody reads take up what others need.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
            || self.open.available_permits() < OPEN_CALLS_MAX / 4
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            answered: Arc::new(Semaphore::new(ANSWERED_MAX)),
            ranges: Arc::new(Semaphore::new(RANGES_MAX)),
            unfinished: Arc::new(Unfinished::new(UNFINISHED_MAX, UNFINISHED_BYTES_MAX)),
            response_room: Arc::new(Semaphore::new(RESPONSES_KILOBYTES_MAX)),
            open: Arc::new(Semaphore::new(OPEN_CALLS_MAX)),
            wanted: Arc::default(),
        }
    }
}
