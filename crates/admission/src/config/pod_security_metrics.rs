//! Evaluations of PodSecurity (pod-security-admission `metrics`).

use super::pod_security::Standard;
use keelson_metrics::{Counter, Description, Exposition, SeriesMap};

/// Most combinations of labels: levels and versions are from closed sets, but there are many
/// versions.
const SERIES_MAX: usize = 4096;
/// Versions from this minor on are newer than the server, and count together.
const MINOR_MAX: u32 = 36;

/// What a policy decided, and in which mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluation {
    /// Allowed by `enforce`.
    Allowed,
    /// Denied by `enforce`.
    Denied,
    /// `audit` would have denied it.
    Audited,
    /// `warn` would have denied it.
    Warned,
}

impl Evaluation {
    /// Returns the values of `decision` and `mode`.
    fn labels(self) -> [&'static str; 2] {
        match self {
            Evaluation::Allowed => ["allow", "enforce"],
            Evaluation::Denied => ["deny", "enforce"],
            Evaluation::Audited => ["deny", "audit"],
            Evaluation::Warned => ["deny", "warn"],
        }
    }
}

/// What is evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evaluated<'a> {
    /// `create` or `update`.
    pub operation: &'static str,
    /// Whether it is a pod, and not a workload with a template of pods.
    pub is_pod: bool,
    pub subresource: &'a str,
}

impl<'a> Evaluated<'a> {
    /// Returns the values of `request_operation`, `resource` and `subresource`.
    fn labels(self) -> [&'a str; 3] {
        [self.operation, if self.is_pod { "pod" } else { "controller" }, self.subresource]
    }
}

/// Evaluations and exemptions.
#[derive(Debug)]
pub(crate) struct PodSecurityMetrics {
    evaluations: SeriesMap<Counter>,
    exemptions: SeriesMap<Counter>,
}

impl Default for PodSecurityMetrics {
    fn default() -> PodSecurityMetrics {
        PodSecurityMetrics {
            evaluations: SeriesMap::new(SERIES_MAX),
            exemptions: SeriesMap::new(SERIES_MAX),
        }
    }
}

impl PodSecurityMetrics {
    /// Counts a decision of a policy.
    pub fn evaluated(&self, what: Evaluated<'_>, standard: Standard, evaluation: Evaluation) {
        let [decision, mode] = evaluation.labels();
        let [operation, resource, subresource] = what.labels();
        let version = match standard.minor {
            None => "latest".to_owned(),
            Some(minor) if minor > MINOR_MAX => "future".to_owned(),
            Some(minor) => format!("v1.{minor}"),
        };
        let level = standard.level.name();
        let values = [decision, mode, level, &version, operation, resource, subresource];
        if let Some(series) = self.evaluations.get(&values) {
            series.metrics.increment();
        }
    }

    /// Counts an object to which no policy applies.
    pub fn exempted(&self, what: Evaluated<'_>) {
        if let Some(series) = self.exemptions.get(&what.labels()) {
            series.metrics.increment();
        }
    }

    pub fn write(&self, out: &mut Exposition) {
        for (description, map) in
            [(&EVALUATIONS, &self.evaluations), (&EXEMPTIONS, &self.exemptions)]
        {
            let mut text = out.family(description);
            for series in map.all() {
                text.value(&series.values(), series.metrics.get() as f64);
            }
        }
    }
}

static EVALUATIONS: Description = Description::counter(
    "pod_security_evaluations_total",
    "[ALPHA] Decisions of PodSecurity by mode, level and version of the policy and kind of the request.",
    &[
        "decision",
        "mode",
        "policy_level",
        "policy_version",
        "request_operation",
        "resource",
        "subresource",
    ],
);

static EXEMPTIONS: Description = Description::counter(
    "pod_security_exemptions_total",
    "[ALPHA] Requests to which no policy of PodSecurity applies, by kind of the request.",
    &["request_operation", "resource", "subresource"],
);
