//! [`MetricsSelection`]: which metrics are served, and which values of their labels
//! (`--disabled-metrics`, `--allow-metric-labels`, `--show-hidden-metrics-for-version`).

use crate::Counter;
use std::collections::{BTreeMap, BTreeSet};

/// Allowed values by label.
pub(crate) type AllowedLabels = BTreeMap<String, BTreeSet<String>>;

/// What of the metrics is served. By default everything that is not hidden.
#[derive(Debug, Default)]
pub struct MetricsSelection {
    pub(crate) disabled: BTreeSet<String>,
    /// By metric. Other values of these labels are served as `unexpected`.
    pub(crate) allowed: BTreeMap<String, AllowedLabels>,
    pub(crate) shows_hidden: bool,
    /// Series that were served as `unexpected`.
    pub(crate) unexpected: Counter,
}

/// Everything that is not hidden.
pub(crate) static EVERYTHING: MetricsSelection = MetricsSelection {
    disabled: BTreeSet::new(),
    allowed: BTreeMap::new(),
    shows_hidden: false,
    unexpected: Counter::new(),
};

impl MetricsSelection {
    /// Leaves a metric out. There need not be one of that name.
    pub fn disable(&mut self, metric: &str) {
        self.disabled.insert(metric.to_owned());
    }

    /// Serves only these values of a label of a metric; the series with other values are added up
    /// in one with the value `unexpected`.
    pub fn allow<'v>(
        &mut self,
        metric: &str,
        label: &str,
        values: impl IntoIterator<Item = &'v str>,
    ) {
        let labels = self.allowed.entry(metric.to_owned()).or_default();
        labels.insert(label.to_owned(), values.into_iter().map(str::to_owned).collect());
    }

    /// Serves the hidden metrics too.
    pub fn show_hidden(&mut self) {
        self.shows_hidden = true;
    }
}
