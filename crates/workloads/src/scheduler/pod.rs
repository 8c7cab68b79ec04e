//! [`Pod`]: what scheduling reads of a pod, parsed once.

use super::affinity_terms::Affinity;
use super::pod_volumes::PodVolumes;
use super::resources::{Requests, requests};
use super::spread_constraints::Constraint;
use crate::node_terms::NodeAffinity;
use crate::sorted_pairs::{find, labels_of};
use crate::taints::Toleration;
use keelson_meta::{Object, Str, Timestamp, Value};

/// Namespace and name of a pod.
pub type PodKey = (Str, Str);

/// What scheduling reads of a pod.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    pub key: PodKey,
    pub uid: Str,
    /// Its node; empty: none yet.
    pub node: Str,
    /// Sorted by key.
    pub labels: Vec<(Str, Str)>,
    pub priority: i64,
    pub requests: Requests,
    pub ports: Vec<Port>,
    pub affinity: Option<Box<Affinity>>,
    pub is_terminating: bool,
    pub volumes: PodVolumes,
    /// When its node accepted it.
    pub started: Option<Timestamp>,
    /// What is read of pods without a node only.
    pub wishes: Option<Box<Wishes>>,
}

/// What a pod asks of its node.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub tolerations: Vec<Toleration>,
    pub node_affinity: NodeAffinity,
    pub constraints: Vec<Constraint>,
    pub nominated: Str,
    pub never_preempts: bool,
    pub images: Vec<Str>,
    /// Whether it belongs to a DaemonSet or another controller: kind and name of the owner.
    pub owner: Option<(Str, Str)>,
    /// Names of claims of devices; `None`: one has not been created yet.
    pub device_claims: Option<Vec<Str>>,
    /// `metadata.generation`: whether anything but the status has changed.
    pub generation: i64,
    pub is_gated: bool,
}

/// A port of a node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Empty: all addresses.
    pub ip: Str,
    pub protocol: Str,
    pub number: i64,
}

impl Port {
    /// Whether two pods with these ports cannot be on one node.
    pub fn conflicts_with(&self, other: &Port) -> bool {
        let overlap = self.ip == other.ip || self.ip.is_empty() || other.ip.is_empty();
        overlap && self.number == other.number && self.protocol == other.protocol
    }
}

impl Pod {
    /// Reads a pod.
    pub fn of(object: &Object) -> Pod {
        let node = Str::new(object.str_at(&["spec", "nodeName"]));
        let started = object.str_at(&["status", "startTime"]);
        let wishes = node.is_empty().then(|| Box::new(Wishes::of(object)));
        let labels = labels_of(object);
        Pod {
            key: (object.namespace().into(), object.name().into()),
            uid: object.uid().into(),
            affinity: Affinity::of(object).map(Box::new),
            labels,
            node,
            priority: object.int_at(&["spec", "priority"]).unwrap_or(0),
            requests: requests(object),
            ports: ports(object),
            is_terminating: object.deletion_timestamp().is_some(),
            volumes: PodVolumes::of(object),
            started: Timestamp::parse(started).ok(),
            wishes,
        }
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }
}

fn ports(pod: &Object) -> Vec<Port> {
    let all = pod.array_at(&["spec", "containers"]).iter();
    let is_sidecar = |one: &&Value| one.str_at(&["restartPolicy"]) == Some("Always");
    let sidecars = pod.array_at(&["spec", "initContainers"]).iter().filter(is_sidecar);
    let ports = all.chain(sidecars).flat_map(|container| container.array_at(&["ports"]));
    let taken = ports.filter_map(|port| {
        let number = port.int_at(&["hostPort"]).filter(|number| *number > 0)?;
        let ip = port.str_at(&["hostIP"]).filter(|ip| *ip != "0.0.0.0").unwrap_or_default();
        let protocol = port.str_at(&["protocol"]).unwrap_or("TCP");
        Some(Port { ip: ip.into(), protocol: protocol.into(), number })
    });
    taken.collect()
}

impl Wishes {
    fn of(object: &Object) -> Wishes {
        let labels = labels_of(object);
        let containers = ["initContainers", "containers"];
        let images = containers.iter().flat_map(|list| object.array_at(&["spec", list]));
        let owner = object.controller().map(|owner| {
            let text = |field: &str| Str::new(owner.str_at(&[field]).unwrap_or_default());
            (text("kind"), text("name"))
        });
        Wishes {
            tolerations: Toleration::all(object),
            node_affinity: NodeAffinity::of(object),
            constraints: Constraint::all(object, &labels),
            nominated: object.str_at(&["status", "nominatedNodeName"]).into(),
            never_preempts: object.str_at(&["spec", "preemptionPolicy"]) == "Never",
            images: images.filter_map(|one| one.str_at(&["image"])).map(Str::new).collect(),
            owner,
            device_claims: device_claims(object),
            generation: object.generation(),
            is_gated: !object.array_at(&["spec", "schedulingGates"]).is_empty(),
        }
    }
}

/// Returns the names of the claims of devices of a pod. Those from templates stand in its status.
fn device_claims(pod: &Object) -> Option<Vec<Str>> {
    let statuses = pod.array_at(&["status", "resourceClaimStatuses"]);
    let name_of = |claim: &Value| {
        if let Some(name) = claim.str_at(&["resourceClaimName"]) {
            return Some(Some(Str::new(name)));
        }
        let made = statuses.iter().find(|one| one.get("name") == claim.get("name"))?;
        Some(made.str_at(&["resourceClaimName"]).map(Str::new))
    };
    let names: Option<Vec<Option<Str>>> =
        pod.array_at(&["spec", "resourceClaims"]).iter().map(name_of).collect();
    // A template that makes no claim has a status without a name.
    Some(names?.into_iter().flatten().collect())
}
