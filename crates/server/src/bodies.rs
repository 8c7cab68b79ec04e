//! The bodies of requests that are in memory: bounded together, so that many long ones wait for each other.

use crate::limits::Limits;
use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// After how long a client that was refused may ask again.
const RETRY_SECONDS: u32 = 1;

/// Memory for request bodies, in bytes.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes: Arc<Semaphore>,
    wait_max: Duration,
}

impl Bodies {
    pub fn new(limits: &Limits) -> Bodies {
        let bytes = limits.bodies_bytes_max.min(Semaphore::MAX_PERMITS);
        Bodies { bytes: Arc::new(Semaphore::new(bytes)), wait_max: limits.bodies_wait_max }
    }

    /// Makes room for so many bytes until what is given is dropped: at once, or after others have gone, or
    /// 429.
    pub async fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let count = u32::try_from(bytes).map_err(Status::internal)?;
        if let Ok(held) = self.bytes.clone().try_acquire_many_owned(count) {
            return Ok(held);
        }
        match timeout(self.wait_max, self.bytes.clone().acquire_many_owned(count)).await {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(_)) | Err(_) => Err(too_many()),
        }
    }
}

fn too_many() -> Failure {
    let why = "Too many requests: their bodies take up all memory that there is for them";
    let mut status = Status::new(Reason::TooManyRequests, why);
    status.details = Some(Details { retry_after_seconds: RETRY_SECONDS, ..Details::default() });
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_wait_for_each_other_and_then_are_refused() {
        let wait_max = Duration::from_millis(20);
        let limits =
            Limits { bodies_bytes_max: 100, bodies_wait_max: wait_max, ..Limits::default() };
        let bodies = Bodies::new(&limits);
        let long = bodies.hold(90).await.expect("room");
        let refused = bodies.hold(20).await.expect_err("no room");
        assert_eq!((refused.code, refused.reason), (429, Reason::TooManyRequests));
        assert!(bodies.hold(10).await.is_ok());
        drop(long);
        assert!(bodies.hold(100).await.is_ok());
    }
}
