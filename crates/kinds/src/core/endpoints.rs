//! Endpoints.

use crate::check::{Field, children};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Object, ip, names};
use std::net::IpAddr;

/// Endpoints.
pub(super) const fn endpoints(base: Strategy) -> Strategy {
    Strategy { default: default_endpoints, validate: |new, _| validate_endpoints(new), ..base }
}

fn default_endpoints(endpoints: &mut Object) {
    for subset in children(&mut endpoints.root, "subsets") {
        for port in children(subset, "ports") {
            crate::check::default_empty(port, "protocol", "TCP");
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
pub(crate) fn ordinary_address(at: &Field<'_, '_>, errors: &mut ErrorList) {
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
