//! [`Metrics`]: how many events there are, and how many are lost.

use crate::level::Level;
use keelson_metrics::{Counter, Description, Exposition, MetricType};

/// Where an event was lost, as the label `plugin` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    /// A full buffer.
    Buffered,
    /// The log.
    Log,
    /// Truncation: the event is too large without its objects, too.
    Truncate,
    /// The webhook.
    Webhook,
}

const PLUGINS: [&str; 4] = ["buffered", "log", "truncate", "webhook"];

/// The metrics of auditing, by kube-apiserver's names.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Events that were made.
    pub(crate) events: Counter,
    /// Events that were lost, by [`PLUGINS`].
    errors: [Counter; PLUGINS.len()],
    /// Requests, by level.
    levels: [Counter; Level::ALL.len()],
    /// Requests that were refused because their first event could not be stored.
    pub(crate) rejected: Counter,
}

impl Metrics {
    /// Counts a request.
    pub(crate) fn count_level(&self, level: Level) {
        self.levels[level as usize].increment();
    }

    /// Counts lost events.
    pub(crate) fn count_lost(&self, plugin: Plugin, events: u64) {
        self.errors[plugin as usize].add(events);
    }

    /// Writes the metrics.
    pub fn write(&self, out: &mut Exposition) {
        out.family(&EVENTS).value(&[], self.events.get() as f64);
        out.family(&REJECTED).value(&[], self.rejected.get() as f64);
        let names = Level::ALL.map(Level::name);
        let labelled: [(_, &[&str], &[Counter]); 2] =
            [(&ERRORS, &PLUGINS, &self.errors), (&LEVELS, &names, &self.levels)];
        for (description, names, counters) in labelled {
            let mut family = out.family(description);
            for (name, counter) in names.iter().zip(counters) {
                if counter.get() > 0 {
                    family.value(&[name], counter.get() as f64);
                }
            }
        }
    }
}

static EVENTS: Description = Description {
    name: "apiserver_audit_event_total",
    help: "[ALPHA] Audit events that were made and given to the backends.",
    metric_type: MetricType::Counter,
    labels: &[],
};

static REJECTED: Description = Description {
    name: "apiserver_audit_requests_rejected_total",
    help: "[ALPHA] Requests that were rejected because their audit event could not be stored.",
    metric_type: MetricType::Counter,
    labels: &[],
};

static ERRORS: Description = Description {
    name: "apiserver_audit_error_total",
    help: "[ALPHA] Audit events that were lost, by the part that lost them.",
    metric_type: MetricType::Counter,
    labels: &["plugin"],
};

static LEVELS: Description = Description {
    name: "apiserver_audit_level_total",
    help: "[ALPHA] Requests by their audit level.",
    metric_type: MetricType::Counter,
    labels: &["level"],
};
