//! The kinds of `networking.k8s.io`.

mod ingress;
mod policy;

pub(super) use ingress::{class, ingress};
pub(super) use policy::policy;

use super::check::Field;
use crate::row::{Deprecation, Row};
use crate::strategy::{Check, Generation, StatusMetadata, Strategy};
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Map, Object, Value, ip, names};

const BETA: &[Deprecation] =
    &[Deprecation { version: "v1beta1", since: 34, until: Some(37), replacement: None }];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "ingressclasses",
        strategy: class(Strategy {
            generation: Generation::OnSpecChange,
            update_checks: &[Check::MetadataChange, Check::Change, Check::Metadata, Check::Rules],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "ingresses",
        strategy: ingress(Strategy {
            generation: Generation::OnSpecChange,
            update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules, Check::Change],
            ..Strategy::GENERIC
        }),
        storage_prefix: "ingress",
        ..Row::PLAIN
    },
    Row {
        resource: "ipaddresses",
        strategy: address(Strategy::GENERIC),
        deprecations: BETA,
        ..Row::PLAIN
    },
    Row {
        resource: "networkpolicies",
        strategy: policy(Strategy {
            generation: Generation::OnSpecChangeStrict,
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "servicecidrs",
        strategy: service_range(Strategy {
            status_metadata: StatusMetadata::Keep,
            ..Strategy::GENERIC
        }),
        deprecations: BETA,
        ..Row::PLAIN
    },
];

/// IPAddresses. Their names are IP addresses.
pub(super) const fn address(base: Strategy) -> Strategy {
    Strategy {
        name_rule: |name, _| {
            let strict = ip::validate_strict_ip(name, &keelson_meta::Path::ROOT);
            if let Some(error) = strict.into_iter().next() {
                return vec![error.detail];
            }
            match ip::parse_ip(name).map(|address| address.to_string()) {
                Some(canonical) if canonical != name => {
                    let shown = keelson_meta::status::quote(&canonical);
                    vec![format!("must be in canonical form ({shown})")]
                }
                _ => vec![],
            }
        },
        validate: validate_address,
        ..base
    }
}

fn validate_address(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let at = spec.field("parentRef");
    if !at.is_set() {
        at.required(&mut errors, "");
        return errors;
    }
    if let Some(old) = old {
        at.unchanged(&mut errors, old.at(&["spec", "parentRef"]).unwrap_or(&Value::Null));
        return errors;
    }
    at.field("group").rule_if_set(&mut errors, names::is_dns1123_subdomain);
    for name in ["resource", "name"] {
        at.field(name).required_rule(&mut errors, names::is_path_segment_name);
    }
    at.field("namespace").rule_if_set(&mut errors, names::is_path_segment_name);
    errors
}

/// ServiceCIDRs.
pub(super) const fn service_range(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, old| match old {
            None => validate_range(new),
            Some(_) => ErrorList::new(),
        },
        validate_change: validate_range_change,
        ..base
    }
}

/// Validates a change of the CIDRs: a single-stack ServiceCIDR may only get one of the other
/// family.
fn validate_range_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let spec = Field::of(new, "spec");
    let list = spec.field("cidrs");
    let stored = old.array_at(&["spec", "cidrs"]);
    let joins = stored.len() == 1 && list.array().len() == 2;
    if list.array().len() == stored.len() || joins {
        for (item, before) in list.items().zip(stored) {
            item.unchanged(&mut errors, before);
        }
        if joins {
            errors.extend(validate_range(new));
        }
    } else {
        list.invalid(&mut errors, IMMUTABLE);
    }
    errors
}

fn validate_range(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let list = spec.field("cidrs");
    if list.array().is_empty() {
        list.required(&mut errors, "at least one CIDR required");
        return errors;
    }
    if list.array().len() > 2 {
        let mut shown = Map::new();
        shown.insert("CIDRs", list.value.clone());
        let words = "may only hold up to 2 values";
        errors.push(FieldError::invalid(&list.path, shown, words));
        return errors;
    }
    for item in list.items() {
        errors.extend(ip::validate_strict_cidr(item.text(), &item.path));
    }
    let families: Vec<bool> = list
        .array()
        .iter()
        .filter_map(|value| ip::parse_cidr(value.as_str()?))
        .map(|range| range.address.is_ipv4())
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        let words = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
                     2001:db8::/64";
        list.invalid(&mut errors, words);
    }
    errors
}
