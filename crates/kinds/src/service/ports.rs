//! Ports of services.

use crate::check::At;
use crate::pod::probes;
use keelson_meta::names;
use keelson_meta::{ErrorList, FieldError, Seen, value};
use std::collections::HashMap;

/// Each port by itself.
pub(super) fn all(spec: &At<'_, '_>, errors: &mut ErrorList) {
    let list = spec.field("ports");
    let named = list.array().len() > 1;
    let mut seen: Seen<&str> = Seen::new();
    for port in list.items() {
        let name = port.field("name");
        if named || !name.text().is_empty() {
            if name.text().is_empty() {
                name.required(errors, "");
            } else {
                name.rule(errors, names::is_dns1123_label);
                if !seen.insert(name.text()) {
                    name.duplicate(errors);
                }
            }
        }
        port.field("port").port(errors);
        port.field("protocol").required_one_of(errors, &["SCTP", "TCP", "UDP"]);
        probes::port(&port.field("targetPort"), errors);
        port.field("appProtocol").rule_if_set(errors, names::is_qualified_name);
    }
}

/// No port twice, and no port of nodes where the type has none. Where ports of nodes are allocated, that
/// refuses those that stand twice.
pub(super) fn collisions(spec: &At<'_, '_>, errors: &mut ErrorList) {
    let list = spec.field("ports");
    if spec.str("type") == "ClusterIP" {
        for port in list.items() {
            let node = port.field("nodePort");
            if node.number() != 0 {
                node.forbidden(errors, "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    let allocated =
        matches!(spec.str("type"), "NodePort" | "LoadBalancer") && spec.str("clusterIP") != "None";
    let mut nodes: Seen<(&str, i64)> = Seen::new();
    for port in list.items().filter(|_| !allocated) {
        let node = port.field("nodePort");
        if node.number() != 0 && !nodes.insert((port.str("protocol"), node.number())) {
            node.duplicate(errors);
        }
    }
    if allocated {
        shared_node_ports(&list, errors);
    }
    let mut seen: Seen<(&str, i64)> = Seen::new();
    for port in list.items() {
        let key = (port.str("protocol"), port.int("port").unwrap_or(0));
        if !seen.insert(key) {
            let shown = value!({
                "Name": "", "Protocol": (key.0), "AppProtocol": null, "Port": (key.1),
                "TargetPort": 0, "NodePort": 0
            });
            errors.push(FieldError::duplicate(&port.path, shown));
        }
    }
}

/// A port without a node port is given that of the port of its number: the same for another protocol.
fn shared_node_ports(list: &At<'_, '_>, errors: &mut ErrorList) {
    let mut given: HashMap<i64, i64> = HashMap::new();
    let mut seen: Seen<(&str, i64)> = Seen::new();
    for port in list.items() {
        let (number, node) = (port.int("port").unwrap_or(0), port.field("nodePort"));
        let wanted = match node.number() {
            0 => given.get(&number).copied().unwrap_or(0),
            wanted => wanted,
        };
        if wanted == 0 {
            continue;
        }
        given.entry(number).or_insert(wanted);
        if !seen.insert((port.str("protocol"), wanted)) && node.number() == 0 {
            errors.push(FieldError::duplicate(&node.path, wanted));
        }
    }
}
