//! Endpoints and EndpointSlices.

use super::check::{Field, children};
use crate::equality::equal_or_empty;
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Str, Value, ip, names};
use std::net::IpAddr;

/// Endpoints.
pub(super) fn endpoints(base: Strategy) -> Strategy {
    Strategy { default: default_endpoints, validate: |new, _| validate_endpoints(new), ..base }
}

fn default_endpoints(endpoints: &mut Object) {
    for subset in children(&mut endpoints.root, "subsets") {
        for port in children(subset, "ports") {
            super::check::default_empty(port, "protocol", "TCP");
        }
    }
}

fn validate_endpoints(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    for subset in Field::of(new, "subsets").items() {
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|name| subset.field(name).array().is_empty()) {
            subset.required(&mut errors, "must specify `addresses` or `notReadyAddresses`");
        }
        for name in lists {
            for address in subset.field(name).items() {
                endpoint_address(&address, &mut errors);
            }
        }
        let ports = subset.field("ports");
        let named = ports.array().len() > 1;
        for port in ports.items() {
            endpoint_port(&port, named, &mut errors);
        }
    }
    errors
}

fn endpoint_address(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let address = at.field("ip");
    address.rule(errors, ip::is_valid_ip);
    at.field("hostname").rule_if_set(errors, names::is_dns1123_label);
    let node = at.field("nodeName");
    if node.is_set() {
        node.rule(errors, names::is_dns1123_subdomain);
    }
    ordinary_address(&address, errors);
}

fn endpoint_port(at: &Field<'_, '_>, named: bool, errors: &mut ErrorList) {
    let name = at.field("name");
    if named && name.text().is_empty() {
        name.required(errors, "");
    } else {
        name.rule_if_set(errors, names::is_dns1123_label);
    }
    at.field("port").port(errors);
    at.field("protocol").required_one_of(errors, &["SCTP", "TCP", "UDP"]);
    let protocol = at.field("appProtocol");
    if protocol.is_set() {
        protocol.rule(errors, names::is_qualified_name);
    }
}

/// Validates an endpoint address: it must not be unspecified, loopback or link-local.
pub(super) fn ordinary_address(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let Some(address) = ip::parse_ip(at.text()) else {
        return at.invalid_as(errors, at.text(), "must be a valid IP address");
    };
    if address.is_unspecified() {
        at.invalid(errors, &format!("may not be unspecified ({})", at.text()));
    }
    if address.is_loopback() {
        at.invalid(errors, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => {
            let head = v6.segments()[0];
            (head & 0xffc0 == 0xfe80, head & 0xff0f == 0xff02)
        }
    };
    if link_local {
        at.invalid(errors, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        let words = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        at.invalid(errors, words);
    }
}

/// EndpointSlices.
pub(super) fn slice(base: Strategy) -> Strategy {
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
