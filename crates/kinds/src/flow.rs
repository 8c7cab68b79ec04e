//! The kinds of `flowcontrol.apiserver.k8s.io`: FlowSchemas, and rules that they share with
//! PriorityLevelConfigurations.

mod levels;

use super::check::{Field, Go, GoMembers, as_go_struct, default_empty};
use crate::equality::equal_or_empty;
use crate::row::Row;
use crate::strategy::{Check, Generation, StatusMetadata, Strategy};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Value, names, value};

/// What both resources of the group share.
const CONFIGURATION: Strategy = Strategy {
    generation: Generation::OnSpecChange,
    status_metadata: StatusMetadata::KeepAll,
    update_checks: &[Check::Metadata, Check::Rules, Check::Change],
    status_checks: &[Check::Metadata, Check::Rules],
    ..Strategy::GENERIC
};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row { resource: "flowschemas", strategy: flow_schema(CONFIGURATION), ..Row::PLAIN },
    Row {
        resource: "prioritylevelconfigurations",
        strategy: levels::priority_level(CONFIGURATION),
        ..Row::PLAIN
    },
];

const PRECEDENCE: i64 = 1000;
const PRECEDENCE_MAX: i64 = 10_000;
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

const NAME: GoMembers = &[("Name", Go::Text)];
const ACCOUNT: GoMembers = &[("Namespace", Go::Text), ("Name", Go::Text)];
const SUBJECT: GoMembers = &[
    ("Kind", Go::Text),
    ("User", Go::Struct(NAME)),
    ("Group", Go::Struct(NAME)),
    ("ServiceAccount", Go::Struct(ACCOUNT)),
];
const RESOURCE_RULE: GoMembers = &[
    ("Verbs", Go::Pointer),
    ("APIGroups", Go::Pointer),
    ("Resources", Go::Pointer),
    ("ClusterScope", Go::Flag),
    ("Namespaces", Go::Pointer),
];
const URL_RULE: GoMembers = &[("Verbs", Go::Pointer), ("NonResourceURLs", Go::Pointer)];
const RULE: GoMembers = &[
    ("Subjects", Go::List(SUBJECT)),
    ("ResourceRules", Go::List(RESOURCE_RULE)),
    ("NonResourceRules", Go::List(URL_RULE)),
];
/// The spec of a FlowSchema in messages.
const SCHEMA: GoMembers = &[
    ("PriorityLevelConfiguration", Go::Value(NAME)),
    ("MatchingPrecedence", Go::Number),
    ("DistinguisherMethod", Go::Struct(&[("Type", Go::Text)])),
    ("Rules", Go::List(RULE)),
];

/// FlowSchemas.
pub(super) const fn flow_schema(base: Strategy) -> Strategy {
    Strategy {
        default: |schema| {
            default_empty(schema.object_mut("spec"), "matchingPrecedence", PRECEDENCE);
        },
        validate: |new, _| validate(new),
        validate_status: |new, _| validate_conditions(new),
        ..base
    }
}

/// Validates conditions: each has a type, without duplicates.
pub(super) fn validate_conditions(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let mut seen: SmallSet<&str> = SmallSet::new();
    for condition in status.field("conditions").items() {
        let kind = condition.field("type");
        if !seen.insert(kind.text()) {
            errors.push(FieldError::duplicate(&kind.path, kind.text()));
        }
        kind.not_empty(&mut errors, "");
    }
    errors
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let precedence = spec.field("matchingPrecedence");
    if precedence.number() <= 0 {
        precedence.invalid_as(&mut errors, precedence.number(), "must be a positive value");
    }
    if precedence.number() > PRECEDENCE_MAX {
        let words = format!("must not be greater than {PRECEDENCE_MAX}");
        precedence.invalid(&mut errors, &words);
    }
    if precedence.number() == 1 && new.name() != "exempt" {
        let words = "only the schema named 'exempt' may have matchingPrecedence 1";
        precedence.invalid(&mut errors, words);
    }
    let method = spec.field("distinguisherMethod");
    if method.is_set() && !matches!(method.str("type"), "ByNamespace" | "ByUser") {
        let kind = method.field("type");
        let shown = format!("{{\"Type\":{}}}", quote(kind.text()));
        let error = FieldError::not_supported(&kind.path, "", &["ByNamespace", "ByUser"]);
        errors.push(FieldError { value: Some(shown), ..error });
    }
    let level = spec.field("priorityLevelConfiguration");
    let name = level.field("name");
    if name.not_empty(&mut errors, "must reference a priority level") {
        name.rule(&mut errors, names::is_dns1123_subdomain);
    }
    spec.field("rules").items().for_each(|rule| validate_rule(&rule, &mut errors));
    let rules = || {
        let subjects: Vec<Value> = match new.name() {
            "exempt" => vec![group("system:masters")],
            _ => vec![group("system:unauthenticated"), group("system:authenticated")],
        };
        value!([{
            "subjects": (subjects),
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "clusterScope": true, "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        }])
    };
    let fixed = match new.name() {
        "exempt" => value!({
            "priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1,
            "rules": (rules())
        }),
        "catch-all" => value!({
            "priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 10000,
            "distinguisherMethod": {"type": "ByUser"}, "rules": (rules())
        }),
        _ => return errors,
    };
    if !equal_or_empty(spec.value, &fixed) {
        let words = format!("spec of '{}' must equal the fixed value", new.name());
        spec.invalid_as(&mut errors, as_go_struct(spec.value, SCHEMA), &words);
    }
    errors
}

fn group(name: &'static str) -> Value {
    value!({"kind": "Group", "group": {"name": name}})
}

/// Checks that the mandatory priority levels have their fixed spec, except for the shares of
/// `exempt`.
pub(super) fn validate_fixed_level(level: &Object, errors: &mut ErrorList) {
    let spec = Field::of(level, "spec");
    let mut given = spec.value.as_object().cloned().unwrap_or_default();
    let (fixed, what) = match level.name() {
        "exempt" => {
            given.remove("exempt");
            (value!({"type": "Exempt"}), " except the 'spec.exempt' field")
        }
        "catch-all" => {
            let fixed = value!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"},
                "lendablePercent": 0
            }});
            (fixed, "")
        }
        _ => return,
    };
    if !equal_or_empty(&Value::Object(given), &fixed) {
        let words = format!("spec of '{}'{what} must equal the fixed value", level.name());
        spec.invalid_as(errors, as_go_struct(spec.value, levels::LEVEL), &words);
    }
}

fn validate_rule(rule: &Field<'_, '_>, errors: &mut ErrorList) {
    let subjects = rule.field("subjects");
    subjects.not_empty(errors, "subjects must contain at least one value");
    subjects.items().for_each(|subject| validate_subject(&subject, errors));
    let resources = rule.field("resourceRules");
    let urls = rule.field("nonResourceRules");
    if resources.array().is_empty() && urls.array().is_empty() {
        let words = "at least one of resourceRules and nonResourceRules has to be non-empty";
        rule.required(errors, words);
    }
    resources.items().for_each(|rule| resource_rule(&rule, errors));
    urls.items().for_each(|rule| url_rule(&rule, errors));
}

fn validate_subject(subject: &Field<'_, '_>, errors: &mut ErrorList) {
    const KINDS: &[(&str, &str)] =
        &[("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.str("kind");
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return subject.field("kind").not_supported(errors, &["Group", "ServiceAccount", "User"]);
    };
    let at = subject.field(own);
    if at.is_set() {
        subject_name(&at, own, errors);
    } else {
        at.required(errors, &format!("{own} is required when subject kind is '{kind}'"));
    }
    for (other, member) in KINDS.iter().filter(|(name, _)| *name != kind) {
        if subject.has(member) {
            let words = format!("{member} is forbidden when subject kind is not '{other}'");
            subject.field(member).forbidden(errors, &words);
        }
    }
}

fn subject_name(at: &Field<'_, '_>, kind: &str, errors: &mut ErrorList) {
    let name = at.field("name");
    if kind != "serviceAccount" {
        name.not_empty(errors, "");
        return;
    }
    name.not_empty(errors, "");
    if !matches!(name.text(), "" | "*") {
        name.rule(errors, names::is_dns1123_subdomain);
    }
    let namespace = at.field("namespace");
    if namespace.not_empty(errors, "must specify namespace for service account") {
        namespace.rule(errors, names::is_dns1123_label);
    }
}

fn has_star(at: &Field<'_, '_>) -> bool {
    at.array().iter().any(|value| value.as_str() == Some("*"))
}

/// Checks that a list is not empty, and has no other items beside `*`.
fn alone(at: &Field<'_, '_>, missing: &str, others: &str, errors: &mut ErrorList) {
    if at.array().is_empty() {
        at.required(errors, missing);
    } else if has_star(at) && at.array().len() > 1 {
        let words = format!("if '*' is present, must not specify other {others}");
        at.invalid(errors, &words);
    }
}

fn verbs(at: &Field<'_, '_>, known: &[&str], errors: &mut ErrorList) {
    let unknown = |value: &Value| !value.as_str().is_some_and(|verb| known.contains(&verb));
    alone(at, "verbs must contain at least one value", "verbs", errors);
    if !has_star(at) && at.array().iter().any(unknown) {
        at.not_supported(errors, known);
    }
}

fn resource_rule(rule: &Field<'_, '_>, errors: &mut ErrorList) {
    verbs(&rule.field("verbs"), VERBS, errors);
    let groups = rule.field("apiGroups");
    alone(&groups, "resource rules must supply at least one api group", "api groups", errors);
    let resources = rule.field("resources");
    alone(&resources, "resource rules must supply at least one resource", "resources", errors);
    let namespaces = rule.field("namespaces");
    if namespaces.array().is_empty() && !rule.flag("clusterScope") {
        let words = "resource rules that are not cluster scoped must supply at least one namespace";
        return namespaces.required(errors, words);
    }
    if has_star(&namespaces) {
        return alone(&namespaces, "", "namespaces", errors);
    }
    for name in namespaces.items() {
        for why in names::is_dns1123_label(name.text()) {
            let words = "each member of this list must be '*' or a DNS-1123 label; ";
            name.invalid_as(errors, name.text(), &format!("{words}{why}"));
        }
    }
}

fn url_rule(rule: &Field<'_, '_>, errors: &mut ErrorList) {
    verbs(&rule.field("verbs"), VERBS, errors);
    let urls = rule.field("nonResourceURLs");
    urls.not_empty(errors, "nonResourceURLs must contain at least one value");
    if has_star(&urls) {
        return alone(&urls, "", "non-resource URLs", errors);
    }
    for url in urls.items() {
        let text = url.text();
        if text.is_empty() {
            url.invalid_as(errors, "", "must not be empty");
        } else if !text.starts_with('/') {
            url.invalid(errors, "must start with slash");
        } else if text.contains(' ') {
            url.invalid(errors, "must not contain white-space");
        } else if text.contains("//") {
            url.invalid(errors, "must not contain double slash");
        } else if text.trim_end_matches('*').contains('*') || text.ends_with("**") {
            url.invalid(errors, "wildcard can only do suffix matching");
        }
    }
}
