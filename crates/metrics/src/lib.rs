//! Counters, gauges, histograms and their series by labels, and the text in which Prometheus reads
//! them.
//!
//! A component has its metrics in a struct of its own, updates them with relaxed atomics, and
//! writes them to an
//! [`Exposition`] when they are scraped. A series is created when it is first counted; each map has
//! a maximum of series. Unlike crates for Prometheus, this one does not change names of metrics
//! (`authentication_attempts` has no suffix `_total` upstream), and one lookup finds all metrics of
//! a request. No IO, no clock.

mod exposition;
mod histogram;
mod selection;
mod series;

pub use exposition::{Description, Exposition, FamilyText, MetricType};
pub use histogram::{Bounds, Histogram, Unit};
pub use selection::MetricsSelection;
pub use series::{Series, SeriesMap};

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter at 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds 1.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that increases and decreases.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the number.
    pub fn set(&self, to: i64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// Adds a number, which may be negative.
    pub fn add(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
