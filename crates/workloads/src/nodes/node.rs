//! Node objects as kubelets write them: pure functions.

use crate::Simulation;
use crate::healthy_node::CONDITIONS;
use keelson_meta::{Map, Object, Str, Timestamp, Value, value};

/// The annotation of nodes that this program created.
pub const OWN: &str = "simulation.keelson.dev/node";
/// The annotation, or label, of fake nodes that users create.
const FAKE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// The annotation of a node without power.
const FAILED: &str = "simulation.keelson.dev/failed";
/// The base of the names of nodes.
const NAME: &str = "keelson-node-";
const VERSION: &str = "v1.36.0";

/// Returns the names of the nodes that are created at the start.
pub fn names(simulation: &Simulation) -> impl Iterator<Item = Str> {
    (0..simulation.nodes).map(|index| Str::new(format!("{NAME}{index}")))
}

/// Whether a node is simulated.
pub fn is_simulated(node: &Object) -> bool {
    let (key, fake) = FAKE;
    node.annotation(OWN).is_some()
        || node.annotation(key) == Some(fake)
        || node.label(key) == Some(fake)
}

/// Whether a node has no power: it does not renew its lease, nor report about pods.
pub fn is_failed(node: &Object) -> bool {
    node.annotation(FAILED) == Some("true")
}

/// Returns the number of a node, from which its addresses are made: the one in its name, else a
/// hash of the name, above those of the nodes of this program.
fn number(name: &str) -> u32 {
    const OWN_MAX: u32 = 8_192;
    let own = name.strip_prefix(NAME).and_then(|number| number.parse::<u32>().ok());
    let other = || OWN_MAX + u32::try_from(crate::random::of_text(name) % 24_000).unwrap_or(0);
    own.filter(|number| *number < OWN_MAX).unwrap_or_else(other)
}

/// Returns the range of pod addresses of a node: a /24 of 10.128.0.0/9.
pub fn pod_cidr(name: &str) -> String {
    let number = number(name);
    format!("10.{}.{}.0/24", 128 + number / 256, number % 256)
}

/// Returns the internal address of a node, in 172.16.0.0/12.
pub fn address(name: &str) -> String {
    let number = number(name) + 2;
    format!("172.{}.{}.{}", 16 + number / 65_536, number / 256 % 256, number % 256)
}

/// Returns a new node of this program, with its status.
pub fn new(name: &str, simulation: &Simulation, now: Timestamp) -> Object {
    let mut labels = Map::new();
    let facts = [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
    ];
    for (key, text) in facts {
        labels.insert(key, text);
    }
    if !simulation.region.is_empty() {
        labels.insert("topology.kubernetes.io/region", simulation.region.as_str());
    }
    if !simulation.zones.is_empty() {
        let place = usize::try_from(number(name)).unwrap_or(0) % simulation.zones.len();
        labels.insert("topology.kubernetes.io/zone", simulation.zones[place].as_str());
    }
    for (key, text) in &simulation.labels {
        labels.insert(key.as_str(), text.as_str());
    }
    let cidr = pod_cidr(name);
    let fields = value!({
        "metadata": {"name": name, "labels": (labels), "annotations": {
            "node.alpha.kubernetes.io/ttl": "0",
            "simulation.keelson.dev/node": "true",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true"
        }},
        "spec": {"podCIDR": (cidr.as_str()), "podCIDRs": [(cidr.as_str())],
            "providerID": (format!("keelson://{name}"))}
    });
    let mut node = Object::from_value(fields).unwrap_or_default();
    set_status(&mut node, simulation, now);
    node
}

/// Brings the status of a node up to date: what is absent is added, and conditions that somebody
/// set to Unknown are reported again. Returns whether anything changed.
pub fn set_status(node: &mut Object, simulation: &Simulation, now: Timestamp) -> bool {
    let name = Str::new(node.name());
    let before = node.get("status").cloned();
    let capacity: Map = simulation
        .capacity
        .iter()
        .map(|(name, amount)| (Str::new(name), Value::from(amount.as_str())))
        .collect();
    let is_absent =
        |node: &Object, field: &str| node.at(&["status", field]).is_none_or(Value::is_empty);
    for field in ["capacity", "allocatable"] {
        if is_absent(node, field) {
            let other = if field == "allocatable" { "capacity" } else { "allocatable" };
            let known = node.at(&["status", other]).filter(|known| !known.is_empty()).cloned();
            let amounts = known.unwrap_or_else(|| capacity.clone().into());
            node.object_mut("status").insert(field, amounts);
        }
    }
    if is_absent(node, "addresses") {
        let addresses = value!([
            {"type": "InternalIP", "address": (address(&name))},
            {"type": "Hostname", "address": (name.clone())}
        ]);
        node.object_mut("status").insert("addresses", addresses);
    }
    if node.str_at(&["status", "nodeInfo", "kubeletVersion"]).is_empty() {
        node.object_mut("status").insert("nodeInfo", node_info(&name));
    }
    if is_absent(node, "daemonEndpoints") {
        let endpoints = value!({"kubeletEndpoint": {"Port": 10250}});
        node.object_mut("status").insert("daemonEndpoints", endpoints);
    }
    set_conditions(node, now);
    node.get("status") != before.as_ref()
}

fn node_info(name: &str) -> Value {
    let id = crate::random::hex(name, 32);
    let uuid = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    value!({
        "architecture": "amd64", "bootID": (uuid.as_str()),
        "containerRuntimeVersion": "keelson://simulation", "kernelVersion": "keelson simulation",
        "kubeProxyVersion": "", "kubeletVersion": (VERSION), "machineID": (id.as_str()),
        "operatingSystem": "linux", "osImage": "keelson simulation", "systemUUID": (uuid.as_str())
    })
}

fn set_conditions(node: &mut Object, now: Timestamp) {
    let status = node.object_mut("status");
    let conditions = status.entry_or("conditions", || Value::Array(vec![]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    for (name, wanted, reason, message) in CONDITIONS {
        let known = conditions.iter().position(|one| one.str_at(&["type"]) == Some(name));
        // What a user set, for example a node under pressure, stays. `Unknown` is the lifecycle
        // controller's word for a node that does not report.
        if known.is_some_and(|known| {
            let status = conditions[known].str_at(&["status"]);
            status != Some("Unknown")
        }) {
            continue;
        }
        let condition = value!({
            "type": name, "status": wanted, "lastHeartbeatTime": (now.text()),
            "lastTransitionTime": (now.text()), "reason": reason, "message": message
        });
        match known {
            Some(known) => conditions[known] = condition,
            None => conditions.push(condition),
        }
    }
}

/// Returns a new lease of a node.
pub fn new_lease(node: &Object, now: Timestamp) -> Object {
    let owner = value!([{"apiVersion": "v1", "kind": "Node", "name": (node.name()),
        "uid": (node.uid())}]);
    let fields = value!({
        "metadata": {"name": (node.name()), "namespace": "kube-node-lease",
            "ownerReferences": (owner)},
        "spec": {"holderIdentity": (node.name()), "leaseDurationSeconds": 40,
            "renewTime": (now.micro().to_string())}
    });
    Object::from_value(fields).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_own_addresses_and_a_zone() {
        let check = |name: &str, cidr: &str, address: &str, zone: &str| {
            let node = new(name, &Simulation::default(), Timestamp::default());
            assert_eq!(node.str_at(&["spec", "podCIDR"]), cidr);
            assert_eq!(
                node.array_at(&["status", "addresses"])[0].str_at(&["address"]),
                Some(address)
            );
            assert_eq!(node.label("topology.kubernetes.io/zone"), Some(zone));
        };
        check("keelson-node-0", "10.128.0.0/24", "172.16.0.2", "zone-a");
        check("keelson-node-300", "10.129.44.0/24", "172.16.1.46", "zone-a");
        check("keelson-node-4999", "10.147.135.0/24", "172.16.19.137", "zone-b");
    }

    #[test]
    fn an_unknown_condition_is_reported_again_and_that_of_a_user_stays() {
        let now = Timestamp::new(1_000, 0);
        let simulation = Simulation::default();
        let mut node = new("keelson-node-0", &simulation, now);
        assert!(!set_status(&mut node, &simulation, Timestamp::new(2_000, 0)));
        let unknown = value!([{"type": "Ready", "status": "Unknown"},
            {"type": "DiskPressure", "status": "True"}]);
        node.object_mut("status").insert("conditions", unknown);
        assert!(set_status(&mut node, &simulation, now));
        let conditions = node.array_at(&["status", "conditions"]);
        let of = |at: usize| conditions[at].str_at(&["status"]);
        assert_eq!((conditions.len(), of(0), of(1)), (4, Some("True"), Some("True")));
    }
}
