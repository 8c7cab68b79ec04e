//! Durations of the validation rules of custom resources. They are the process's: rules belong to
//! no registry.

use keelson_metrics::{Bounds, Description, Exposition, Histogram};
use std::sync::LazyLock;
use std::time::Instant;

static COMPILATIONS: LazyLock<Histogram> = LazyLock::new(|| Histogram::new(&SECONDS));
static EVALUATIONS: LazyLock<Histogram> = LazyLock::new(|| Histogram::new(&SECONDS));

/// Counts the compilation of the rules of one version.
pub(crate) fn compiled(begun: Instant) {
    COMPILATIONS.observe_duration(begun.elapsed());
}

/// Counts the evaluation of all rules for one object.
pub(crate) fn evaluated(begun: Instant) {
    EVALUATIONS.observe_duration(begun.elapsed());
}

/// Writes the durations of compilations and evaluations.
pub fn write(out: &mut Exposition) {
    out.family(&COMPILATION_SECONDS).histogram(&[], &COMPILATIONS);
    out.family(&EVALUATION_SECONDS).histogram(&[], &EVALUATIONS);
}

static SECONDS: Bounds =
    Bounds::seconds(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

static COMPILATION_SECONDS: Description = Description::histogram(
    "apiserver_cel_compilation_duration_seconds",
    "[BETA] Seconds that the compilation of the validation rules of a custom resource took.",
    &[],
);

static EVALUATION_SECONDS: Description = Description::histogram(
    "apiserver_cel_evaluation_duration_seconds",
    "[BETA] Seconds that the validation rules of a custom resource took for one object.",
    &[],
);
