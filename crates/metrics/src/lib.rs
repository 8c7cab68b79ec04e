//! Counters, gauges, histograms and their series by labels, and the text in which Prometheus reads them.
//!
//! Whoever counts keeps its metrics in a struct of its own, adds to them with relaxed atomics, and writes them
//! into an [`Exposition`] when somebody asks. Series are made when they are first counted, and of each map
//! there are at most as many as its maximum. Unlike the crates for Prometheus, a name stays as it is given
//! (`authentication_attempts` has no `_total` upstream), and one look-up leads to all metrics of a request.
//! No IO, no clock.

mod exposition;
mod histogram;
mod series;

pub use exposition::{Description, Exposition, FamilyText, MetricType};
pub use histogram::{Bounds, Histogram, Unit};
pub use series::{Series, SeriesMap};

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds to it, or takes from it.
    pub fn add(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
