//! Cluster IPs and IP families of services, and node ports on an update.

use crate::check::{Field, new_ip};
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Value, ip};
use std::collections::{HashMap, HashSet};

/// Returns whether a service is headless.
pub(super) fn is_headless(spec: &Value) -> bool {
    let first = spec.array_at(&["clusterIPs"]).first().and_then(Value::as_str);
    first == Some("None") || spec.str_at(&["clusterIP"]) == Some("None")
}

/// Makes `clusterIP` the first of `clusterIPs`, for clients that know only one of the fields.
pub(super) fn normalize(service: &mut Object, old: Option<&Object>) {
    let one = service.str_at(&["spec", "clusterIP"]).to_owned();
    let many: Vec<Value> = service.array_at(&["spec", "clusterIPs"]).to_vec();
    let spec = service.object_mut("spec");
    let Some(old) = old else {
        if !one.is_empty() && many.is_empty() {
            spec.insert("clusterIPs", vec![one.into()]);
        }
        return;
    };
    let old_one = old.str_at(&["spec", "clusterIP"]);
    let old_many = old.array_at(&["spec", "clusterIPs"]);
    if one == old_one || many != old_many {
        return;
    }
    if one.is_empty() {
        spec.remove("clusterIPs");
    } else {
        spec.insert("clusterIPs", vec![one.into()]);
    }
}

fn has_address(service: &Object) -> bool {
    service.str_at(&["spec", "type"]) != "ExternalName"
}

/// Returns whether missing node ports are allocated.
fn fills_node_ports(service: &Object) -> bool {
    match service.str_at(&["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => {
            let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]);
            allocates.and_then(Value::as_bool) != Some(false)
        }
        _ => false,
    }
}

/// Restores allocated values that the client omitted.
pub(super) fn keep_allocated(new: &mut Object, old: &Object) {
    if has_address(new) && has_address(old) {
        let spec = new.object_mut("spec");
        for name in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old.at(&["spec", name])
                && spec.get(name).is_none_or(Value::is_empty)
            {
                spec.insert(name, value.clone());
            }
        }
    }
    if fills_node_ports(new) && fills_node_ports(old) {
        keep_node_ports(new, old);
    }
    if super::needs_health_check(new)
        && super::needs_health_check(old)
        && let Some(port) = old.at(&["spec", "healthCheckNodePort"]).cloned()
    {
        crate::check::default_empty(new.object_mut("spec"), "healthCheckNodePort", port);
    }
}

/// Restores node ports by port name, unless the client assigned them to another port. Duplicates
/// are rejected later.
fn keep_node_ports(new: &mut Object, old: &Object) {
    let before = old.array_at(&["spec", "ports"]);
    let known: HashMap<&str, i64> = before
        .iter()
        .filter_map(|port| Some((name_of(port), port.int_at(&["nodePort"])?)))
        .collect();
    let ports = new.object_mut("spec").get_mut("ports").and_then(Value::as_array_mut);
    let Some(ports) = ports else { return };
    let given: SmallSet<i64> = ports.iter().filter_map(|port| port.int_at(&["nodePort"])).collect();
    for port in ports {
        let number = known.get(name_of(port)).filter(|number| !given.contains(number)).copied();
        if let (Some(number), Some(map)) = (number, port.as_object_mut()) {
            crate::check::default_empty(map, "nodePort", number);
        }
    }
}

fn name_of(port: &Value) -> &str {
    port.str_at(&["name"]).unwrap_or_default()
}

/// Validates cluster IPs and IP families.
pub(super) fn validate(spec: &Field<'_, '_>, old: Option<&Object>, errors: &mut ErrorList) {
    if spec.str("type") == "ExternalName" {
        return;
    }
    let one = spec.str("clusterIP");
    let many = spec.field("clusterIPs");
    match many.array().first().and_then(Value::as_str) {
        Some(_) if one.is_empty() => {
            many.invalid(errors, "must be empty when `clusterIP` is not specified");
        }
        Some(first) if first != one => many.invalid(errors, "first value must match `clusterIP`"),
        _ => {}
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for family in spec.field("ipFamilies").items() {
        family.one_of(errors, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            family.duplicate(errors);
        }
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    spec.field("ipFamilyPolicy").one_of_if_set(errors, policies);
    let stored: HashSet<&str> = old
        .map(|old| old.array_at(&["spec", "clusterIPs"]))
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let before = errors.len();
    for (index, at) in many.items().enumerate() {
        if index == 0 && at.text() == "None" {
            if many.array().len() > 1 {
                many.invalid(errors, "'None' must be the first and only value");
            }
            continue;
        }
        // Unchanged values are not validated again.
        if !stored.contains(at.text()) {
            errors.extend(new_ip(at.text(), &at.path));
        }
    }
    if many.array().len() > 2 {
        many.invalid(errors, "may only hold up to 2 values");
    }
    if errors.len() > before {
        return;
    }
    let families: Vec<bool> = many
        .array()
        .iter()
        .filter_map(|value| ip::parse_ip(value.as_str()?))
        .map(|address| address.is_ipv4())
        .collect();
    if families.len() > 1 && families[0] == families[1] {
        many.invalid(errors, "may specify no more than one IP for each IP family");
    }
    of_families(spec, errors);
}

/// Checks that each cluster IP has the family at the same position.
fn of_families(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let addresses = spec.field("clusterIPs");
    let families = spec.field("ipFamilies");
    for (index, (at, family)) in addresses.items().zip(families.items()).enumerate() {
        let Some(address) = ip::parse_ip(at.text()) else { continue };
        let fits = match family.text() {
            "IPv4" => address.is_ipv4(),
            "IPv6" => address.is_ipv6(),
            _ => true,
        };
        if !fits {
            let family = family.text();
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            at.invalid(errors, &why);
        }
    }
}

/// Checks that the primary cluster IP does not change.
pub(super) fn update(spec: &Field<'_, '_>, stored: &Field<'_, '_>, errors: &mut ErrorList) {
    let is_name = |at: &Field<'_, '_>| at.str("type") == "ExternalName";
    if is_name(spec) || is_name(stored) {
        return;
    }
    let now = spec.field("clusterIPs");
    let before = stored.field("clusterIPs");
    for (index, old) in before.array().iter().enumerate() {
        match now.array().get(index) {
            Some(new) if new != old => {
                let place = now.path.index(index);
                let words = "may not change once set";
                errors.push(FieldError::invalid(&place, now.value.clone(), words));
            }
            None if index == 0 => {
                let place = now.path.index(0);
                errors.push(FieldError::invalid(
                    &place,
                    now.value.clone(),
                    "primary clusterIP can not be unset",
                ));
            }
            _ => {}
        }
    }
}
