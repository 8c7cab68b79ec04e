//! Ingresses and IngressClasses.

use crate::check::{Field, child, default};
use crate::core::service::ingress_points;
use crate::gates;
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Feature, FieldError, Object, Path, Str, Value, ip, names};

const OLD_CLASS: &str = "kubernetes.io/ingress.class";
const CONTROLLER_BYTES_MAX: usize = 250;

/// Ingresses.
pub(crate) const fn ingress(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, old| {
            let mut errors = ErrorList::new();
            if old.is_none() {
                one_class(new, &mut errors);
            }
            let uses = || old.is_some_and(has_relaxed_names);
            gates::with_used(Feature::RelaxedServiceNameValidation, uses, || {
                validate(new, &mut errors);
            });
            errors
        },
        validate_status: |new, _| {
            let mut errors = ErrorList::new();
            let status = Field::of(new, "status");
            ingress_points(&status.field("loadBalancer").field("ingress"), false, &mut errors);
            errors
        },
        warnings: |new, old| {
            let annotated = new.at(&["metadata", "annotations", OLD_CLASS]).is_some();
            let has_class = new.at(&["spec", "ingressClassName"]).is_some();
            if old.is_some() || !annotated || has_class {
                return vec![];
            }
            vec![Str::new_static(
                "annotation \"kubernetes.io/ingress.class\" is deprecated, please use \
                 'spec.ingressClassName' instead",
            )]
        },
        ..base
    }
}

/// Returns whether a backend has the name of a service that only relaxed rules allow.
fn has_relaxed_names(ingress: &Object) -> bool {
    let rules = ingress.array_at(&["spec", "rules"]).iter();
    let paths = rules
        .flat_map(|rule| rule.at(&["http", "paths"]).and_then(Value::as_array).unwrap_or_default());
    let backends = paths.filter_map(|path| path.get("backend"));
    let all = ingress.at(&["spec", "defaultBackend"]).into_iter().chain(backends);
    all.filter_map(|backend| backend.str_at(&["service", "name"])).any(|name| {
        names::is_dns1123_label(name).is_empty() && !names::is_dns1035_label(name).is_empty()
    })
}

/// Checks that the class is set in only one of the spec and the legacy annotation.
fn one_class(ingress: &Object, errors: &mut ErrorList) {
    let class = ingress.str_at(&["spec", "ingressClassName"]);
    let Some(old) = ingress.annotation(OLD_CLASS) else { return };
    if !class.is_empty() && class != old {
        let annotations = Path::new("annotations");
        let words = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(&annotations.field(OLD_CLASS), old, words));
    }
}

fn validate(ingress: &Object, errors: &mut ErrorList) {
    let spec = Field::of(ingress, "spec");
    let rules = spec.field("rules");
    let backend = spec.field("defaultBackend");
    if rules.array().is_empty() && !backend.is_set() {
        let words = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(&spec.path, rules.value.clone(), words));
    }
    if backend.is_set() {
        validate_backend(&backend, errors);
    }
    rules.items().for_each(|rule| validate_rule(&rule, errors));
    for tls in spec.field("tls").items() {
        tls.field("hosts").items().for_each(|host| host_name(&host, errors));
        tls.field("secretName").rule_if_set(errors, names::is_dns1123_subdomain);
    }
    let class = spec.field("ingressClassName");
    if class.is_set() {
        class.rule(errors, names::is_dns1123_subdomain);
    }
}

fn host_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.text().contains('*') {
        at.rule(errors, names::is_wildcard_dns1123_subdomain);
    } else {
        at.rule(errors, names::is_dns1123_subdomain);
    }
}

fn validate_rule(rule: &Field<'_, '_>, errors: &mut ErrorList) {
    let host = rule.field("host");
    if !host.text().is_empty() {
        if ip::parse_ip(host.text()).is_some() {
            host.invalid(errors, "must be a DNS name, not an IP address");
        }
        host_name(&host, errors);
    }
    let http = rule.field("http");
    if !http.is_set() {
        return;
    }
    let paths = http.field("paths");
    paths.not_empty(errors, "");
    paths.items().for_each(|path| validate_path(&path, errors));
}

fn validate_path(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
    const ENDS: [&str; 2] = ["/..", "/."];
    const TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
    let kind = at.field("pathType");
    let path = at.field("path");
    let text = path.text();
    match kind.text() {
        // Upstream does not validate the rest of such a path.
        _ if !kind.is_set() => return kind.required(errors, "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                path.invalid_as(errors, text, "must be an absolute path");
            }
            for part in SEQUENCES.iter().filter(|part| text.contains(**part)) {
                path.invalid(errors, &format!("must not contain '{part}'"));
            }
            for end in ENDS.iter().filter(|end| text.ends_with(**end)) {
                path.invalid(errors, &format!("must not end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                path.invalid(errors, "must be an absolute path");
            }
        }
        _ => kind.not_supported(errors, TYPES),
    }
    validate_backend(&at.field("backend"), errors);
}

fn validate_backend(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let resource = at.field("resource");
    let service = at.field("service");
    match (resource.is_set(), service.is_set()) {
        (true, true) => at.invalid_as(errors, "", "cannot set both resource and service backends"),
        (false, false) => at.invalid_as(errors, "", "resource or service backend is required"),
        (true, false) => {
            let group = resource.field("apiGroup");
            if group.is_set() {
                group.rule(errors, names::is_dns1123_subdomain);
            }
            resource.field("kind").required_rule(errors, names::is_path_segment_name);
            resource.field("name").required_rule(errors, names::is_path_segment_name);
        }
        (false, true) => {
            let rule = match gates::is_on(Feature::RelaxedServiceNameValidation) {
                true => names::is_dns1123_label,
                false => names::is_dns1035_label,
            };
            service.field("name").required_rule(errors, rule);
            let port = service.field("port");
            let name = port.field("name");
            let number = port.field("number");
            match (!name.text().is_empty(), number.number() != 0) {
                (true, true) => {
                    at.invalid_as(errors, "", "cannot set both port name & port number");
                }
                (false, false) => at.required(errors, "port name or number is required"),
                (true, false) => name.rule(errors, names::is_valid_port_name),
                (false, true) => number.port(errors),
            }
        }
    }
}

/// IngressClasses.
pub(crate) const fn class(base: Strategy) -> Strategy {
    Strategy {
        default: |class| {
            if let Some(parameters) = child(class.object_mut("spec"), "parameters") {
                default(parameters, "scope", "Cluster");
            }
        },
        validate: validate_class,
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            if let Some(stored) = old.and_then(|old| old.at(&["spec", "controller"])) {
                Field::of(new, "spec").field("controller").unchanged_value(&mut errors, stored);
            }
            errors
        },
        ..base
    }
}

fn validate_class(new: &Object, _: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let controller = spec.field("controller");
    if controller.text().len() > CONTROLLER_BYTES_MAX {
        errors.push(FieldError::too_long(&controller.path, CONTROLLER_BYTES_MAX));
    }
    let (domain, path) = controller.text().split_once('/').unwrap_or_default();
    if controller.not_empty(&mut errors, "")
        && (path.is_empty() || !names::is_dns1123_subdomain(domain).is_empty())
    {
        let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        controller.invalid(&mut errors, words);
    }
    let parameters = spec.field("parameters");
    if parameters.is_set() {
        let group = parameters.field("apiGroup");
        if group.is_set() {
            group.rule(&mut errors, names::is_dns1123_subdomain);
        }
        parameters.field("kind").required_rule(&mut errors, names::is_path_segment_name);
        parameters.field("name").required_rule(&mut errors, names::is_path_segment_name);
        let scope = parameters.field("scope");
        scope.one_of(&mut errors, &["Cluster", "Namespace"]);
        let namespace = parameters.field("namespace");
        match scope.text() {
            "Namespace" if namespace.text().is_empty() => {
                let words = "`parameters.scope` is set to 'Namespace'";
                namespace.required(&mut errors, words);
            }
            "Cluster" if namespace.is_set() => {
                let words = "`parameters.scope` is set to 'Cluster'";
                namespace.forbidden(&mut errors, words);
            }
            _ => {}
        }
    }
    errors
}
