//! The kinds of `discovery.k8s.io`: EndpointSlices.

use crate::check::{Field, children};
use crate::core::endpoints::ordinary_address;
use crate::equality::equal_or_empty;
use crate::row::Row;
use crate::strategy::{Check, Generation, Strategy};
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Str, Value, ip, names};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "endpointslices",
    strategy: slice(Strategy {
        generation: Generation::OnSpecOrLabelChange,
        update_checks: &[Check::Metadata, Check::Rules, Check::Change],
        ..Strategy::GENERIC
    }),
    ..Row::PLAIN
}];

/// EndpointSlices.
pub(super) const fn slice(base: Strategy) -> Strategy {
    Strategy {
        default: default_slice,
        prepare_create: drop_topology,
        drop_after_generation: |new, old| {
            if new.get("endpoints") != old.get("endpoints") {
                drop_topology(new);
            }
        },
        validate: validate_slice,
        warnings: slice_warnings,
        ..base
    }
}

/// Drops `deprecatedTopology`, which only older versions have.
fn drop_topology(slice: &mut Object) {
    for endpoint in children(&mut slice.root, "endpoints") {
        endpoint.remove("deprecatedTopology");
    }
}

fn slice_warnings(new: &Object, _: Option<&Object>) -> Vec<Str> {
    if new.str_at(&["addressType"]) == "FQDN" {
        return vec![Str::new_static("spec.addressType: FQDN endpoints are deprecated")];
    }
    vec![]
}

fn default_slice(slice: &mut Object) {
    for port in children(&mut slice.root, "ports") {
        super::check::default(port, "name", "");
        super::check::default(port, "protocol", "TCP");
    }
}

fn validate_slice(new: &Object, old: Option<&Object>) -> ErrorList {
    const ENDPOINTS_MAX: usize = 1000;
    const PORTS_MAX: usize = 20_000;
    let mut errors = ErrorList::new();
    let kind = Field::of(new, "addressType");
    if kind.text().is_empty() {
        kind.required(&mut errors, "");
    } else {
        kind.one_of(&mut errors, &["FQDN", "IPv4", "IPv6"]);
    }
    let ports = Field::of(new, "ports");
    if ports.array().len() > PORTS_MAX {
        errors.push(FieldError::too_many(&ports.path, ports.array().len(), PORTS_MAX));
    } else {
        slice_ports(&ports, &mut errors);
    }
    let list = Field::of(new, "endpoints");
    if list.array().len() > ENDPOINTS_MAX {
        errors.push(FieldError::too_many(&list.path, list.array().len(), ENDPOINTS_MAX));
    } else if old
        .is_none_or(|old| !equal_or_empty(list.value, old.get("endpoints").unwrap_or(&Value::Null)))
    {
        // Unchanged endpoints are not validated again.
        list.items().for_each(|at| slice_endpoint(&at, kind.text(), &mut errors));
    }
    if let Some(old) = old
        && kind.text() != old.str_at(&["addressType"])
    {
        kind.invalid_as(&mut errors, kind.text(), IMMUTABLE);
    }
    errors
}

/// Validates a fully qualified host name, with an optional trailing dot.
fn host_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.not_empty(errors, "") {
        return;
    }
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    let messages = names::is_dns1123_subdomain(name);
    if messages.is_empty() && !name.contains('.') {
        let words = "should be a domain with at least two segments separated by dots";
        at.invalid_as(errors, name, words);
    }
    messages.iter().for_each(|why| at.invalid_as(errors, name, why));
}

fn slice_endpoint(at: &Field<'_, '_>, kind: &str, errors: &mut ErrorList) {
    const ADDRESSES_MAX: usize = 100;
    let list = at.field("addresses");
    match list.array().len() {
        0 => list.required(errors, "must contain at least 1 address"),
        count if count > ADDRESSES_MAX => {
            errors.push(FieldError::too_many(&list.path, count, ADDRESSES_MAX));
        }
        _ => {}
    }
    for address in list.items() {
        match kind {
            "IPv4" | "IPv6" => slice_address(&address, &list, kind, errors),
            "FQDN" => host_name(&address, errors),
            _ => {}
        }
    }
    let node = at.field("nodeName");
    if node.is_set() {
        node.rule(errors, names::is_dns1123_subdomain);
    }
    let host = at.field("hostname");
    if host.is_set() {
        host.rule(errors, names::is_dns1123_label);
    }
    let hints = at.field("hints");
    hint_names(&hints.field("forZones"), names::is_valid_label_value, errors);
    hint_names(&hints.field("forNodes"), names::is_dns1123_subdomain, errors);
}

fn slice_address(at: &Field<'_, '_>, list: &Field<'_, '_>, kind: &str, errors: &mut ErrorList) {
    let Some(address) = ip::parse_ip(at.text()) else {
        return at.rule(errors, ip::is_valid_ip);
    };
    if address.is_ipv4() != (kind == "IPv4") {
        let words =
            if kind == "IPv4" { "must be an IPv4 address" } else { "must be an IPv6 address" };
        list.invalid_as(errors, at.text(), words);
    }
    ordinary_address(at, errors);
}

fn hint_names(list: &Field<'_, '_>, rule: fn(&str) -> Vec<String>, errors: &mut ErrorList) {
    const HINTS_MAX: usize = 8;
    if list.array().len() > HINTS_MAX {
        errors.push(FieldError::too_many(&list.path, list.array().len(), HINTS_MAX));
        return;
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for hint in list.items() {
        let name = hint.field("name");
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
        name.rule(errors, rule);
    }
}

fn slice_ports(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for port in list.items() {
        let name = port.field("name");
        name.rule_if_set(errors, names::is_dns1123_label);
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
        port.field("protocol").one_of(errors, &["SCTP", "TCP", "UDP"]);
        if port.has("appProtocol") {
            port.field("appProtocol").rule(errors, names::is_qualified_name);
        }
    }
}
