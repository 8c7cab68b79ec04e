//! Validates the ports of services.

use crate::check::Field;
use crate::core::pod::probes;
use keelson_meta::names;
use keelson_meta::{ErrorList, FieldError, SmallSet, value};
use std::collections::HashMap;

/// Validates each port.
pub(super) fn all(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let list = spec.field("ports");
    let named = list.array().len() > 1;
    let mut seen: SmallSet<&str> = SmallSet::new();
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
        let protocol = port.field("appProtocol");
        if protocol.is_set() {
            protocol.rule(errors, names::is_qualified_name);
        }
    }
}

/// Reports duplicate ports, and node ports of a type without them. Duplicate node ports are
/// rejected by the allocation.
pub(super) fn collisions(spec: &Field<'_, '_>, is_new: bool, errors: &mut ErrorList) {
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
    let mut nodes: SmallSet<(&str, i64)> = SmallSet::new();
    for port in list.items().filter(|_| !allocated) {
        let node = port.field("nodePort");
        if node.number() != 0 && !nodes.insert((port.str("protocol"), node.number())) {
            node.duplicate(errors);
        }
    }
    if allocated && is_new {
        shared_node_ports(&list, errors);
    }
    let mut seen: SmallSet<(&str, i64)> = SmallSet::new();
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

/// Checks node ports that are shared by protocols: only ports with the same number may share one.
/// Other duplicates are rejected by the allocation.
fn shared_node_ports(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let number = |port: &Field<'_, '_>| port.int("port").unwrap_or(0);
    let mut given: HashMap<i64, i64> = HashMap::new();
    for port in list.items() {
        let node = port.int("nodePort").filter(|node| *node != 0);
        if let Some(node) = node {
            given.entry(number(&port)).or_insert(node);
        }
    }
    let mut seen: SmallSet<(&str, i64, i64)> = SmallSet::new();
    for port in list.items() {
        let node = port.field("nodePort");
        let of = number(&port);
        let wanted = match node.number() {
            0 => given.get(&of).copied().unwrap_or(0),
            wanted => wanted,
        };
        if wanted != 0 && !seen.insert((port.str("protocol"), of, wanted)) {
            errors.push(FieldError::duplicate(&node.path, wanted));
        }
    }
}
