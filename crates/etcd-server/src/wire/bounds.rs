//! What all calls together may use: how many are answered at the same time, and the bytes of their
//! responses.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;

use crate::error::EtcdError;
use crate::limits::{CALLS_MAX, LONG_RESPONSE_BYTES, RESPONSE_WAIT_MAX, RESPONSES_BYTES_MAX};

const KILOBYTE: usize = 1 << 10;

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
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let response_room = Arc::new(Semaphore::new(RESPONSES_BYTES_MAX / KILOBYTE));
        Self { calls, response_room }
    }
}

/// The share of a long response in the bytes of all; in the extensions of the response.
#[derive(Clone, Default)]
pub(crate) struct Share(Arc<OnceLock<OwnedSemaphorePermit>>);

impl Share {
    /// Waits until there is room for a response of so many bytes.
    pub(crate) async fn take(&self, all: &Arc<Semaphore>, bytes: usize) -> Result<(), Status> {
        if bytes < LONG_RESPONSE_BYTES {
            return Ok(());
        }
        let kilobytes = u32::try_from(bytes / KILOBYTE).unwrap_or(u32::MAX);
        let taking = Arc::clone(all).acquire_many_owned(kilobytes);
        match timeout(RESPONSE_WAIT_MAX, taking).await {
            Ok(Ok(permit)) => {
                let _ = self.0.set(permit);
                Ok(())
            }
            Ok(Err(_)) => Err(EtcdError::Stopped.into()),
            Err(_) => Err(EtcdError::TooManyRequests.into()),
        }
    }
}
