//! [`Throttle`]: how many batches may be stored a second.

use std::time::Duration;

/// A bucket of tokens that fills with time.
pub(super) struct Throttle {
    per_second: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was right.
    at: Duration,
}

impl Throttle {
    /// Makes a full bucket, at time zero.
    pub fn new(per_second: f32, burst: usize) -> Throttle {
        let burst = burst as f64;
        Throttle { per_second: f64::from(per_second), burst, tokens: burst, at: Duration::ZERO }
    }

    /// Takes a token, and returns how long its owner must wait for it.
    pub fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.at = now;
        self.tokens -= 1.0;
        let missing = (-self.tokens).max(0.0);
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let mut throttle = Throttle::new(10.0, 2);
        let millis = |number| Duration::from_millis(number);
        let waits = [0, 0, 0, 300].map(|now| throttle.take(millis(now)));
        assert_eq!(waits, [millis(0), millis(0), millis(100), millis(0)]);
        // A pause fills the bucket up to the burst, not beyond it.
        let waits = [5000, 5000, 5000].map(|now| throttle.take(millis(now)));
        assert_eq!(waits, [millis(0), millis(0), millis(100)]);
    }
}
