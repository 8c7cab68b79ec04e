//! The kinds of `admissionregistration.k8s.io`: webhook configurations and admission policies.

mod expressions;
mod policies;
mod rules;
mod url;

pub(super) use policies::{binding, mutating_policy, validating_policy};

use self::expressions::Expressions;
use super::check::{Field, child, children, default};
use crate::row::{Deprecation, Row};
use crate::strategy::{Check, Generation, StatusMetadata, Strategy};
use keelson_meta::{ErrorList, Map, Object, SmallSet, Value, names};
use std::collections::HashMap;

/// What all resources of the group share.
const CONFIGURATION: Strategy = Strategy {
    generation: Generation::OnSpecChange,
    unconditional_update: false,
    status_metadata: StatusMetadata::Keep,
    update_checks: &[Check::Metadata, Check::Rules, Check::Change],
    status_checks: &[Check::Rules],
    standard_finalizers: false,
    ..Strategy::GENERIC
};

const ALPHA: &[Deprecation] =
    &[Deprecation { version: "v1alpha1", since: 35, until: Some(38), replacement: None }];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "mutatingadmissionpolicies",
        strategy: mutating_policy(CONFIGURATION),
        stored_version: Some("v1beta1"),
        deprecations: ALPHA,
        ..Row::PLAIN
    },
    Row {
        resource: "mutatingadmissionpolicybindings",
        strategy: binding(CONFIGURATION, true),
        stored_version: Some("v1beta1"),
        deprecations: ALPHA,
        ..Row::PLAIN
    },
    Row {
        resource: "mutatingwebhookconfigurations",
        strategy: mutating_webhooks(Strategy {
            generation: Generation::OnSpecChangeStrict,
            ..CONFIGURATION
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "validatingadmissionpolicies",
        strategy: validating_policy(CONFIGURATION),
        ..Row::PLAIN
    },
    Row {
        resource: "validatingadmissionpolicybindings",
        strategy: binding(CONFIGURATION, false),
        ..Row::PLAIN
    },
    Row {
        resource: "validatingwebhookconfigurations",
        strategy: validating_webhooks(Strategy {
            generation: Generation::OnSpecChangeStrict,
            ..CONFIGURATION
        }),
        ..Row::PLAIN
    },
];

const TIMEOUT_SECONDS: i64 = 10;
const TIMEOUT_SECONDS_MAX: i64 = 30;
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// ValidatingWebhookConfigurations.
pub(super) const fn validating_webhooks(base: Strategy) -> Strategy {
    Strategy {
        default: |obj| children(&mut obj.root, "webhooks").for_each(default_webhook),
        validate: validate_webhooks,
        ..base
    }
}

/// MutatingWebhookConfigurations.
pub(super) const fn mutating_webhooks(base: Strategy) -> Strategy {
    Strategy {
        default: |obj| {
            for webhook in children(&mut obj.root, "webhooks") {
                default_webhook(webhook);
                default(webhook, "reinvocationPolicy", "Never");
            }
        },
        validate: validate_mutating,
        ..base
    }
}

fn validate_mutating(new: &Object, old: Option<&Object>) -> ErrorList {
    validate_all(new, old, |webhook, errors| {
        let policy = webhook.field("reinvocationPolicy");
        policy.one_of_if_set(errors, &["IfNeeded", "Never"]);
    })
}

fn default_webhook(webhook: &mut Map) {
    default(webhook, "failurePolicy", "Fail");
    default(webhook, "matchPolicy", "Equivalent");
    default(webhook, "namespaceSelector", Map::new());
    default(webhook, "objectSelector", Map::new());
    default(webhook, "timeoutSeconds", TIMEOUT_SECONDS);
    children(webhook, "rules").for_each(|rule| default(rule, "scope", "*"));
    if let Some(config) = child(webhook, "clientConfig")
        && let Some(service) = child(config, "service")
    {
        default(service, "port", 443);
    }
}

fn validate_webhooks(new: &Object, old: Option<&Object>) -> ErrorList {
    validate_all(new, old, |_, _| ())
}

/// Validates all webhooks. `extra` validates the fields that only one of the two kinds has.
fn validate_all(
    new: &Object,
    old: Option<&Object>,
    extra: fn(&Field<'_, '_>, &mut ErrorList),
) -> ErrorList {
    let mut errors = ErrorList::new();
    let list = Field::of(new, "webhooks");
    let old = old
        .map(|old| old.array_at(&["webhooks"]))
        .unwrap_or_default()
        .iter()
        .filter_map(|old| Some((old.str_at(&["name"])?, old)))
        .collect();
    let mut seen: SmallSet<&str> = SmallSet::new();
    for webhook in list.items() {
        validate_webhook(&webhook, &old, extra, &mut errors);
        review_versions(&webhook.field("admissionReviewVersions"), &mut errors);
        let name = webhook.field("name");
        if !name.text().is_empty() && !seen.insert(name.text()) {
            name.duplicate(&mut errors);
        }
    }
    errors
}

fn validate_webhook(
    at: &Field<'_, '_>,
    old: &HashMap<&str, &Value>,
    extra: fn(&Field<'_, '_>, &mut ErrorList),
    errors: &mut ErrorList,
) {
    let name = at.field("name");
    if name.not_empty(errors, "") {
        let messages = names::is_dns1123_subdomain(name.text());
        if messages.is_empty() && name.text().split('.').count() < 3 {
            let words = "should be a domain with at least three segments separated by dots";
            name.invalid(errors, words);
        }
        messages.iter().for_each(|why| name.invalid(errors, why));
    }
    at.field("rules").items().for_each(|rule| rules::rule_with_operations(&rule, errors));
    at.field("failurePolicy").one_of_if_set(errors, &["Fail", "Ignore"]);
    at.field("matchPolicy").one_of_if_set(errors, &["Equivalent", "Exact"]);
    let effects = at.field("sideEffects");
    if effects.is_set() {
        effects.one_of(errors, &["None", "NoneOnDryRun"]);
    } else {
        effects.required(errors, "must specify one of None, NoneOnDryRun");
    }
    let seconds = at.field("timeoutSeconds");
    if seconds.is_set() && !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds.number()) {
        seconds.invalid(errors, "the timeout value must be between 1 and 30 seconds");
    }
    at.field("namespaceSelector").label_selector(errors);
    at.field("objectSelector").label_selector(errors);
    extra(at, errors);
    client_config(&at.field("clientConfig"), errors);
    let expressions = Expressions::of_webhook(old.get(name.text()).copied());
    rules::match_conditions(&at.field("matchConditions"), &expressions, errors);
}

/// Validates the `clientConfig` of an admission or conversion webhook.
pub(super) fn client_config(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let url = at.field("url");
    let service = at.field("service");
    if url.is_set() == service.is_set() {
        return at.required(errors, "exactly one of url or service is required");
    }
    if url.is_set() {
        return validate_url(&url, errors);
    }
    // Upstream reports each of the two at the path of the other.
    for (reported, empty) in [("name", "namespace"), ("namespace", "name")] {
        if service.str(empty).is_empty() {
            service.field(reported).required(errors, "");
        }
    }
    let port = service.field("port");
    if port.is_set() {
        for why in names::is_valid_port_num(port.number()) {
            port.invalid(errors, &format!("port is not valid: {why}"));
        }
    }
    let path = service.field("path");
    if path.is_set() {
        validate_path(&path, errors);
    }
}

fn validate_url(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match url::parse(at.text()) {
        Ok(url) => url,
        Err(why) => {
            let shown = keelson_meta::status::quote(at.text());
            let words = format!("url must be a valid URL: parse {shown}: {why}{FORM}");
            return at.required(errors, &words);
        }
    };
    if url.scheme != "https" {
        let words = format!("'https' is the only allowed URL scheme{FORM}");
        at.invalid_as(errors, url.scheme.as_str(), &words);
    }
    if url.host.is_empty() {
        at.invalid_as(errors, "", &format!("host must be specified{FORM}"));
    }
    for (part, words) in [
        (url.user, "user information is not permitted in the URL"),
        (url.fragment, "fragments are not permitted in the URL"),
        (url.query, "query parameters are not permitted in the URL"),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            at.invalid_as(errors, part, words);
        }
    }
}

fn validate_path(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let path = at.text();
    if path == "/" || path.is_empty() {
        return;
    }
    if path == "//" {
        return at.invalid(errors, "segment[0] may not be empty");
    }
    if !path.starts_with('/') {
        at.invalid(errors, "must start with a '/'");
    }
    let inner = path.strip_suffix('/').unwrap_or(path);
    // Upstream removes the first byte even if it is not a slash.
    let inner = inner.get(1..).unwrap_or_default();
    for (index, segment) in inner.split('/').enumerate() {
        if segment.is_empty() {
            at.invalid(errors, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in names::is_dns1123_subdomain(segment) {
            at.invalid(errors, &format!("segment[{index}]: {why}"));
        }
    }
}

fn review_versions(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.array().is_empty() {
        return at.required(errors, "must specify one of v1, v1beta1");
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for version in at.items() {
        if seen.insert(version.text()) {
            version.rule(errors, names::is_dns1035_label);
        } else {
            version.invalid(errors, "duplicate version");
        }
    }
    let known = |value: &Value| value.as_str().is_some_and(|v| REVIEW_VERSIONS.contains(&v));
    if !at.array().iter().any(known) {
        at.invalid(errors, "must include at least one of v1, v1beta1");
    }
}
