//! DeviceTaintRules and ResourcePoolStatusRequests.

use super::allocation::pool;
use super::slices::taint;
use super::{DRIVER_BYTES_MAX, not_too_many};
use crate::check::{Field, child, default};
use crate::conditions;
use crate::equality::equal_or_empty;
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Object, Value, names};

const CONDITIONS_MAX: usize = 8;
const STATUS_CONDITIONS_MAX: usize = 10;
const POOLS_MAX: usize = 1000;

/// DeviceTaintRules.
pub(crate) const fn taint_rule(base: Strategy) -> Strategy {
    Strategy {
        default_time: Some(set_taint_time),
        validate: |new, _| {
            let mut errors = ErrorList::new();
            let spec = Field::of(new, "spec");
            selector(&spec.field("deviceSelector"), &mut errors);
            taint(&spec.field("taint"), &mut errors);
            errors
        },
        validate_status: |new, _| {
            let mut errors = ErrorList::new();
            let status = Field::of(new, "status");
            let list = status.field("conditions");
            if not_too_many(&list, CONDITIONS_MAX, &mut errors) {
                conditions::validate(&list, &mut errors);
            }
            errors
        },
        ..base
    }
}

/// Sets `timeAdded` of a new taint.
fn set_taint_time(rule: &mut Object, now: &str) {
    let spec = child(&mut rule.root, "spec");
    if let Some(taint) = spec.and_then(|spec| child(spec, "taint")) {
        default(taint, "timeAdded", now);
    }
}

fn selector(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let driver = at.field("driver");
    let device = at.field("device");
    if driver.is_set() {
        driver.not_too_long(errors, DRIVER_BYTES_MAX);
        driver_name(&driver, errors);
    }
    let name = at.field("pool");
    if name.is_set() {
        pool(&name, errors);
    }
    if device.is_set() {
        device.rule(errors, names::is_dns1123_label);
    }
}

/// Validates a driver name: a DNS subdomain in any case.
fn driver_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for why in names::is_dns1123_subdomain(&at.text().to_lowercase()) {
        at.invalid(errors, &why);
    }
}

/// ResourcePoolStatusRequests.
pub(crate) const fn pool_status(base: Strategy) -> Strategy {
    Strategy {
        default: |request| {
            if let Some(spec) = child(&mut request.root, "spec") {
                default(spec, "limit", 100);
            }
        },
        validate: |new, old| match old {
            None => validate_request(new),
            Some(old) => {
                let mut errors = ErrorList::new();
                let spec = Field::of(new, "spec");
                if !equal_or_empty(spec.value, old.get("spec").unwrap_or(&Value::Null)) {
                    spec.invalid_as(&mut errors, Value::Null, IMMUTABLE);
                }
                errors
            }
        },
        validate_status: |new, _| validate_pool_status(new),
        ..base
    }
}

fn validate_request(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let driver = spec.field("driver");
    if driver.not_empty(&mut errors, "") {
        caseless_subdomain(&driver, &mut errors);
    }
    let name = spec.field("poolName");
    if name.is_set() {
        segments(&name, &mut errors);
    }
    at_least(&spec.field("limit"), 1, &mut errors);
    if spec.field("limit").number() > 1000 {
        spec.field("limit").invalid(&mut errors, "must be less than or equal to 1000");
    }
    errors
}

fn validate_pool_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    if !status.is_set() {
        return errors;
    }
    let list = status.field("conditions");
    if not_too_many(&list, STATUS_CONDITIONS_MAX, &mut errors) {
        conditions::validate(&list, &mut errors);
    }
    let count = status.field("poolCount");
    if count.is_set() {
        at_least(&count, 0, &mut errors);
    } else {
        count.required(&mut errors, "");
    }
    let pools = status.field("pools");
    if !not_too_many(&pools, POOLS_MAX, &mut errors) {
        return errors;
    }
    for at in pools.items() {
        pool_counts(&at, &mut errors);
    }
    errors
}

fn pool_counts(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let driver = at.field("driver");
    if driver.not_empty(errors, "") {
        caseless_subdomain(&driver, errors);
    }
    let name = at.field("poolName");
    if name.not_empty(errors, "") {
        segments(&name, errors);
    }
    at_least(&at.field("generation"), 0, errors);
    at_least(&at.field("resourceSliceCount"), 1, errors);
    for name in ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"] {
        at_least(&at.field(name), 0, errors);
    }
    if at.has("nodeName") {
        at.field("nodeName").rule(errors, names::is_dns1123_subdomain);
    }
}

fn at_least(at: &Field<'_, '_>, min: i64, errors: &mut ErrorList) {
    if at.is_set() && at.number() < min {
        at.invalid(errors, &format!("must be greater than or equal to {min}"));
    }
}

fn caseless_subdomain(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const WORDS: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', \
                         and must start and end with an alphanumeric character";
    const FORM: &str = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\\.[A-Za-z0-9]([-A-Za-z0-9]*\
                        [A-Za-z0-9])?)*";
    if at.text().len() > 253 {
        at.invalid(errors, "must be no more than 253 characters");
    }
    let lower = at.text().to_ascii_lowercase();
    let is_form = lower.split('.').all(|label| {
        let bytes = label.as_bytes();
        let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    });
    if !is_form {
        at.invalid(errors, &names::regex_error(WORDS, FORM, &["example.com"]));
    }
}

/// Validates the segments of a pool name.
fn segments(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for (number, part) in at.text().split('/').enumerate() {
        if part.is_empty() {
            at.invalid_as(errors, part, &format!("segment {number}: must not be empty"));
            continue;
        }
        for why in names::is_dns1123_subdomain(part) {
            errors.push(FieldError::invalid(&at.path, part, &format!("segment {number}: {why}")));
        }
    }
}
