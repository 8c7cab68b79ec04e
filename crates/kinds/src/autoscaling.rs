//! The kinds of `autoscaling`: HorizontalPodAutoscalers.

mod metrics;

use super::check::{Field, NOT_NEGATIVE, child, default};
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::gates;
use crate::row::Row;
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Feature, GroupVersion, Map, Object, Value, names, value};

const GATED: &[GatedField] = &[gate(
    Feature::HPAConfigurableTolerance,
    &[&["behavior", "scaleUp", "tolerance"], &["behavior", "scaleDown", "tolerance"]],
)];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "horizontalpodautoscalers",
    strategy: autoscaler(Strategy {
        manages_converted_fields: true,
        gated: &[GatedFields { root: &["spec"], fields: GATED }],
        ..Strategy::GENERIC
    }),
    ..Row::PLAIN
}];

const CPU_PERCENT: i64 = 80;

/// HorizontalPodAutoscalers.
pub(super) const fn autoscaler(base: Strategy) -> Strategy {
    Strategy {
        default: default_autoscaler,
        validate: |new, _| validate_autoscaler(new),
        validate_status: |new, _| validate_status(new),
        ..base
    }
}

fn default_autoscaler(obj: &mut Object) {
    let is_first = obj.api_version().ends_with("/v1");
    let spec = obj.object_mut("spec");
    default(spec, "minReplicas", 1);
    // The other defaults of v1 are set after its conversion to v2.
    if is_first {
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
    default(rules, "policies", policies);
}

fn validate_autoscaler(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let min = spec.field("minReplicas");
    let max = spec.field("maxReplicas");
    let least = i64::from(!gates::is_on(Feature::HPAScaleToZero));
    if min.is_set() && min.number() < least {
        min.invalid(&mut errors, &format!("must be greater than or equal to {least}"));
    }
    match max.number() {
        0 => max.required(&mut errors, "must be set and greater than 0"),
        1.. => {}
        _ => max.invalid(&mut errors, "must be greater than or equal to 1"),
    }
    if min.is_set() && max.number() < min.number() {
        let words = "must be greater than or equal to `minReplicas`";
        max.invalid_as(&mut errors, max.number(), words);
    }
    let target = spec.field("scaleTargetRef");
    reference(&target, &mut errors);
    scalable_group(&target, &mut errors);
    let metrics = spec.field("metrics");
    metrics.items().for_each(|metric| metrics::validate(&metric, &mut errors));
    if min.is_set() && min.number() == 0 && !metrics.items().any(|at| metrics::works_at_zero(&at)) {
        let words = "must specify at least one Object or External metric to support scaling to \
                     zero replicas";
        metrics.forbidden(&mut errors, words);
    }
    behavior(&spec.field("behavior"), &mut errors);
    errors
}

/// Validates the group: in the core group, only ReplicationControllers can be scaled.
fn scalable_group(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let version = at.field("apiVersion");
    let Some(gv) = GroupVersion::parse(version.text()) else { return };
    if gv.group.is_empty() && at.str("kind") != "ReplicationController" {
        version.invalid_as(errors, version.text(), "apiVersion must specify API group");
    }
}

/// Validates a reference to an object by kind, name and group.
fn reference(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["kind", "name"] {
        at.field(name).required_rule(errors, names::is_path_segment_name);
    }
    let version = at.field("apiVersion");
    if version.text().matches('/').count() > 1 {
        let words = format!("unexpected GroupVersion string: {}", version.text());
        version.invalid(errors, &words);
    }
}

fn validate_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    status.field("currentReplicas").not_negative(&mut errors);
    status.field("desiredReplicas").not_negative(&mut errors);
    errors
}

fn behavior(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const WINDOW_SECONDS_MAX: i64 = 3600;
    const PERIOD_SECONDS_MAX: i64 = 1800;
    for direction in ["scaleUp", "scaleDown"] {
        let rules = at.field(direction);
        if !rules.is_set() {
            continue;
        }
        let window = rules.field("stabilizationWindowSeconds");
        if window.number() < 0 {
            window.invalid(errors, "must be greater than or equal to zero");
        }
        if window.number() > WINDOW_SECONDS_MAX {
            let words = format!("must be less than or equal to {WINDOW_SECONDS_MAX}");
            window.invalid(errors, &words);
        }
        rules.field("selectPolicy").one_of_if_set(errors, &["Disabled", "Max", "Min"]);
        let policies = rules.field("policies");
        policies.not_empty(errors, "must specify at least one Policy");
        for policy in policies.items() {
            policy.field("type").one_of(errors, &["Percent", "Pods"]);
            let period = policy.field("periodSeconds");
            for field in [policy.field("value"), period] {
                if field.number() <= 0 {
                    field.invalid_as(errors, field.number(), "must be greater than zero");
                }
            }
            if period.number() > PERIOD_SECONDS_MAX {
                let words = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
                period.invalid(errors, &words);
            }
        }
        let tolerance = rules.field("tolerance");
        if tolerance.quantity().is_some_and(|amount| amount.sign() < 0) {
            tolerance.invalid(errors, NOT_NEGATIVE);
        }
    }
}
