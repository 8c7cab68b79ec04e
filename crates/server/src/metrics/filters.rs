//! Durations of the steps before the verb (kube-apiserver's filters, apiserver
//! `endpoints/filterlatency`).

use keelson_metrics::{Bounds, Description, Exposition, Histogram};
use std::time::Duration;

/// A step before the verb, in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Authentication,
    Audit,
    Impersonation,
    Fairness,
    Authorization,
}

/// The values of the label `filter`, in the order of [`Filter`].
const NAMES: [&str; 5] =
    ["authentication", "audit", "constrainedimpersonation", "priorityandfairness", "authorization"];

/// Durations by step.
#[derive(Debug)]
pub(crate) struct Filters([Histogram; NAMES.len()]);

impl Filters {
    pub fn new() -> Filters {
        Filters(std::array::from_fn(|_| Histogram::new(&SECONDS)))
    }

    /// Counts a step that has ended.
    pub fn ended(&self, filter: Filter, took: Duration) {
        self.0[filter as usize].observe_duration(took);
    }

    pub fn write(&self, out: &mut Exposition) {
        let mut text = out.family(&FILTER_SECONDS);
        for (name, seconds) in NAMES.iter().zip(&self.0) {
            text.histogram(&[name], seconds);
        }
    }
}

static SECONDS: Bounds = Bounds::seconds(&[
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0,
]);

static FILTER_SECONDS: Description = Description::histogram(
    "apiserver_request_filter_duration_seconds",
    "[ALPHA] Seconds that requests spent in each step before their verb.",
    &["filter"],
);
