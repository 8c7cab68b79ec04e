//! The limits of a write that is tried again because of other writes.

use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status};
use std::time::{Duration, Instant};

const TRIES_MAX: usize = 100;
/// Maximum time of all tries together (upstream's `requestTimeoutUpperBound`).
const TRIES_TIME_MAX: Duration = Duration::from_secs(34);

/// Limits the tries of a write in number and in time.
pub struct RetryBudget {
    left: usize,
    until: Instant,
}

impl RetryBudget {
    /// Starts with no try made.
    pub fn new(now: Instant) -> RetryBudget {
        RetryBudget { left: TRIES_MAX, until: now + TRIES_TIME_MAX }
    }

    /// Counts a try. Returns 500 after too many tries, 504 after too long a time.
    pub fn count_try(&mut self, now: Instant) -> Result<(), Failure> {
        if now >= self.until {
            return Err(out_of_time());
        }
        let why = "the object changed during every try to write it";
        self.left = self.left.checked_sub(1).ok_or_else(|| Status::internal(why))?;
        Ok(())
    }
}

fn out_of_time() -> Failure {
    let why =
        "Timeout: request did not complete within requested timeout - context deadline exceeded";
    let mut status = Status::new(Reason::Timeout, why);
    status.details = Some(Details::default());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tries_of_a_write_are_bounded_in_number_and_in_time() {
        let now = Instant::now();
        let mut many = RetryBudget::new(now);
        for _ in 0..TRIES_MAX {
            assert_eq!(many.count_try(now), Ok(()));
        }
        assert_eq!(many.count_try(now).map_err(|failure| failure.code), Err(500));
        let mut slow = RetryBudget::new(now);
        assert_eq!(slow.count_try(now + Duration::from_secs(33)), Ok(()));
        let late = slow.count_try(now + Duration::from_secs(34)).expect_err("it took too long");
        assert_eq!((late.code, late.reason), (504, Reason::Timeout));
    }
}
