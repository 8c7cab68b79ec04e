//! Roles and their bindings.

use super::check::{At, child};
use crate::strategy::Strategy;
use keelson_meta::selector::{Selector, validate_label_selector};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Object, Value, names};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn strategy(resource: &str, base: Strategy) -> Strategy {
    let base = Strategy { name_rule: names::name_is_path_segment, ..base };
    match resource {
        "roles" => Strategy { validate: |new, _| validate_role(new, true), ..base },
        "clusterroles" => Strategy { validate: |new, _| validate_role(new, false), ..base },
        "rolebindings" => Strategy {
            default: default_binding,
            validate: |new, old| validate_binding(new, old, true),
            ..base
        },
        "clusterrolebindings" => Strategy {
            default: default_binding,
            validate: |new, old| validate_binding(new, old, false),
            ..base
        },
        _ => base,
    }
}

fn default_binding(binding: &mut Object) {
    if let Some(role) = child(&mut binding.root, "roleRef")
        && role.get("apiGroup").is_none_or(Value::is_empty)
    {
        role.insert("apiGroup", GROUP);
    }
    let subjects = binding.root.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_ours = matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group"));
        if is_ours && subject.get("apiGroup").is_none_or(Value::is_empty) {
            subject.insert("apiGroup", GROUP);
        }
    }
}

fn validate_role(role: &Object, is_namespaced: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    for rule in At::of(role, "rules").items() {
        validate_rule(&rule, is_namespaced, &mut errors);
    }
    let aggregation = At::of(role, "aggregationRule");
    if is_namespaced || !aggregation.is_set() {
        return errors;
    }
    let selectors = aggregation.field("clusterRoleSelectors");
    if selectors.array().is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        selectors.required(&mut errors, why);
    }
    for selector in selectors.items() {
        errors.extend(validate_label_selector(Some(selector.value), &selector.path));
        if Selector::from_object(Some(selector.value)).is_err() {
            selector.invalid_as(&mut errors, Value::Null, "invalid label selector.");
        }
    }
    errors
}

fn validate_rule(rule: &At<'_, '_>, is_namespaced: bool, errors: &mut ErrorList) {
    let has = |name: &str| !rule.field(name).array().is_empty();
    let needs = |name: &str, why: &str, errors: &mut ErrorList| {
        if !has(name) {
            rule.field(name).required(errors, why);
        }
    };
    needs("verbs", "verbs must contain at least one value", errors);
    if has("nonResourceURLs") {
        let urls = rule.field("nonResourceURLs");
        if is_namespaced {
            urls.invalid(errors, "namespaced rules cannot apply to non-resource URLs");
        } else if has("apiGroups") || has("resources") || has("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            urls.invalid(errors, why);
        }
        return;
    }
    needs("apiGroups", "resource rules must supply at least one api group", errors);
    needs("resources", "resource rules must supply at least one resource", errors);
}

fn validate_binding(new: &Object, old: Option<&Object>, is_namespaced: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let role = At::of(new, "roleRef");
    role.field("apiGroup").one_of(&mut errors, &[GROUP]);
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    role.field("kind").one_of(&mut errors, kinds);
    named(&role.field("name"), names::name_is_path_segment, &mut errors);
    for subject in At::of(new, "subjects").items() {
        validate_subject(&subject, is_namespaced, &mut errors);
    }
    if old.is_some_and(|old| old.get("roleRef") != new.get("roleRef")) {
        let [group, kind, name] = ["apiGroup", "kind", "name"].map(|name| quote(role.str(name)));
        let shown = format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}");
        let error = FieldError::invalid(&role.path, "", "cannot change roleRef");
        errors.push(FieldError { shown: Some(shown), ..error });
    }
    errors
}

fn validate_subject(subject: &At<'_, '_>, is_namespaced: bool, errors: &mut ErrorList) {
    let name = subject.field("name");
    match subject.str("kind") {
        "ServiceAccount" => {
            named(&name, names::name_is_dns_subdomain, errors);
            if !subject.str("apiGroup").is_empty() {
                subject.field("apiGroup").not_supported(errors, &[""]);
            }
            if !is_namespaced && subject.str("namespace").is_empty() {
                subject.field("namespace").required(errors, "");
            }
        }
        kind => {
            if name.text().is_empty() {
                name.required(errors, "");
            }
            if matches!(kind, "User" | "Group") {
                subject.field("apiGroup").one_of(errors, &[GROUP]);
            } else {
                let kinds = ["ServiceAccount", "User", "Group"];
                subject.field("kind").not_supported(errors, &kinds);
            }
        }
    }
}

/// A name must be there, and be one.
fn named(name: &At<'_, '_>, rule: names::NameRule, errors: &mut ErrorList) {
    if name.text().is_empty() {
        name.required(errors, "");
    } else {
        for why in rule(name.text(), false) {
            name.invalid(errors, &why);
        }
    }
}
