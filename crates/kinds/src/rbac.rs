//! The kinds of `rbac.authorization.k8s.io`: Roles, ClusterRoles and their bindings.

use crate::check::{Field, children, default, default_empty};
use crate::row::Row;
use crate::strategy::{Check, Strategy};
use keelson_meta::{ErrorList, FieldError, Object, Value, names, value};

/// What all resources of the group share.
const RIGHTS: Strategy = Strategy {
    create_on_update: true,
    update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
    ..Strategy::GENERIC
};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row { resource: "clusterrolebindings", strategy: binding(RIGHTS, false), ..Row::PLAIN },
    Row { resource: "clusterroles", strategy: role(RIGHTS, false), ..Row::PLAIN },
    Row { resource: "rolebindings", strategy: binding(RIGHTS, true), ..Row::PLAIN },
    Row { resource: "roles", strategy: role(RIGHTS, true), ..Row::PLAIN },
];

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles and ClusterRoles.
pub(super) const fn role(base: Strategy, namespaced: bool) -> Strategy {
    let validate = if namespaced { validate_role } else { validate_cluster_role };
    Strategy { name_rule: names::name_is_path_segment, validate, ..base }
}

/// RoleBindings and ClusterRoleBindings.
pub(super) const fn binding(base: Strategy, namespaced: bool) -> Strategy {
    let validate = if namespaced { validate_binding } else { validate_cluster_binding };
    Strategy {
        name_rule: names::name_is_path_segment,
        default: default_binding,
        validate,
        validate_change: validate_role_ref_change,
        ..base
    }
}

fn default_binding(binding: &mut Object) {
    default_empty(binding.object_mut("roleRef"), "apiGroup", GROUP);
    for subject in children(&mut binding.root, "subjects") {
        let kind = subject.get("kind").and_then(Value::as_str);
        if matches!(kind, Some("User" | "Group")) {
            default_empty(subject, "apiGroup", GROUP);
        }
    }
    // Upstream always writes both fields.
    for member in ["kind", "name"] {
        default(binding.object_mut("roleRef"), member, "");
    }
}

fn validate_role(new: &Object, _: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    Field::of(new, "rules").items().for_each(|rule| policy_rule(&rule, true, &mut errors));
    errors
}

fn validate_cluster_role(new: &Object, _: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    Field::of(new, "rules").items().for_each(|rule| policy_rule(&rule, false, &mut errors));
    let aggregation = Field::of(new, "aggregationRule");
    if !aggregation.is_set() {
        return errors;
    }
    let selectors = aggregation.field("clusterRoleSelectors");
    selectors.not_empty(
        &mut errors,
        "at least one clusterRoleSelector required if aggregationRule is non-nil",
    );
    for selector in selectors.items() {
        let before = errors.len();
        selector.label_selector(&mut errors);
        if errors.len() > before {
            selector.invalid_as(&mut errors, Value::Null, "invalid label selector.");
        }
    }
    errors
}

fn policy_rule(rule: &Field<'_, '_>, namespaced: bool, errors: &mut ErrorList) {
    rule.field("verbs").not_empty(errors, "verbs must contain at least one value");
    let urls = rule.field("nonResourceURLs");
    let groups = rule.field("apiGroups");
    let resources = rule.field("resources");
    if !urls.value.is_empty() {
        if namespaced {
            urls.invalid(errors, "namespaced rules cannot apply to non-resource URLs");
        }
        let has_resources = ["apiGroups", "resources", "resourceNames"];
        if has_resources.iter().any(|name| !rule.get(name).is_empty()) {
            let words = "rules cannot apply to both regular resources and non-resource URLs";
            urls.invalid(errors, words);
        }
        return;
    }
    groups.not_empty(errors, "resource rules must supply at least one api group");
    resources.not_empty(errors, "resource rules must supply at least one resource");
}

fn validate_binding(new: &Object, _: Option<&Object>) -> ErrorList {
    checked_binding(new, true)
}

fn validate_cluster_binding(new: &Object, _: Option<&Object>) -> ErrorList {
    checked_binding(new, false)
}

fn checked_binding(new: &Object, namespaced: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let role = Field::of(new, "roleRef");
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    one_of(&role.field("apiGroup"), &mut errors, &[GROUP]);
    one_of(&role.field("kind"), &mut errors, kinds);
    role.field("name").required_rule(&mut errors, names::is_path_segment_name);
    for subject in Field::of(new, "subjects").items() {
        validate_subject(&subject, namespaced, &mut errors);
    }
    errors
}

fn validate_subject(subject: &Field<'_, '_>, namespaced: bool, errors: &mut ErrorList) {
    const KINDS: &[&str] = &["ServiceAccount", "User", "Group"];
    let name = subject.field("name");
    let group = subject.field("apiGroup");
    name.not_empty(errors, "");
    match subject.str("kind") {
        "ServiceAccount" => {
            name.rule_if_set(errors, names::is_dns1123_subdomain);
            if !group.text().is_empty() {
                group.not_supported_text(errors, &[""]);
            }
            if !namespaced {
                subject.field("namespace").not_empty(errors, "");
            }
        }
        "User" | "Group" => one_of(&group, errors, &[GROUP]),
        _ => subject.field("kind").not_supported_text(errors, KINDS),
    }
}

/// Requires a text to be one of `valid`.
fn one_of(field: &Field<'_, '_>, errors: &mut ErrorList, valid: &[&str]) {
    if !valid.contains(&field.text()) {
        field.not_supported_text(errors, valid);
    }
}

/// Checks that `roleRef` does not change.
fn validate_role_ref_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let now = Field::of(new, "roleRef");
    let before = Field::of(old, "roleRef");
    let same = |name: &str| now.str(name) == before.str(name);
    if !["apiGroup", "kind", "name"].into_iter().all(same) {
        // The message shows the Go struct.
        let group = now.str("apiGroup");
        let kind = now.str("kind");
        let name = now.str("name");
        let shown = value!({"APIGroup": group, "Kind": kind, "Name": name});
        errors.push(FieldError::invalid(&now.path, shown, "cannot change roleRef"));
    }
    errors
}
