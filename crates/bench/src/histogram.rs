//! A histogram of latencies with a precision of one percent.

use std::time::Duration;

/// Significant digits of a latency.
const DIGITS: u8 = 2;

/// The counts of latencies.
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        // Never fails with these constants.
        let empty = hdrhistogram::Histogram::new_with_max(u64::MAX / 2, DIGITS);
        Histogram(empty.expect("a histogram of two digits"))
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.0 += &other.0;
    }

    /// Returns the number of latencies.
    pub fn total(&self) -> u64 {
        self.0.len()
    }

    /// Returns a quantile in milliseconds; `share` is from 0 to 1.
    pub fn quantile(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share).min(self.0.max()) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_a_precision_of_one_percent() {
        let mut histogram = Histogram::default();
        (1..=500).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        let mut slowdown = Histogram::default();
        (501..=1000).for_each(|ms| slowdown.add(Duration::from_millis(ms)));
        histogram.merge(&slowdown);
        for (share, want) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let got = histogram.quantile(share);
            assert!((got - want).abs() <= want * 0.01, "{share}: {got}");
        }
        assert_eq!(histogram.total(), 1000);
    }

    #[test]
    fn the_longest_latency_is_counted() {
        let mut histogram = Histogram::default();
        histogram.add(Duration::MAX);
        assert_eq!(histogram.total(), 1);
    }
}
