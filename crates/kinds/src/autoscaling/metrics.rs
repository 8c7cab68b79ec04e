//! The metrics of HorizontalPodAutoscalers.

use super::reference;
use crate::check::Field;
use crate::core::pod::resources::container_resource_name;
use keelson_meta::{ErrorList, names};

const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

/// Validates one type of metric source.
type CheckSource = fn(&Field<'_, '_>, &mut ErrorList);

/// The metric sources in upstream's order. Only the first that is set is validated.
const SOURCES: &[(&str, &str, CheckSource)] = &[
    ("Object", "object", object),
    ("External", "external", external),
    ("Pods", "pods", pods),
    ("Resource", "resource", resource),
    ("ContainerResource", "containerResource", container_resource),
];

/// Returns whether a metric has a value when no pod runs.
pub(super) fn works_at_zero(metric: &Field<'_, '_>) -> bool {
    matches!(metric.str("type"), "Object" | "External")
}

/// Validates one metric of a spec.
pub(super) fn validate(metric: &Field<'_, '_>, errors: &mut ErrorList) {
    let kind = metric.field("type");
    kind.not_empty(errors, "must specify a metric source type");
    kind.one_of(errors, TYPES);
    let present = || SOURCES.iter().filter(|(_, member, _)| metric.has(member));
    if let Some((_, member, check)) = present().next() {
        check(&metric.field(member), errors);
    }
    let expected = SOURCES.iter().find(|(name, ..)| *name == kind.text());
    match expected {
        Some((_, member, _)) if !metric.has(member) => {
            let words = "must populate information for the given metric source";
            metric.field(member).required(errors, words);
        }
        Some(_) => {}
        None => kind.not_supported(errors, TYPES),
    }
    if present().count() == 1 {
        return;
    }
    for (name, member, _) in present() {
        if *name != kind.text() {
            let words = "must populate the given metric source only";
            metric.field(member).forbidden(errors, words);
        }
    }
}

fn object(at: &Field<'_, '_>, errors: &mut ErrorList) {
    reference(&at.field("describedObject"), errors);
    identifier(at, errors);
    let target = at.field("target");
    amounts(&target, errors);
    if !target.has("value") && !target.has("averageValue") {
        let words = "must set either a target value or averageValue";
        target.field("averageValue").required(errors, words);
    }
}

fn external(at: &Field<'_, '_>, errors: &mut ErrorList) {
    identifier(at, errors);
    let target = at.field("target");
    amounts(&target, errors);
    match (target.has("value"), target.has("averageValue")) {
        (false, false) => {
            let words = "must set either a target value for metric or a per-pod target";
            target.field("averageValue").required(errors, words);
        }
        (true, true) => {
            let words = "may not set both a target value for metric and a per-pod target";
            target.field("value").forbidden(errors, words);
        }
        _ => {}
    }
}

fn pods(at: &Field<'_, '_>, errors: &mut ErrorList) {
    identifier(at, errors);
    let target = at.field("target");
    amounts(&target, errors);
    if !target.has("averageValue") {
        let words = "must specify a positive target averageValue";
        target.field("averageValue").required(errors, words);
    }
}

fn resource(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("name").not_empty(errors, "must specify a resource name");
    resource_target(&at.field("target"), errors);
}

fn container_resource(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let name = at.field("name");
    if name.not_empty(errors, "must specify a resource name") {
        container_resource_name(&name, errors);
    }
    let container = at.field("container");
    if container.not_empty(errors, "must specify a container") {
        container.rule(errors, names::is_dns1123_label);
    }
    resource_target(&at.field("target"), errors);
}

fn resource_target(target: &Field<'_, '_>, errors: &mut ErrorList) {
    amounts(target, errors);
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => {
            let words = "must set either a target raw value or a target utilization";
            target.field("averageUtilization").required(errors, words);
        }
        (true, true) => {
            let words = "may not set both a target raw value and a target utilization";
            target.field("averageValue").forbidden(errors, words);
        }
        _ => {}
    }
}

fn identifier(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let metric = at.field("metric");
    let name = metric.field("name");
    if name.not_empty(errors, "must specify a metric name") {
        name.rule(errors, names::is_path_segment_name);
    }
}

fn amounts(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let kind = at.field("type");
    kind.not_empty(errors, "must specify a metric target type");
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        kind.invalid_as(errors, kind.text(), "must be either Utilization, Value, or AverageValue");
    }
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
