//! Latencies: counted in buckets that are 3 % wide, so that any number of them costs the same.

use std::time::Duration;

/// Buckets for each doubling.
const STEPS: u64 = 32;
const BUCKETS: usize = 60 * STEPS as usize;

/// How often each latency was seen.
pub struct Histogram {
    counts: Vec<u64>,
    /// All of them.
    pub total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let doubling = u64::from(nanos.ilog2());
    (((doubling - 4) * STEPS) + ((nanos >> (doubling - 5)) - STEPS)) as usize
}

/// The middle of a bucket.
fn middle(bucket: u64) -> u64 {
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((STEPS + bucket % STEPS) << shift) + ((1 << shift) >> 1)
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// Counts all that another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The latency in milliseconds that this share of all does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return middle(i as u64).min(self.max) as f64 / 1e6;
            }
        }
        self.max as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_few_percent() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        for (share, want) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let got = histogram.quantile(share);
            assert!((got - want).abs() < want * 0.03, "{share}: {got}");
        }
    }

    #[test]
    fn every_latency_has_a_bucket_that_holds_it() {
        for nanos in [0, 1, 31, 32, 33, 63, 64, 1_000, 123_456_789, u64::MAX / 32] {
            let middle = middle(bucket(nanos) as u64);
            assert!(middle.abs_diff(nanos) <= nanos / 32 + 1, "{nanos}: {middle}");
        }
    }
}
