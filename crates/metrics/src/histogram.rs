//! [`Histogram`]: counts of values in buckets, and their sum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The unit of the values of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Durations; the sum is stored in nanoseconds.
    Seconds,
    /// Whole numbers, such as bytes.
    Amount,
}

/// The buckets of a histogram.
#[derive(Debug)]
pub struct Bounds {
    /// The unit.
    pub unit: Unit,
    /// The upper bounds in ascending order, in seconds or in the unit of the amount. The last
    /// bucket has no bound.
    pub upper: &'static [f64],
}

impl Bounds {
    /// Bounds of durations, in seconds.
    pub const fn seconds(upper: &'static [f64]) -> Bounds {
        Bounds { unit: Unit::Seconds, upper }
    }

    /// Bounds of amounts.
    pub const fn amount(upper: &'static [f64]) -> Bounds {
        Bounds { unit: Unit::Amount, upper }
    }
}

/// Counts of values in buckets, and the sum of the values.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static Bounds,
    /// One count for each bound, and one for the last bucket. They are not cumulative.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Creates a histogram without values.
    pub fn new(bounds: &'static Bounds) -> Histogram {
        let counts = (0..=bounds.upper.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts a duration.
    pub fn observe_duration(&self, duration: Duration) {
        debug_assert_eq!(self.bounds.unit, Unit::Seconds);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.count(duration.as_secs_f64(), nanoseconds);
    }

    /// Counts an amount.
    pub fn observe(&self, amount: u64) {
        debug_assert_eq!(self.bounds.unit, Unit::Amount);
        self.count(amount as f64, amount);
    }

    fn count(&self, value: f64, raw: u64) {
        let upper = self.bounds.upper;
        let bucket = upper.iter().position(|bound| value <= *bound).unwrap_or(upper.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(raw, Ordering::Relaxed);
    }

    /// Returns a histogram without values and with the same bounds.
    pub(crate) fn empty(&self) -> Histogram {
        Histogram::new(self.bounds)
    }

    /// Returns the sum of two histograms with the same bounds.
    pub fn plus(&self, other: &Histogram) -> Histogram {
        let sum = Histogram::new(self.bounds);
        let add = |to: &AtomicU64, from: &AtomicU64| {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed)
        };
        for histogram in [self, other] {
            for (to, from) in sum.counts.iter().zip(&histogram.counts) {
                add(to, from);
            }
            add(&sum.sum, &histogram.sum);
        }
        sum
    }

    /// Returns the number of values.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sum of the values, in seconds or in the unit of the amount.
    pub(crate) fn sum(&self) -> f64 {
        let sum = self.sum.load(Ordering::Relaxed) as f64;
        match self.bounds.unit {
            Unit::Seconds => sum / 1e9,
            Unit::Amount => sum,
        }
    }

    /// Returns each bound with the number of values up to it. The last bound is infinite.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.upper.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |total, (bound, count)| {
            *total += count.load(Ordering::Relaxed);
            Some((bound, *total))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { unit: Unit::Seconds, upper: &[0.005, 1.0] };

    #[test]
    fn a_value_counts_in_its_bucket_and_all_above() {
        let histogram = Histogram::new(&BOUNDS);
        for milliseconds in [5, 6, 1000, 1001] {
            histogram.observe_duration(Duration::from_millis(milliseconds));
        }
        let counts: Vec<_> = histogram.cumulative().collect();
        assert_eq!(counts, [(0.005, 1), (1.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.total(), histogram.sum()), (4, 2.012));
        let twice = histogram.plus(&histogram);
        assert_eq!(twice.cumulative().collect::<Vec<_>>()[1], (1.0, 6));
        assert_eq!((twice.total(), twice.sum()), (8, 4.024));
    }
}
