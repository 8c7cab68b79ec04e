//! ResourceQuotas.

use crate::check::Field;
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, Map, Object, Str, Value};

const COMPUTE: &[&str] =
    &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const OTHERS: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
    "ephemeral-storage",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
];
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const CONFLICTS: [(&str, &str); 2] =
    [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];
const UNSUPPORTED_SCOPE: &str = "unsupported scope applied to resource";

/// ResourceQuotas.
pub(crate) const fn resource_quota(base: Strategy) -> Strategy {
    Strategy {
        validate: validate_quota,
        validate_status: |new, _| quota_status(new),
        warnings: |new, old| if old.is_none() { warnings(new) } else { vec![] },
        ..base
    }
}

/// Warns of requests that exceed the limits of the same resource.
fn warnings(new: &Object) -> Vec<Str> {
    let spec = Field::of(new, "spec");
    let hard = spec.field("hard");
    let mut warnings = vec![];
    for resource in ["cpu", "memory", "ephemeral-storage"] {
        let limit = format!("limits.{resource}");
        let at = hard.field(&limit);
        let Some(most) = at.quantity() else { continue };
        for request in [format!("requests.{resource}"), resource.to_owned()] {
            let asked = hard.field(&request);
            if asked.quantity().is_some_and(|amount| amount > most) {
                warnings.push(Str::from(format!(
                    "ResourceQuota {request} ({}) should be less than {limit} ({})",
                    asked.text(),
                    at.text()
                )));
            }
        }
    }
    warnings
}

fn validate_quota(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let hard = spec.field("hard");
    amounts(&hard, &mut errors);
    scopes(&spec.field("scopes"), &hard, &mut errors);
    scope_selector(&spec, &hard, &mut errors);
    if let Some(old) = old {
        let at = spec.field("scopes");
        let sorted = |list: &[Value]| {
            let mut texts: Vec<String> =
                list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
            texts.sort();
            texts.dedup();
            texts
        };
        if sorted(at.array()) != sorted(old.array_at(&["spec", "scopes"])) {
            at.invalid(&mut errors, IMMUTABLE);
        }
    }
    errors
}

fn quota_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    amounts(&status.field("hard"), &mut errors);
    amounts(&status.field("used"), &mut errors);
    errors
}

fn amounts(list: &Field<'_, '_>, errors: &mut ErrorList) {
    for (name, amount) in list.entries() {
        let key = Value::from(name);
        let at = Field { value: &key, path: amount.path };
        crate::core::pod::resources::resource_name(&at, errors);
        if !name.contains('/') && !is_standard(name) {
            at.invalid(errors, "must be a standard resource for quota");
        }
        crate::core::pod::resources::positive(name, &amount, errors);
    }
}

/// Returns whether a resource without a domain is known to quotas.
fn is_standard(name: &str) -> bool {
    COMPUTE.contains(&name)
        || OTHERS.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// The number of resources that each kind of scope does not support, counted once for all scopes.
struct UnsupportedResources {
    best_effort: usize,
    volumes: usize,
    compute: usize,
}

impl UnsupportedResources {
    fn of(hard: &Field<'_, '_>) -> UnsupportedResources {
        let count = |fits: fn(&str) -> bool| {
            let names = hard
                .value
                .as_object()
                .into_iter()
                .flat_map(Map::iter)
                .map(|(name, _)| name.as_str());
            names.filter(|name| is_standard(name) && !fits(name)).count()
        };
        UnsupportedResources {
            best_effort: count(|name| name == "pods"),
            volumes: count(|name| matches!(name, "persistentvolumeclaims" | "requests.storage")),
            compute: count(|name| name == "pods" || COMPUTE.contains(&name)),
        }
    }

    /// Reports an error for each resource that a scope does not support.
    fn report(&self, at: &Field<'_, '_>, shown: &Value, scope: &str, errors: &mut ErrorList) {
        let count = match scope {
            "BestEffort" => self.best_effort,
            "VolumeAttributesClass" => self.volumes,
            scope if SCOPES.contains(&scope) => self.compute,
            _ => 0,
        };
        for _ in 0..count {
            if errors.is_full() {
                break;
            }
            at.invalid_as(errors, shown.clone(), UNSUPPORTED_SCOPE);
        }
    }
}

fn scopes(at: &Field<'_, '_>, hard: &Field<'_, '_>, errors: &mut ErrorList) {
    let unsupported = UnsupportedResources::of(hard);
    for scope in at.items() {
        if !SCOPES.contains(&scope.text()) {
            at.invalid(errors, "unsupported scope");
        }
        unsupported.report(at, at.value, scope.text(), errors);
    }
    let has = |scope: &str| at.array().iter().any(|value| value.as_str() == Some(scope));
    for (one, other) in CONFLICTS {
        if has(one) && has(other) {
            at.invalid(errors, "conflicting scopes");
        }
    }
}

fn scope_selector(spec: &Field<'_, '_>, hard: &Field<'_, '_>, errors: &mut ErrorList) {
    let selector = spec.field("scopeSelector");
    let list = selector.field("matchExpressions");
    let requirements = Field { value: list.value, path: list.path };
    let unsupported = UnsupportedResources::of(hard);
    for requirement in list.items() {
        let name = requirement.str("scopeName");
        let operator = requirement.str("operator");
        let values = requirement.get("values");
        let scope_field = Field { value: list.value, path: requirements.path.field("scopeName") };
        let operator_field = Field { value: list.value, path: requirements.path.field("operator") };
        let values_field = Field { value: values, path: requirements.path.field("values") };
        if !SCOPES.contains(&name) {
            scope_field.invalid_as(errors, name, "unsupported scope");
        }
        unsupported.report(&requirements, selector.value, name, errors);
        let only_exists = SCOPES[..4].contains(&name) || name == "CrossNamespacePodAffinity";
        if only_exists && operator != "Exists" {
            let words = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                         ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                         ResourceQuotaScopeNotBestEffort or \
                         ResourceQuotaScopeCrossNamespacePodAffinity";
            operator_field.invalid_as(errors, operator, words);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let words = "must be at least one value when `operator` is 'In' or 'NotIn' for \
                             scope selector";
                values_field.required(errors, words);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let words = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for \
                             scope selector";
                values_field.invalid(errors, words);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => operator_field.invalid_as(errors, operator, "not a valid selector operator"),
        }
    }
    let has =
        |scope: &str| list.array().iter().any(|item| item.str_at(&["scopeName"]) == Some(scope));
    for (one, other) in CONFLICTS {
        if has(one) && has(other) {
            requirements.invalid_as(errors, spec.get("scopes").clone(), "conflicting scopes");
        }
    }
}
