//! Validates affinity, tolerations, topology spread constraints and scheduling gates.

use crate::check::Field;
use crate::gates;
use keelson_meta::names;
use keelson_meta::{ErrorList, Feature, FieldError, Map, SmallSet, Value};
use std::collections::HashMap;

const NOT_AN_OPERATOR: &str = "not a valid selector operator";
const SELECTED: &str = "exists in both matchLabelKeys and labelSelector";

/// Validates `affinity`.
pub(super) fn affinity(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let node = at.field("nodeAffinity");
    let required = node.field("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() {
        node_selector_with_values(&required, errors);
    }
    for term in node.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&term, errors);
        node_selector_term(&term.field("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = at.field(kind);
        for term in pods.field("requiredDuringSchedulingIgnoredDuringExecution").items() {
            pod_term(&term, errors);
        }
        for term in pods.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
            weight(&term, errors);
            pod_term(&term.field("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = term.field("weight");
    if !(1..=100).contains(&at.number()) {
        at.invalid_as(errors, at.number(), "must be in the range 1-100");
    }
}

/// Validates a node selector whose values must be valid label values.
pub(crate) fn node_selector_with_values(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let terms = at.field("nodeSelectorTerms");
    if terms.array().is_empty() {
        return terms.required(errors, "must have at least one node selector term");
    }
    for term in terms.items() {
        for expression in term.field("matchExpressions").items() {
            node_requirement(&expression, errors);
            let values = expression.field("values");
            values.items().for_each(|value| value.rule(errors, names::is_valid_label_value));
        }
        node_fields(&term, errors);
    }
}

fn node_selector_term(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for expression in at.field("matchExpressions").items() {
        node_requirement(&expression, errors);
    }
    node_fields(at, errors);
}

fn node_fields(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for field in at.field("matchFields").items() {
        let values = field.field("values");
        match field.str("operator") {
            "In" | "NotIn" if values.array().len() != 1 => {
                let words = "must be only one value when `operator` is 'In' or 'NotIn' for node \
                             field selector";
                values.required(errors, words);
            }
            "In" | "NotIn" => {}
            other => field.field("operator").invalid_as(errors, other, NOT_AN_OPERATOR),
        }
        let key = field.field("key");
        if key.text() == "metadata.name" {
            values.items().for_each(|value| value.rule(errors, names::is_dns1123_subdomain));
        } else {
            key.invalid_as(errors, key.text(), "not a valid field selector key");
        }
    }
}

fn node_requirement(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let values = at.field("values");
    let count = values.array().len();
    match at.str("operator") {
        "In" | "NotIn" if count == 0 => {
            values.required(errors, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let words = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            values.forbidden(errors, words);
        }
        "Gt" | "Lt" if count != 1 => {
            let words = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            values.required(errors, words);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => at.field("operator").invalid_as(errors, other, NOT_AN_OPERATOR),
    }
    at.field("key").rule(errors, names::is_qualified_name);
}

fn pod_term(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("labelSelector").label_selector(errors);
    at.field("namespaceSelector").label_selector(errors);
    let place = at.path.field("namespace");
    for name in at.field("namespaces").items() {
        for why in names::is_dns1123_label(name.text()) {
            errors.push(FieldError::invalid(&place, name.text(), &why));
        }
    }
    for keys in ["matchLabelKeys", "mismatchLabelKeys"] {
        let list = at.field(keys);
        label_keys(&list, at.has("labelSelector"), errors);
    }
    keys_not_selected(at, errors);
    let others: SmallSet<&str> =
        at.field("mismatchLabelKeys").array().iter().filter_map(Value::as_str).collect();
    for key in at.field("matchLabelKeys").items() {
        if others.contains(&key.text()) {
            key.invalid(errors, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    let key = at.field("topologyKey");
    key.not_empty(errors, "can not be empty");
    key.rule(errors, names::is_qualified_name);
}

/// Validates `matchLabelKeys` or `mismatchLabelKeys`.
fn label_keys(keys: &Field<'_, '_>, has_selector: bool, errors: &mut ErrorList) {
    if keys.array().is_empty() {
        return;
    }
    if !has_selector {
        return keys.forbidden(errors, "must not be specified when labelSelector is not set");
    }
    keys.items().for_each(|key| key.rule(errors, names::is_qualified_name));
}

/// Checks that no key of `matchLabelKeys` is in the selector, too. The requirement that is made of
/// it when a pod is created stands in the selector already, so a key may be there once.
fn keys_not_selected(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let keys = at.get("matchLabelKeys").as_array().unwrap_or_default();
    let selector = at.get("labelSelector");
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut seen: SmallSet<&str> =
        labels.into_iter().flat_map(Map::iter).map(|(key, _)| key.as_str()).collect();
    let terms = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    for key in terms.iter().filter_map(|term| term.str_at(&["key"])) {
        let index = keys.iter().rposition(|one| one.as_str() == Some(key));
        if let Some(index) = index.filter(|_| seen.contains(&key)) {
            errors.push(FieldError::invalid(&at.path.index(index), key, SELECTED));
        }
        seen.insert(key);
    }
}

/// The same where no requirements are made of the keys.
fn keys_selected_nowhere(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let selector = at.get("labelSelector");
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let terms = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    for key in at.field("matchLabelKeys").items() {
        let is_label = labels.is_some_and(|labels| labels.get(key.text()).is_some());
        if is_label || terms.iter().any(|term| term.str_at(&["key"]) == Some(key.text())) {
            key.invalid(errors, SELECTED);
        }
    }
}

/// Validates `tolerations`.
pub(crate) fn tolerations(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let compares = gates::is_on(Feature::TaintTolerationComparisonOperators);
    all_tolerations(list, compares, errors);
}

/// Validates the tolerations of a RuntimeClass, without numeric operators.
pub(crate) fn plain_tolerations(list: &Field<'_, '_>, errors: &mut ErrorList) {
    all_tolerations(list, false, errors);
}

fn all_tolerations(list: &Field<'_, '_>, compares: bool, errors: &mut ErrorList) {
    for at in list.items() {
        let operator = at.field("operator");
        at.field("key").rule_if_set(errors, names::is_qualified_name);
        if at.str("key").is_empty() && operator.text() != "Exists" {
            let words = "operator must be Exists when `key` is empty, which means \"match all \
                         values and all keys\"";
            operator.invalid_as(errors, operator.text(), words);
        }
        if at.has("tolerationSeconds") && at.str("effect") != "NoExecute" {
            let words = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            at.field("effect").invalid_as(errors, at.str("effect"), words);
        }
        match operator.text() {
            "" | "Equal" => {
                let messages = names::is_valid_label_value(at.str("value"));
                if !messages.is_empty() {
                    operator.invalid_as(errors, at.str("value"), &messages.join(";"));
                }
            }
            "Exists" if !at.str("value").is_empty() => {
                let words = "value must be empty when `operator` is 'Exists'";
                operator.invalid_as(errors, at.str("value"), words);
            }
            "Exists" => {}
            "Lt" | "Gt" if compares => {
                comparison(&at.field("value"), errors);
            }
            "Lt" | "Gt" => operator.not_supported(errors, &["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.not_supported(errors, &["Equal", "Exists"]),
        }
        if !at.str("effect").is_empty() {
            at.field("effect").one_of(errors, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

/// Validates the value of a numeric operator.
fn comparison(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let text = at.text();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_canonical = is_number && (!digits.starts_with('0') || text == "0");
    if text.is_empty() {
        at.invalid_as(errors, text, "must be non-empty");
    } else if !is_canonical {
        at.invalid(errors, "must be a valid decimal integer in canonical form");
    }
    let plain = text.strip_prefix('+').unwrap_or(digits);
    let is_read = !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_digit());
    if is_read && text.parse::<i64>().is_ok() {
        return;
    }
    let why = if is_read { "value out of range" } else { "invalid syntax" };
    let words = format!("strconv.ParseInt: parsing {}: {why}", keelson_meta::status::quote(text));
    at.invalid_as(errors, text, &words);
}

/// Validates `schedulingGates`.
pub(super) fn gates(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for at in list.items() {
        let name = at.str("name");
        for why in names::is_qualified_name(name) {
            at.invalid_as(errors, name, &why);
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at.path, name));
        }
    }
}

/// Validates `topologySpreadConstraints`.
pub(super) fn spread(list: &Field<'_, '_>, errors: &mut ErrorList) {
    const NOT_POSITIVE: &str = "must be greater than zero";
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    fn topology(item: &Value) -> [&str; 2] {
        ["topologyKey", "whenUnsatisfiable"].map(|name| item.str_at(&[name]).unwrap_or_default())
    }
    let items = list.array().iter().enumerate();
    let last: HashMap<_, usize> = items.map(|(index, item)| (topology(item), index)).collect();
    for (index, at) in list.items().enumerate() {
        let skew = at.field("maxSkew");
        if skew.number() <= 0 {
            skew.invalid_as(errors, skew.number(), NOT_POSITIVE);
        }
        let key = at.field("topologyKey");
        key.not_empty(errors, "can not be empty");
        let action = at.field("whenUnsatisfiable");
        action.one_of(errors, ACTIONS);
        if last.get(&topology(at.value)).is_some_and(|last| *last > index) {
            let shown = format!("{{{}, {}}}", key.text(), action.text());
            let place = at.path.field("{topologyKey, whenUnsatisfiable}");
            errors.push(FieldError::duplicate(&place, shown));
        }
        let domains = at.field("minDomains");
        if domains.is_set() {
            if domains.number() <= 0 {
                domains.invalid(errors, NOT_POSITIVE);
            }
            if action.text() != "DoNotSchedule" {
                let words = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    action.text()
                );
                domains.invalid(errors, &words);
            }
        }
        at.field("nodeAffinityPolicy").one_of_if_set(errors, &["Honor", "Ignore"]);
        at.field("nodeTaintsPolicy").one_of_if_set(errors, &["Honor", "Ignore"]);
        let keys = at.field("matchLabelKeys");
        label_keys(&keys, at.has("labelSelector"), errors);
        match gates::is_on(Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge) {
            true => keys_not_selected(&at, errors),
            false => keys_selected_nowhere(&at, errors),
        }
        at.field("labelSelector").label_selector(errors);
    }
}
