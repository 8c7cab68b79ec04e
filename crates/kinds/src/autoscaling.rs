//! HorizontalPodAutoscalers and PodDisruptionBudgets.

use super::check::{At, child, default, default_empty};
use super::workloads::{count_or_percent, not_above_all};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, FieldError, Map, Object, Value, names, value};

/// Where objects of autoscaling/v1 keep metrics that it cannot say.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CPU_PERCENT: i64 = 80;

/// HorizontalPodAutoscalers.
pub(super) fn autoscaler(base: Strategy) -> Strategy {
    Strategy { default: default_autoscaler, validate: |new, _| validate_autoscaler(new), ..base }
}

fn default_autoscaler(obj: &mut Object) {
    let has_metrics = obj.annotation(METRICS).is_some();
    let is_first = obj.api_version().ends_with("/v1");
    let spec = obj.object_mut("spec");
    default(spec, "minReplicas", 1);
    if is_first {
        if !has_metrics {
            default(spec, "targetCPUUtilizationPercentage", CPU_PERCENT);
        }
        return;
    }
    if spec.get("metrics").is_none_or(Value::is_empty) {
        let metric = value!({
            "type": "Resource",
            "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": CPU_PERCENT}}
        });
        spec.insert("metrics", vec![metric]);
    }
    if let Some(behavior) = child(spec, "behavior") {
        let percent = value!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = value!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let up = behavior.object_at("scaleUp");
        scaling(up, vec![pods, percent.clone()]);
        default(up, "stabilizationWindowSeconds", 0);
        scaling(behavior.object_at("scaleDown"), vec![percent]);
    }
}

fn scaling(rules: &mut Map, policies: Vec<Value>) {
    default(rules, "selectPolicy", "Max");
    default_empty(rules, "policies", policies);
}

fn validate_autoscaler(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = At::of(new, "spec");
    let (min, max) = (spec.field("minReplicas"), spec.field("maxReplicas"));
    if min.is_set() && min.number() < 1 {
        min.invalid(&mut errors, "must be greater than or equal to 1");
    }
    if max.number() < 1 {
        max.invalid_as(&mut errors, max.number(), "must be greater than 0");
    }
    if min.is_set() && max.number() < min.number() {
        let words = "must be greater than or equal to `minReplicas`";
        max.invalid_as(&mut errors, max.number(), words);
    }
    reference(&spec.field("scaleTargetRef"), &mut errors);
    let metrics = spec.field("metrics");
    metrics.items().for_each(|metric| validate_metric(&metric, &mut errors));
    behavior(&spec.field("behavior"), &mut errors);
    errors
}

fn reference(at: &At<'_, '_>, errors: &mut ErrorList) {
    for name in ["kind", "name"] {
        at.field(name).required_rule(errors, names::is_path_segment_name);
    }
}

fn validate_metric(metric: &At<'_, '_>, errors: &mut ErrorList) {
    const TYPES: &[(&str, &str)] = &[
        ("ContainerResource", "containerResource"),
        ("External", "external"),
        ("Object", "object"),
        ("Pods", "pods"),
        ("Resource", "resource"),
    ];
    let kind = metric.field("type");
    if !kind.not_empty(errors, "must specify a metric source type") {
        return;
    }
    let Some((_, member)) = TYPES.iter().find(|(name, _)| *name == kind.text()) else {
        let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        return kind.not_supported(errors, &known);
    };
    let set = TYPES.iter().filter(|(_, member)| metric.has(member)).count();
    if set > 1 {
        let others = TYPES.iter().filter(|(_, other)| other != member && metric.has(other));
        for (_, other) in others {
            let words = format!("must populate the given metric source only ({})", kind.text());
            metric.field(other).forbidden(errors, &words);
        }
    }
    let source = metric.field(member);
    if !source.is_set() {
        let words = "must populate information for the given metric source";
        return source.required(errors, words);
    }
    if matches!(*member, "resource" | "containerResource") {
        source.field("name").not_empty(errors, "must specify a resource name");
    }
    if *member == "containerResource" {
        source.field("container").not_empty(errors, "must specify a container");
    }
    if matches!(*member, "pods" | "object" | "external") {
        let identifier = source.field("metric");
        identifier.field("name").required_rule(errors, names::is_path_segment_name);
        identifier.field("selector").label_selector(errors);
    }
    target(&source.field("target"), errors);
}

fn target(at: &At<'_, '_>, errors: &mut ErrorList) {
    let kind = at.field("type");
    if !kind.not_empty(errors, "must specify a metric target type") {
        return;
    }
    kind.one_of(errors, &["AverageValue", "Utilization", "Value"]);
    for name in ["value", "averageValue"] {
        let amount = at.field(name);
        if amount.quantity().is_some_and(|amount| amount.sign() <= 0) {
            amount.invalid(errors, "must be positive");
        }
    }
    let percent = at.field("averageUtilization");
    if percent.is_set() && percent.number() < 1 {
        percent.invalid(errors, "must be greater than 0");
    }
}

fn behavior(at: &At<'_, '_>, errors: &mut ErrorList) {
    const WINDOW_SECONDS_MAX: i64 = 3600;
    const PERIOD_SECONDS_MAX: i64 = 1800;
    for direction in ["scaleUp", "scaleDown"] {
        let rules = at.field(direction);
        if !rules.is_set() {
            continue;
        }
        let window = rules.field("stabilizationWindowSeconds");
        window.not_negative(errors);
        if window.number() > WINDOW_SECONDS_MAX {
            let words = format!("must be less than or equal to {WINDOW_SECONDS_MAX}");
            window.invalid(errors, &words);
        }
        rules.field("selectPolicy").one_of_if_set(errors, &["Disabled", "Max", "Min"]);
        let policies = rules.field("policies");
        policies.not_empty(errors, "must specify at least one Policy");
        for policy in policies.items() {
            policy.field("type").one_of(errors, &["Percent", "Pods"]);
            policy.field("value").positive(errors);
            let period = policy.field("periodSeconds");
            period.positive(errors);
            if period.number() > PERIOD_SECONDS_MAX {
                let words = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
                period.invalid(errors, &words);
            }
        }
    }
}

/// PodDisruptionBudgets.
pub(super) fn disruption_budget(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_path_segment,
        validate: |new, _| validate_budget(new),
        ..base
    }
}

fn validate_budget(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = At::of(new, "spec");
    let (min, max) = (spec.field("minAvailable"), spec.field("maxUnavailable"));
    if min.is_set() && max.is_set() {
        let words = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid(&spec.path, spec.value.clone(), words));
    }
    for at in [min, max] {
        if at.is_set() {
            count_or_percent(&at, &mut errors);
            not_above_all(&at, &mut errors);
        }
    }
    spec.field("selector").label_selector(&mut errors);
    let policies = &["AlwaysAllow", "IfHealthyBudget"];
    spec.field("unhealthyPodEvictionPolicy").one_of_if_set(&mut errors, policies);
    errors
}
