//! Names, labels and buckets of the metrics of admission.

use keelson_metrics::{Bounds, Description, MetricType, Unit};

pub(super) static STEP_BOUNDS: Bounds =
    Bounds { unit: Unit::Seconds, upper: &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5] };
pub(super) static WEBHOOK_BOUNDS: Bounds =
    Bounds { unit: Unit::Seconds, upper: &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0] };
pub(super) static CHECK_BOUNDS: Bounds =
    Bounds { unit: Unit::Seconds, upper: &[5e-7, 0.001, 0.01, 0.1, 1.0] };

const VALIDATION_LABELS: &[&str] =
    &["enforcement_action", "error_type", "policy", "policy_binding"];
const MUTATION_LABELS: &[&str] = &["error_type", "policy", "policy_binding"];

pub(super) static PLUG_IN_SECONDS: Description = Description {
    name: "apiserver_admission_controller_admission_duration_seconds",
    help: "[STABLE] Seconds that a plug-in took, by operation, type and whether it refused the request.",
    metric_type: MetricType::Histogram,
    labels: &["name", "operation", "rejected", "type"],
};

pub(super) static STEP_SECONDS: Description = Description {
    name: "apiserver_admission_step_admission_duration_seconds",
    help: "[STABLE] Seconds that all plug-ins of a type took, by operation and whether the request was refused.",
    metric_type: MetricType::Histogram,
    labels: &["operation", "rejected", "type"],
};

pub(super) static WEBHOOK_SECONDS: Description = Description {
    name: "apiserver_admission_webhook_admission_duration_seconds",
    help: "[STABLE] Seconds that calls of a webhook took, by operation, type and whether the request was refused.",
    metric_type: MetricType::Histogram,
    labels: &["name", "operation", "rejected", "type"],
};

pub(super) static WEBHOOK_REQUESTS: Description = Description {
    name: "apiserver_admission_webhook_request_total",
    help: "[ALPHA] Calls of a webhook by the code of its answer, operation, type and whether the request was refused.",
    metric_type: MetricType::Counter,
    labels: &["code", "name", "operation", "rejected", "type"],
};

pub(super) static WEBHOOK_REJECTIONS: Description = Description {
    name: "apiserver_admission_webhook_rejection_count",
    help: "[ALPHA] Requests that a webhook refused or failed, by error, operation, code and type.",
    metric_type: MetricType::Counter,
    labels: &["error_type", "name", "operation", "rejection_code", "type"],
};

pub(super) static WEBHOOKS_FAILED_OPEN: Description = Description {
    name: "apiserver_admission_webhook_fail_open_count",
    help: "[ALPHA] Calls of a webhook that failed and let the request pass.",
    metric_type: MetricType::Counter,
    labels: &["name", "type"],
};

pub(super) static VALIDATIONS: Description = Description {
    name: "apiserver_validating_admission_policy_check_total",
    help: "[BETA] Validations of a policy that did not hold or failed, by what followed.",
    metric_type: MetricType::Counter,
    labels: VALIDATION_LABELS,
};

pub(super) static VALIDATION_SECONDS: Description = Description {
    name: "apiserver_validating_admission_policy_check_duration_seconds",
    help: "[BETA] Seconds that a policy took whose validation did not hold or failed.",
    metric_type: MetricType::Histogram,
    labels: VALIDATION_LABELS,
};

pub(super) static MUTATIONS: Description = Description {
    name: "apiserver_mutating_admission_policy_check_total",
    help: "[ALPHA] Mutations of a policy, by whether they failed.",
    metric_type: MetricType::Counter,
    labels: MUTATION_LABELS,
};

pub(super) static MUTATION_SECONDS: Description = Description {
    name: "apiserver_mutating_admission_policy_check_duration_seconds",
    help: "[ALPHA] Seconds that mutations of a policy took.",
    metric_type: MetricType::Histogram,
    labels: MUTATION_LABELS,
};
