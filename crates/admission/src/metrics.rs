//! [`Metrics`]: durations and rejections of admission by plug-in, step, webhook and policy.

mod descriptions;

use crate::request::Operation;
use descriptions as described;
use keelson_metrics::{Counter, Exposition, Histogram, SeriesMap};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Maximum label combinations of webhooks and policies.
const SERIES_MAX: usize = 4096;
/// Higher status codes of webhooks are counted as this one.
const CODE_MAX: u16 = 600;

/// A phase of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Mutating.
    Admit,
    /// Validating.
    Validate,
}

impl Phase {
    pub(crate) const ALL: [Phase; 2] = [Phase::Admit, Phase::Validate];

    /// Returns the label value in metrics of plug-ins.
    fn name(self) -> &'static str {
        match self {
            Phase::Admit => "admit",
            Phase::Validate => "validate",
        }
    }

    /// Returns the label value in metrics of webhooks.
    fn webhook_name(self) -> &'static str {
        match self {
            Phase::Admit => "admit",
            Phase::Validate => "validating",
        }
    }
}

/// One step of admission, or one plug-in in it.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionStep {
    /// What it does with the object.
    pub phase: Phase,
    /// The operation of the request.
    pub operation: Operation,
    /// Whether the request was rejected.
    pub rejected: bool,
}

impl AdmissionStep {
    /// Number of combinations of phase, operation and rejection.
    const NUMBER: usize = 2 * Operation::ALL.len() * 2;

    fn index(self) -> usize {
        let phase = usize::from(self.phase == Phase::Validate);
        (phase * Operation::ALL.len() + self.operation as usize) * 2 + usize::from(self.rejected)
    }

    fn all() -> impl Iterator<Item = AdmissionStep> {
        let operations = Phase::ALL
            .into_iter()
            .flat_map(|phase| Operation::ALL.into_iter().map(move |operation| (phase, operation)));
        operations.flat_map(|(phase, operation)| {
            [false, true].map(|rejected| AdmissionStep { phase, operation, rejected })
        })
    }

    /// Returns the values of `operation`, `rejected` and `type`.
    fn labels(self) -> [&'static str; 3] {
        [self.operation.name(), bool_label(self.rejected), self.phase.name()]
    }
}

/// The outcome of a webhook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookEnd {
    /// The webhook allowed the request.
    Allowed,
    /// The webhook denied the request with this code.
    Denied(u16),
    /// The call failed with this code; `is_ignored`: the failure policy lets the request pass.
    Failed { code: u16, is_ignored: bool },
    /// The response is unusable, or the webhook must not be called.
    Unusable,
}

/// How a plug-in is counted in a step, besides its own durations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// With an even share of the duration of the step.
    OfPass,
    /// With no time, for dynamic plug-ins that had nothing to do.
    OfIdle,
}

/// Histograms by step, created on first use.
type StepSeconds = [OnceLock<Histogram>; AdmissionStep::NUMBER];

/// Metrics of admission.
#[derive(Debug)]
pub struct Metrics {
    /// By plug-in and [`AdmissionStep::index`].
    plug_ins: Box<[PlugInSeconds]>,
    /// Indexes and names of plug-ins, sorted by name.
    names: Vec<(usize, &'static str)>,
    /// Steps in which no plug-in rejected, with the share of one plug-in. They are timed together,
    /// because reading the clock takes longer than most plug-ins.
    passes: StepSeconds,
    /// Steps without webhooks and policies.
    idle: StepSeconds,
    /// By [`AdmissionStep::index`].
    steps: StepSeconds,
    webhooks: SeriesMap<WebhookSeconds>,
    webhook_requests: SeriesMap<Counter>,
    webhook_rejections: SeriesMap<Counter>,
    webhooks_failed_open: SeriesMap<Counter>,
    validations: SeriesMap<CheckSeconds>,
    mutations: SeriesMap<CheckSeconds>,
}

impl Metrics {
    /// Returns empty metrics for plug-ins with these names, which are identified by index. `share`
    /// returns how a plug-in is counted in a phase of an operation.
    pub(crate) fn new(
        plug_ins: impl Iterator<Item = &'static str>,
        share: impl Fn(usize, Phase, Operation) -> Option<Share>,
    ) -> Metrics {
        let mut names: Vec<_> = plug_ins.enumerate().collect();
        names.sort_by_key(|(_, name)| *name);
        let steps = (0..names.len())
            .flat_map(|number| AdmissionStep::all().map(move |step| (number, step)));
        let of_step = |(number, step): (usize, AdmissionStep)| PlugInSeconds {
            own: OnceLock::new(),
            share: share(number, step.phase, step.operation).filter(|_| !step.rejected),
        };
        Metrics {
            plug_ins: steps.map(of_step).collect(),
            names,
            passes: Default::default(),
            idle: Default::default(),
            steps: Default::default(),
            webhooks: SeriesMap::new(SERIES_MAX),
            webhook_requests: SeriesMap::new(SERIES_MAX),
            webhook_rejections: SeriesMap::new(SERIES_MAX),
            webhooks_failed_open: SeriesMap::new(SERIES_MAX),
            validations: SeriesMap::new(SERIES_MAX),
            mutations: SeriesMap::new(SERIES_MAX),
        }
    }

    /// Records one plug-in in a step.
    pub(crate) fn plug_in(&self, number: usize, step: AdmissionStep, took: Duration) {
        let seconds = &self.plug_ins[number * AdmissionStep::NUMBER + step.index()].own;
        seconds.get_or_init(|| Box::new(step_histogram())).observe_duration(took);
    }

    /// Records all plug-ins that take part in a step; `took` is the share of each.
    pub(crate) fn pass(&self, step: AdmissionStep, took: Duration) {
        self.passes[step.index()].get_or_init(step_histogram).observe_duration(took);
    }

    /// Records a step without webhooks and policies.
    pub(crate) fn idle(&self, step: AdmissionStep) {
        self.idle[step.index()].get_or_init(step_histogram).observe_duration(Duration::ZERO);
    }

    /// Records a step: all plug-ins of a phase.
    pub fn step(&self, step: AdmissionStep, begun: Instant) {
        self.steps[step.index()].get_or_init(step_histogram).observe_duration(begun.elapsed());
    }

    /// Returns the durations of a plug-in in a step, if it took part in any.
    fn plug_in_seconds(&self, number: usize, step: AdmissionStep) -> Option<Histogram> {
        let PlugInSeconds { own, share } =
            &self.plug_ins[number * AdmissionStep::NUMBER + step.index()];
        let shared = share.and_then(|share| match share {
            Share::OfPass => self.passes[step.index()].get(),
            Share::OfIdle => self.idle[step.index()].get(),
        });
        let histograms = [own.get().map(|own| &**own), shared];
        histograms
            .into_iter()
            .flatten()
            .fold(None, |sum, histogram| Some(sum.unwrap_or_else(step_histogram).plus(histogram)))
    }

    /// Records a webhook call.
    pub(crate) fn webhook(
        &self,
        name: &str,
        phase: Phase,
        operation: Operation,
        end: WebhookEnd,
        begun: Instant,
    ) {
        let phase = phase.webhook_name();
        let operation = operation.name();
        let (code, error) = match end {
            WebhookEnd::Allowed => (200, None),
            WebhookEnd::Denied(code) => (code.min(CODE_MAX), Some("no_error")),
            WebhookEnd::Failed { code, is_ignored: true } => (code.min(CODE_MAX), None),
            WebhookEnd::Failed { code, .. } => (code.min(CODE_MAX), Some("calling_webhook_error")),
            WebhookEnd::Unusable => (0, Some("apiserver_internal_error")),
        };
        let code = code.to_string();
        let rejected = bool_label(error.is_some());
        if let Some(series) = self.webhooks.get(&[name, operation, rejected, phase]) {
            series.metrics.0.observe_duration(begun.elapsed());
        }
        let count = |map: &SeriesMap<Counter>, labels: &[&str]| {
            if let Some(series) = map.get(labels) {
                series.metrics.increment();
            }
        };
        count(&self.webhook_requests, &[&code, name, operation, rejected, phase]);
        if let Some(error) = error {
            count(&self.webhook_rejections, &[error, name, operation, &code, phase]);
        }
        if matches!(end, WebhookEnd::Failed { is_ignored: true, .. }) {
            count(&self.webhooks_failed_open, &[name, phase]);
        }
    }

    /// Records a failed validation of a policy with its action.
    pub(crate) fn validation(&self, action: &str, policy: &str, binding: &str, took: Duration) {
        let labels = [action, "invalid_error", policy, binding];
        if let Some(series) = self.validations.get(&labels) {
            series.metrics.0.observe_duration(took);
        }
    }

    /// Records a mutation of a policy.
    pub(crate) fn mutation(&self, failed: bool, policy: &str, binding: &str, took: Duration) {
        let error = if failed { "invalid_error" } else { "no_error" };
        if let Some(series) = self.mutations.get(&[error, policy, binding]) {
            series.metrics.0.observe_duration(took);
        }
    }

    /// Writes all metrics.
    pub fn write(&self, out: &mut Exposition) {
        let mut text = out.family(&described::PLUG_IN_SECONDS);
        for &(number, name) in &self.names {
            for step in AdmissionStep::all() {
                if let Some(seconds) = self.plug_in_seconds(number, step) {
                    let [operation, rejected, phase] = step.labels();
                    text.histogram(&[name, operation, rejected, phase], &seconds);
                }
            }
        }
        drop(text);
        let mut text = out.family(&described::STEP_SECONDS);
        for step in AdmissionStep::all() {
            if let Some(seconds) = self.steps[step.index()].get() {
                text.histogram(&step.labels(), seconds);
            }
        }
        drop(text);
        let mut text = out.family(&described::WEBHOOK_SECONDS);
        for series in self.webhooks.all() {
            text.histogram(&series.values(), &series.metrics.0);
        }
        drop(text);
        let counts = [
            (&described::WEBHOOK_REQUESTS, &self.webhook_requests),
            (&described::WEBHOOK_REJECTIONS, &self.webhook_rejections),
            (&described::WEBHOOKS_FAILED_OPEN, &self.webhooks_failed_open),
        ];
        for (family, map) in counts {
            let mut text = out.family(family);
            for series in map.all() {
                text.value(&series.values(), series.metrics.get() as f64);
            }
        }
        let checks = [
            (&described::VALIDATIONS, &described::VALIDATION_SECONDS, &self.validations),
            (&described::MUTATIONS, &described::MUTATION_SECONDS, &self.mutations),
        ];
        for (number, seconds, map) in checks {
            let all = map.all();
            let mut text = out.family(number);
            for series in &all {
                text.value(&series.values(), series.metrics.0.total() as f64);
            }
            drop(text);
            let mut text = out.family(seconds);
            for series in &all {
                text.histogram(&series.values(), &series.metrics.0);
            }
        }
    }
}

/// Durations of a plug-in in a step.
#[derive(Debug)]
struct PlugInSeconds {
    own: OnceLock<Box<Histogram>>,
    share: Option<Share>,
}

fn step_histogram() -> Histogram {
    Histogram::new(&described::STEP_BOUNDS)
}

/// Durations of calls of a webhook.
#[derive(Debug)]
struct WebhookSeconds(Histogram);

impl Default for WebhookSeconds {
    fn default() -> WebhookSeconds {
        WebhookSeconds(Histogram::new(&described::WEBHOOK_BOUNDS))
    }
}

/// Durations of the expressions of a policy.
#[derive(Debug)]
struct CheckSeconds(Histogram);

impl Default for CheckSeconds {
    fn default() -> CheckSeconds {
        CheckSeconds(Histogram::new(&described::CHECK_BOUNDS))
    }
}

fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
