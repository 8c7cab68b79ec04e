//! Latencies in nanoseconds, to one percent.

use std::time::Duration;

/// Digits of a latency that count.
const DIGITS: u8 = 2;

/// How often each latency was seen.
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        // With so few digits every number is one that it takes.
        let empty = hdrhistogram::Histogram::new_with_max(u64::MAX / 2, DIGITS);
        Histogram(empty.expect("a histogram of two digits"))
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts all that another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        self.0 += &other.0;
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.0.len()
    }

    /// The latency in milliseconds that this share of all does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share).min(self.0.max()) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_percent() {
        let mut histogram = Histogram::default();
        (1..=500).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        let mut slower = Histogram::default();
        (501..=1000).for_each(|ms| slower.add(Duration::from_millis(ms)));
        histogram.merge(&slower);
        for (share, want) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let got = histogram.quantile(share);
            assert!((got - want).abs() <= want * 0.01, "{share}: {got}");
        }
        assert_eq!(histogram.total(), 1000);
    }

    #[test]
    fn no_latency_is_too_long() {
        let mut histogram = Histogram::default();
        histogram.add(Duration::MAX);
        assert_eq!(histogram.total(), 1);
    }
}
