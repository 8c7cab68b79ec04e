//! The room for long responses: the bytes of all that are not sent yet, on all connections
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;

use crate::error::EtcdError;
use crate::limits::{RESPONSE_WAIT_MAX, RESPONSES_KILOBYTES_MAX};

const KILOBYTE: usize = 1 << 10;

/// The share of a response. It is given back when it is dropped.
pub(crate) type Room = OwnedSemaphorePermit;

/// The room for the long responses of all calls.
#[derive(Clone)]
pub(crate) struct ResponseRoom {
    kilobytes: Arc<Semaphore>,
    /// How many wait for room that those take up who do not read.
    wanted: Arc<AtomicUsize>,
}

impl Default for ResponseRoom {
    fn default() -> Self {
        let kilobytes = Arc::new(Semaphore::new(RESPONSES_KILOBYTES_MAX));
        Self { kilobytes, wanted: Arc::default() }
    }
}

/// While there is one, clients that do not read lose their streams soon.
struct Wanted(Arc<AtomicUsize>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ResponseRoom {
    /// Waits until there is room for a response of so many bytes; `None` when the server ends.
    /// Those who read nothing give theirs up.
    pub(crate) async fn wait(&self, bytes: usize) -> Option<Room> {
        let kilobytes = kilobytes(bytes);
        if let Ok(room) = Arc::clone(&self.kilobytes).try_acquire_many_owned(kilobytes) {
            return Some(room);
        }
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let _wanted = Wanted(Arc::clone(&self.wanted));
        Arc::clone(&self.kilobytes).acquire_many_owned(kilobytes).await.ok()
    }

    /// The same, for a call that gives up after a time.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Room, EtcdError> {
        match timeout(RESPONSE_WAIT_MAX, self.wait(bytes)).await {
            Ok(Some(room)) => Ok(room),
            Ok(None) => Err(EtcdError::Stopped),
            Err(_) => Err(EtcdError::TooManyRequests),
        }
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }
}

/// Returns the room of so many bytes without the rest, which is free again.
pub(crate) fn shrink(mut room: Room, bytes: usize) -> Room {
    room.split(kilobytes(bytes) as usize).unwrap_or(room)
}

fn kilobytes(bytes: usize) -> u32 {
    let kilobytes = (bytes / KILOBYTE).min(RESPONSES_KILOBYTES_MAX);
    u32::try_from(kilobytes).unwrap_or(u32::MAX)
}

/// A response of a stream, with the room that it keeps until the next one is sent.
pub(crate) struct Sent<Res> {
    pub response: Result<Res, Status>,
    pub room: Option<Arc<Room>>,
}

impl<Res> From<Result<Res, Status>> for Sent<Res> {
    fn from(response: Result<Res, Status>) -> Self {
        Sent { response, room: None }
    }
}
