//! Nodes.

use super::check::{At, NOT_NEGATIVE, child, default};
use crate::strategy::{SelectableField, Strategy};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Object, Seen, Value, names};

const UNSCHEDULABLE: &[SelectableField] = &[SelectableField {
    name: "spec.unschedulable",
    places: &[&["spec", "unschedulable"]],
    unset: "false",
}];

/// Nodes tell their own state.
pub(super) fn node(base: Strategy) -> Strategy {
    Strategy {
        status_on_create: true,
        fields: UNSCHEDULABLE,
        default: default_node,
        validate: |new, old| {
            let mut errors = ErrorList::new();
            taints(&At::of(new, "spec").field("taints"), &mut errors);
            validate(new, old, &mut errors);
            errors
        },
        validate_status: |new, old| {
            let mut errors = ErrorList::new();
            validate(new, old, &mut errors);
            errors
        },
        ..base
    }
}

fn default_node(node: &mut Object) {
    if let Some(status) = child(&mut node.root, "status")
        && let Some(capacity) = status.get("capacity").cloned().filter(|list| !list.is_empty())
    {
        default(status, "allocatable", capacity);
    }
    let Some(spec) = child(&mut node.root, "spec") else { return };
    let first = spec.get("podCIDRs").and_then(Value::as_array).and_then(|list| list.first());
    match (first.cloned(), spec.get("podCIDR").filter(|range| !range.is_empty()).cloned()) {
        (Some(first), _) => {
            spec.insert("podCIDR", first);
        }
        (None, Some(range)) => {
            spec.insert("podCIDRs", vec![range]);
        }
        (None, None) => {}
    }
}

fn validate(new: &Object, old: Option<&Object>, errors: &mut ErrorList) {
    let status = At::of(new, "status");
    let Some(old) = old else { return };
    for list in ["capacity", "allocatable"] {
        let amounts = status.field(list);
        for (name, amount) in amounts.entries() {
            if amount.quantity().is_some_and(|amount| amount.sign() < 0) {
                let place = amounts.path.field(name);
                errors.push(FieldError::invalid(&place, amount.value.clone(), NOT_NEGATIVE));
            }
        }
    }
    let mut seen: Seen<(&str, &str)> = Seen::new();
    for address in status.field("addresses").items() {
        if !seen.insert((address.str("type"), address.str("address"))) {
            let (kind, text) = (quote(address.str("type")), quote(address.str("address")));
            let shown = format!("{{\"Type\":{kind},\"Address\":{text}}}");
            let error = FieldError::duplicate(&address.path, "");
            errors.push(FieldError { shown: Some(shown), ..error });
        }
    }
    update(new, old, errors);
}

/// What names the machine is given once.
fn update(new: &Object, old: &Object, errors: &mut ErrorList) {
    let (spec, stored) = (At::of(new, "spec"), At::of(old, "spec"));
    for (name, word) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        if !stored.get(name).is_empty() && spec.get(name) != stored.get(name) {
            let words = format!("node updates may not change {word} except from \"\" to valid");
            spec.field(name).forbidden(errors, &words);
        }
    }
    if spec.get("externalID") != stored.get("externalID") {
        spec.field("externalID").forbidden(errors, "may not be updated");
    }
}

fn taints(list: &At<'_, '_>, errors: &mut ErrorList) {
    let mut seen: Seen<(&str, &str)> = Seen::new();
    for taint in list.items() {
        taint.field("key").rule(errors, names::is_qualified_name);
        for why in names::is_valid_label_value(taint.str("value")) {
            taint.field("value").invalid_as(errors, taint.str("value"), &why);
        }
        let effects = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        taint.field("effect").required_one_of(errors, effects);
        if !seen.insert((taint.str("key"), taint.str("effect"))) {
            let error = FieldError::duplicate(&taint.path, taint.value.clone());
            let detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(FieldError { detail, ..error });
        }
    }
}
