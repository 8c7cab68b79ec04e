//! Limits the memory of all request bodies together. Further bodies wait until others are freed.

use crate::limits::Limits;
use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// `Retry-After` of a refused request.
const RETRY_SECONDS: u32 = 1;

/// The memory available for request bodies, in bytes.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    bytes: Arc<Semaphore>,
    wait_max: Duration,
}

impl BodyMemory {
    pub fn new(limits: &Limits) -> BodyMemory {
        let bytes = limits.bodies_bytes_max.min(Semaphore::MAX_PERMITS);
        BodyMemory { bytes: Arc::new(Semaphore::new(bytes)), wait_max: limits.bodies_wait_max }
    }

    /// Reserves memory for a body until the returned permit is dropped. Waits if there is not
    /// enough, and fails with 429 after `wait_max`.
    pub async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let count = u32::try_from(bytes).map_err(Status::internal)?;
        if let Ok(reserved) = self.bytes.clone().try_acquire_many_owned(count) {
            return Ok(reserved);
        }
        match timeout(self.wait_max, self.bytes.clone().acquire_many_owned(count)).await {
            Ok(Ok(reserved)) => Ok(reserved),
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
        let bodies = BodyMemory::new(&limits);
        let long = bodies.reserve(90).await.expect("enough memory");
        let refused = bodies.reserve(20).await.expect_err("not enough memory");
        assert_eq!((refused.code, refused.reason), (429, Reason::TooManyRequests));
        assert!(bodies.reserve(10).await.is_ok());
        drop(long);
        assert!(bodies.reserve(100).await.is_ok());
    }
}
