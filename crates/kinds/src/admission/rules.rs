//! Validates the rules and match conditions of webhooks and policies.

use super::expressions::Expressions;
use crate::check::Field;
use keelson_meta::{ErrorList, FieldError, SmallSet, names};
use std::collections::HashSet;

const MATCH_CONDITIONS_MAX: usize = 64;

/// Validates `matchConstraints` of a policy or `matchResources` of a binding.
pub(super) fn match_resources(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("matchPolicy").one_of(errors, &["Equivalent", "Exact"]);
    at.field("namespaceSelector").label_selector(errors);
    at.field("objectSelector").label_selector(errors);
    for list in ["resourceRules", "excludeResourceRules"] {
        at.field(list).items().for_each(|rule| named_rule(&rule, errors));
    }
}

fn named_rule(rule: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for name in rule.field("resourceNames").items() {
        name.rule(errors, names::is_path_segment_name);
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
    }
    rule_with_operations(rule, errors);
}

/// Validates a rule with operations (`RuleWithOperations`).
pub(super) fn rule_with_operations(rule: &Field<'_, '_>, errors: &mut ErrorList) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations = rule.field("operations");
    all_or_some(&operations, "operations", errors);
    operations.items().for_each(|operation| operation.one_of(errors, OPERATIONS));
    all_or_some(&rule.field("apiGroups"), "API groups", errors);
    let versions = rule.field("apiVersions");
    all_or_some(&versions, "API versions", errors);
    for version in versions.items() {
        version.not_empty(errors, "");
    }
    resources(&rule.field("resources"), errors);
    rule.field("scope").one_of_if_set(errors, &["*", "Cluster", "Namespaced"]);
}

/// Checks that a list is not empty, and has no other items beside `*`.
fn all_or_some(list: &Field<'_, '_>, what: &str, errors: &mut ErrorList) {
    if !list.not_empty(errors, "") {
        return;
    }
    let has_star = list.array().iter().any(|value| value.as_str() == Some("*"));
    if has_star && list.array().len() > 1 {
        list.invalid(errors, &format!("if '*' is present, must not specify other {what}"));
    }
}

/// Validates resources and subresources: a wildcard must not overlap with another item.
fn resources(list: &Field<'_, '_>, errors: &mut ErrorList) {
    list.not_empty(errors, "");
    let mut all_subresources_of = HashSet::new();
    let mut subresource_of_all = HashSet::new();
    let mut everything = false;
    let mut all = false;
    let mut single = false;
    for at in list.items() {
        if !at.not_empty(errors, "") {
            continue;
        }
        let text = at.text();
        everything |= text == "*/*";
        all |= text == "*";
        let Some((resource, part)) = text.split_once('/') else {
            // Upstream keeps only the result of the last one.
            single = text != "*";
            continue;
        };
        if all_subresources_of.contains(resource) {
            let words = format!("if '{resource}/*' is present, must not specify {text}");
            at.invalid(errors, &words);
        }
        if subresource_of_all.contains(part) {
            at.invalid(errors, &format!("if '*/{part}' is present, must not specify {text}"));
        }
        if part == "*" {
            all_subresources_of.insert(resource);
        }
        if resource == "*" {
            subresource_of_all.insert(part);
        }
    }
    if everything && list.array().len() > 1 {
        list.invalid(errors, "if '*/*' is present, must not specify other resources");
    }
    if all && single {
        let words = "if '*' is present, must not specify other resources without subresources";
        list.invalid(errors, words);
    }
}

/// Validates the names and expressions of `matchConditions`.
pub(super) fn match_conditions(
    list: &Field<'_, '_>,
    expressions: &Expressions<'_>,
    errors: &mut ErrorList,
) {
    let count = list.array().len();
    if count > MATCH_CONDITIONS_MAX {
        return errors.push(FieldError::too_many(&list.path, count, MATCH_CONDITIONS_MAX));
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for condition in list.items() {
        let text = condition.field("expression");
        if has_expression(&text, "", errors) {
            expressions.match_condition(&text, errors);
        }
        let name = condition.field("name");
        name.required_rule(errors, names::is_qualified_name);
        if !name.text().is_empty() && !seen.insert(name.text()) {
            name.duplicate(errors);
        }
    }
}

/// Requires an expression to have text other than blanks. Returns whether it has.
pub(super) fn has_expression(at: &Field<'_, '_>, detail: &str, errors: &mut ErrorList) -> bool {
    let is_empty = at.text().trim().is_empty();
    if is_empty {
        at.required(errors, detail);
    }
    !is_empty
}
