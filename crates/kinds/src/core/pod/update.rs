//! Validates the changes of a pod in an update.

use crate::check::Field;
use crate::equality::equal_or_empty;
use crate::equality::{self, go};
use keelson_meta::status::{quote, show};
use keelson_meta::{ErrorList, FieldError, Map, Object, SmallSet, Value};

const MUTABLE: &str = "pod updates may not change fields other than \
     `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),\
     `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update.
pub(super) fn validate(new: &Object, old: &Object, errors: &mut ErrorList) {
    let at = Field::of(new, "spec");
    let before = Field::of(old, "spec");
    for list in ["containers", "initContainers"] {
        if at.field(list).array().len() != before.field(list).array().len() {
            let words = "pod updates may not add or remove containers";
            return at.field(list).forbidden(errors, words);
        }
        for container in at.field(list).items() {
            let image = container.field("image");
            if image.text().is_empty() {
                image.required(errors, "");
            } else if image.text().trim().len() != image.text().len() {
                image.invalid(errors, "must not have leading or trailing whitespace");
            }
        }
    }
    if !deadline(&at, &before, errors) {
        return;
    }
    tolerations(&at.field("tolerations"), before.field("tolerations").array(), errors);
    gates(&at.field("schedulingGates"), before.field("schedulingGates").array(), errors);
    let Some(desired) = at.value.as_object() else { return };
    let Some(stored) = before.value.as_object() else { return };
    if equality::equal(go::POD_SPEC, at.value, before.value) {
        return;
    }
    let mut desired = desired.clone();
    for list in ["containers", "initContainers"] {
        keep_images(&mut desired, stored, list);
    }
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        keep(&mut desired, stored, name);
    }
    let grace = |spec: &Map| spec.get("terminationGracePeriodSeconds").and_then(Value::as_int);
    if grace(stored).is_some_and(|seconds| seconds < 0) && grace(&desired) == Some(1) {
        keep(&mut desired, stored, "terminationGracePeriodSeconds");
    }
    if !before.field("schedulingGates").array().is_empty() {
        gated(&at, &before, &mut desired, errors);
    }
    let desired = Value::Object(desired);
    if !equality::equal(go::POD_SPEC, &desired, before.value) {
        let words = format!("{MUTABLE}\n{}", differences(&desired, before.value));
        errors.push(FieldError::forbidden(&at.path, &words));
    }
}

fn keep(desired: &mut Map, stored: &Map, name: &str) {
    match stored.get(name) {
        Some(value) => desired.insert(name, value.clone()),
        None => desired.remove(name),
    };
}

fn keep_images(desired: &mut Map, stored: &Map, list: &str) {
    let images = stored.get(list).and_then(Value::as_array).unwrap_or_default();
    let containers = desired.get_mut(list).and_then(Value::as_array_mut);
    for (container, before) in containers.into_iter().flatten().zip(images) {
        if let (Some(container), Some(before)) = (container.as_object_mut(), before.as_object()) {
            keep(container, before, "image");
        }
    }
}

/// Returns the differing fields, one line for each side.
pub(crate) fn differences(new: &Value, old: &Value) -> String {
    let mut lines = String::new();
    let members = [old, new].into_iter().filter_map(Value::as_object).flat_map(Map::iter);
    let mut names: Vec<&str> = members.map(|(key, _)| key.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let before = old.get(name);
        let now = new.get(name);
        if before == now {
            continue;
        }
        for (sign, value) in [('-', before), ('+', now)] {
            if let Some(value) = value {
                lines.push_str(&format!("{sign} {}: {}\n", quote(name), show(value)));
            }
        }
    }
    lines
}

/// Validates `activeDeadlineSeconds`. Returns whether to validate the rest.
fn deadline(at: &Field<'_, '_>, before: &Field<'_, '_>, errors: &mut ErrorList) -> bool {
    let now = at.field("activeDeadlineSeconds");
    match (now.value.as_int(), before.int("activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            now.in_range(errors, 0, i64::from(i32::MAX));
            false
        }
        (Some(seconds), Some(stored)) if stored < seconds => {
            now.invalid(errors, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            let words = "must not update from a positive integer to nil value";
            now.invalid(errors, words);
            true
        }
        _ => true,
    }
}

/// Checks that tolerations are only added, or change only their time.
fn tolerations(at: &Field<'_, '_>, stored: &[Value], errors: &mut ErrorList) {
    fn without_time(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"]
            .map(|name| toleration.str_at(&[name]).unwrap_or_default())
    }
    let kept: SmallSet<[&str; 4]> = at.array().iter().map(without_time).collect();
    if !stored.iter().all(|value| kept.contains(&without_time(value))) {
        at.forbidden(
            errors,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    } else {
        // Upstream validates them a second time here.
        super::scheduling::tolerations(at, errors);
    }
}

fn gates(at: &Field<'_, '_>, stored: &[Value], errors: &mut ErrorList) {
    let known: SmallSet<&str> = stored.iter().filter_map(|gate| gate.str_at(&["name"])).collect();
    for gate in at.items() {
        if !known.contains(&gate.str("name")) {
            let words = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                gate.str("name")
            );
            gate.field("name").forbidden(errors, &words);
        }
    }
}

/// Validates changes of scheduling directives: a gated pod may only get more restrictive ones.
fn gated(at: &Field<'_, '_>, before: &Field<'_, '_>, desired: &mut Map, errors: &mut ErrorList) {
    let Some(stored) = before.value.as_object() else { return };
    let selector = at.field("nodeSelector");
    let old_selector = before.get("nodeSelector");
    if !equal_or_empty(selector.value, old_selector) {
        let labels = old_selector.as_object().into_iter().flat_map(Map::iter);
        if !labels.into_iter().all(|(key, value)| selector.value.get(key) == Some(value)) {
            let words =
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            selector.invalid(errors, words);
        }
        keep(desired, stored, "nodeSelector");
    }
    let affinity = at.field("affinity");
    let old_affinity = before.field("affinity");
    let now = affinity.field("nodeAffinity");
    let then = old_affinity.field("nodeAffinity");
    if equal_or_empty(now.value, then.value) {
        return;
    }
    node_affinity(&now, &then, errors);
    match (desired.get_mut("affinity").and_then(Value::as_object_mut), then.is_set()) {
        (Some(map), true) => {
            map.insert("nodeAffinity", then.value.clone());
        }
        (Some(map), false) => {
            map.remove("nodeAffinity");
            if map.is_empty() && !old_affinity.is_set() {
                desired.remove("affinity");
            }
        }
        (None, _) => {}
    }
}

/// Checks that required terms only get additional conditions.
fn node_affinity(now: &Field<'_, '_>, then: &Field<'_, '_>, errors: &mut ErrorList) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let old_terms = then.get(REQUIRED).array_at(&["nodeSelectorTerms"]);
    if old_terms.is_empty() {
        return;
    }
    let required = now.field(REQUIRED);
    let terms = required.field("nodeSelectorTerms");
    if terms.array().len() != old_terms.len() {
        let words = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return terms.invalid(errors, words);
    }
    for (term, old) in terms.items().zip(old_terms) {
        let extends = |name: &str| {
            let now = term.get(name).as_array().unwrap_or_default();
            let then = old.array_at(&[name]);
            now.len() >= then.len() && now[..then.len()] == *then
        };
        let old_is_empty =
            ["matchExpressions", "matchFields"].iter().all(|n| old.array_at(&[n]).is_empty());
        let fills_empty = old_is_empty && !term.value.is_empty();
        if fills_empty || !extends("matchExpressions") || !extends("matchFields") {
            term.invalid(errors, "only additions are allowed (no mutations or deletions)");
        }
    }
}
