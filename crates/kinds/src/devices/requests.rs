//! Validates the device requests of a claim, their constraints and their configuration.

use super::{configuration, fully_qualified, named, not_too_many, selectors, toleration, unique};
use crate::check::Field;
use crate::gates;
use keelson_cel::Version;
use keelson_meta::{ErrorList, Feature, FieldError, Object, Path, Str, Value, names};
use std::collections::{HashMap, HashSet};

const REQUESTS_MAX: usize = 32;
const CHOICES_MAX: usize = 8;
const CONSTRAINTS_MAX: usize = 32;
const CONFIGS_MAX: usize = 32;
const NOT_A_REQUEST: &str = "must be the name of a request in the claim or the name of a request \
                             and a subrequest separated by '/'";

/// The names of requests, with the names of their subrequests.
pub(super) struct Names<'v>(HashMap<&'v str, HashSet<&'v str>>);

impl<'v> Names<'v> {
    /// Collects the names in the `devices` of a claim.
    pub fn of(devices: &Field<'v, '_>) -> Names<'v> {
        let text = |value: &'v Value| value.str_at(&["name"]).unwrap_or_default();
        let requests = devices.get("requests").as_array().unwrap_or_default();
        let choices =
            |request: &'v Value| request.array_at(&["firstAvailable"]).iter().map(text).collect();
        Names(requests.iter().map(|request| (text(request), choices(request))).collect())
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            None => self.0.contains_key(name),
            Some((request, choice)) => {
                self.0.get(request).is_some_and(|choices| choices.contains(choice))
            }
        }
    }
}

/// Validates `devices` of a claim.
pub(super) fn validate(devices: &Field<'_, '_>, version: Version) -> ErrorList {
    let mut errors = ErrorList::new();
    let known = Names::of(devices);
    let requests = devices.field("requests");
    if not_too_many(&requests, REQUESTS_MAX, &mut errors) {
        requests.items().for_each(|request| validate_request(&request, version, &mut errors));
        unique(&requests, named("name"), &mut errors);
    }
    let constraints = devices.field("constraints");
    if not_too_many(&constraints, CONSTRAINTS_MAX, &mut errors) {
        constraints.items().for_each(|at| constraint(&at, &known, &mut errors));
    }
    let configs = devices.field("config");
    if not_too_many(&configs, CONFIGS_MAX, &mut errors) {
        for config in configs.items() {
            references(&config.field("requests"), &known, &mut errors);
            configuration(&config, &mut errors);
        }
    }
    errors
}

/// Validates that requests for admin access are in a namespace that allows it.
pub(super) fn validate_admin_access(
    spec: Option<&Value>,
    labels: &dyn Fn() -> Vec<(Str, Str)>,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let is_admin_access = |request: &Value| {
        request.at(&["exactly", "adminAccess"]).and_then(Value::as_bool) == Some(true)
    };
    let requests = spec.map(|spec| spec.array_at(&["devices", "requests"])).unwrap_or_default();
    let Some(first) = requests.iter().position(is_admin_access) else { return errors };
    if allows_admin(labels) {
        return errors;
    }
    // Upstream uses this path in templates too.
    let spec = Path::new("spec");
    let devices = spec.field("devices");
    let requests = devices.field("requests");
    let place = requests.index(first);
    errors.push(FieldError::forbidden(&place.field("adminAccess"), NO_ADMIN));
    errors
}

/// Validates admin access of allocation results. A claim that already has it keeps it.
pub(super) fn validate_admin_results(
    new: &Object,
    old: &Object,
    labels: &dyn Fn() -> Vec<(Str, Str)>,
) -> ErrorList {
    fn first(claim: &Object) -> Option<usize> {
        let allocation = claim.at(&["status", "allocation"])?;
        let results = allocation.array_at(&["devices", "results"]).iter();
        let mut flags = results.map(|result| result.get("adminAccess"));
        flags.position(|flag| flag.and_then(Value::as_bool) == Some(true))
    }
    let mut errors = ErrorList::new();
    if let Some(at) = first(new)
        && first(old).is_none()
        && !allows_admin(labels)
    {
        let status = Path::new("status");
        let allocation = status.field("allocation");
        let devices = allocation.field("devices");
        let results = devices.field("results");
        let place = results.index(at);
        errors.push(FieldError::forbidden(&place.field("adminAccess"), NO_ADMIN));
    }
    errors
}

const NO_ADMIN: &str = "admin access to devices requires the \
                        `resource.kubernetes.io/admin-access: true` label on the containing namespace";

fn allows_admin(labels: &dyn Fn() -> Vec<(Str, Str)>) -> bool {
    let is_wanted =
        |(key, value): &(Str, Str)| key == "resource.kubernetes.io/admin-access" && value == "true";
    labels().iter().any(is_wanted)
}

fn validate_request(request: &Field<'_, '_>, version: Version, errors: &mut ErrorList) {
    request.field("name").rule(errors, names::is_dns1123_label);
    let exactly = request.field("exactly");
    let choices = request.field("firstAvailable");
    match (exactly.is_set(), !choices.array().is_empty()) {
        (false, false) => {
            request.required(errors, "exactly one of `exactly` or `firstAvailable` is required");
        }
        (true, true) => {
            let words = "exactly one of `exactly` or `firstAvailable` is required, but multiple \
                         fields are set";
            request.invalid_as(errors, Value::Null, words);
        }
        (true, false) => devices_of(&exactly, version, errors),
        (false, true) if not_too_many(&choices, CHOICES_MAX, errors) => {
            for choice in choices.items() {
                choice.field("name").rule(errors, names::is_dns1123_label);
                devices_of(&choice, version, errors);
            }
            unique(&choices, named("name"), errors);
        }
        (false, true) => {}
    }
}

fn devices_of(at: &Field<'_, '_>, version: Version, errors: &mut ErrorList) {
    at.field("deviceClassName").required_rule(errors, names::is_dns1123_subdomain);
    selectors(&at.field("selectors"), version, errors);
    let mode = at.field("allocationMode");
    let count = at.field("count");
    match mode.text() {
        "All" if count.number() != 0 => {
            count.invalid(errors, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count.number() <= 0 => {
            count.invalid_as(errors, count.number(), "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        _ => mode.not_supported(errors, &["All", "ExactCount"]),
    }
    at.field("tolerations").items().for_each(|at| toleration(&at, errors));
}

fn constraint(at: &Field<'_, '_>, known: &Names<'_>, errors: &mut ErrorList) {
    references(&at.field("requests"), known, errors);
    let same = at.field("matchAttribute");
    let distinct = at.field("distinctAttribute");
    if same.is_set() {
        fully_qualified(&same, errors);
    } else if distinct.is_set() {
        fully_qualified(&distinct, errors);
    } else if !gates::is_on(Feature::DRAConsumableCapacity) {
        same.required(errors, "");
    } else {
        // Upstream uses this message even if none of them is set.
        let words = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but \
                     multiple fields are set";
        at.required(errors, words);
    }
}

/// Validates references to requests or subrequests.
pub(super) fn references(list: &Field<'_, '_>, known: &Names<'_>, errors: &mut ErrorList) {
    if !not_too_many(list, REQUESTS_MAX, errors) {
        return;
    }
    list.items().for_each(|at| reference(&at, known, errors));
    unique(list, |item| item.as_str().unwrap_or_default(), errors);
}

/// Validates one reference.
pub(super) fn reference(at: &Field<'_, '_>, known: &Names<'_>, errors: &mut ErrorList) {
    let name = at.text();
    if name.split('/').count() > 2 {
        return at.invalid_as(errors, name, NOT_A_REQUEST);
    }
    for part in name.split('/') {
        for why in names::is_dns1123_label(part) {
            errors.push(FieldError::invalid(&at.path, part, &why));
        }
    }
    if !known.has(name) {
        at.invalid_as(errors, name, NOT_A_REQUEST);
    }
}
