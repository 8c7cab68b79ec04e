//! [`Check`]: which nodes are allowed for a pod, in the order of the default profile's plugins.

use super::affinity::{AffinityCheck, AffinityConflict};
use super::cluster::View;
use super::devices::DeviceCheck;
use super::node::Node;
use super::pod::{Pod, Wishes};
use super::spread::{SpreadCheck, SpreadConflict};
use super::volume_conflicts::VolumeConflict;
use super::volumes::VolumeCheck;
use crate::taints::{self, Taint, UNSCHEDULABLE};
use keelson_meta::Str;

/// The plugins that reject nodes or pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
}

/// Why a node is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub plugin: Plugin,
    pub reasons: Vec<Str>,
    /// Whether the end of other pods could help.
    pub is_resolvable: bool,
}

impl Rejection {
    fn of(plugin: Plugin, reason: &'static str, is_resolvable: bool) -> Rejection {
        Rejection { plugin, reasons: vec![Str::new_static(reason)], is_resolvable }
    }
}

/// What is computed once for a pod, before single nodes are looked at.
pub struct Check<'a> {
    view: View<'a>,
    pod: &'a Pod,
    wishes: &'a Wishes,
    volumes: Option<VolumeCheck<'a>>,
    spread: Option<SpreadCheck<'a>>,
    affinity: Option<AffinityCheck>,
    devices: Option<DeviceCheck<'a>>,
}

/// Why no node at all is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRejection {
    pub plugin: Plugin,
    pub reason: String,
}

impl<'a> Check<'a> {
    /// Prepares the check of nodes.
    pub fn of(view: View<'a>, pod: &'a Pod, wishes: &'a Wishes) -> Result<Check<'a>, PodRejection> {
        let volumes = view
            .cluster
            .volumes
            .check(pod)
            .map_err(|reason| PodRejection { plugin: Plugin::VolumeBinding, reason })?;
        let claims = wishes.device_claims.as_deref().unwrap_or_default();
        let devices = view
            .cluster
            .devices
            .check(pod, claims)
            .map_err(|reason| PodRejection { plugin: Plugin::DynamicResources, reason })?;
        let spread = SpreadCheck::of(view, pod, wishes);
        let affinity = AffinityCheck::of(view, pod);
        Ok(Check { view, pod, wishes, volumes, spread, affinity, devices })
    }

    pub fn volumes(&self) -> Option<&VolumeCheck<'a>> {
        self.volumes.as_ref()
    }

    pub fn devices(&self) -> Option<&DeviceCheck<'a>> {
        self.devices.as_ref()
    }

    /// Returns why a node is not allowed; `None` if it is.
    pub fn rejection(&self, node: &Node) -> Option<Rejection> {
        let nominated = self.view.cluster.nominated(&node.name);
        let mut others = nominated
            .iter()
            .filter(|other| other.priority >= self.pod.priority && other.key != self.pod.key)
            .peekable();
        if others.peek().is_some() {
            // Room that is made for others does not count as free.
            let mut crowded = node.clone();
            others.for_each(|other| crowded.add(other.clone()));
            if let Some(rejection) = self.rejection_alone(&crowded) {
                return Some(rejection);
            }
        }
        self.rejection_alone(node)
    }

    fn rejection_alone(&self, node: &Node) -> Option<Rejection> {
        self.own_rejection(node)
            .or_else(|| self.port_rejection(node))
            .or_else(|| fit_rejection(self.pod, node))
            .or_else(|| self.volume_rejection(node))
            .or_else(|| self.topology_rejection(node))
            .or_else(|| {
                let reason = self.devices.as_ref()?.allocate(node).err()?;
                Some(Rejection::of(Plugin::DynamicResources, reason, false))
            })
    }

    /// Checks what the pod and the node say, without other pods.
    fn own_rejection(&self, node: &Node) -> Option<Rejection> {
        let wishes = self.wishes;
        if node.is_unschedulable {
            let taint = Taint {
                key: UNSCHEDULABLE.into(),
                value: Str::default(),
                effect: "NoSchedule".into(),
            };
            if !taints::is_tolerated(&taint, &wishes.tolerations) {
                let reason = "node(s) were unschedulable";
                return Some(Rejection::of(Plugin::NodeUnschedulable, reason, false));
            }
        }
        if taints::untolerated(&node.taints, &wishes.tolerations).is_some() {
            let reason = "node(s) had untolerated taint(s)";
            return Some(Rejection::of(Plugin::TaintToleration, reason, false));
        }
        if !wishes.node_affinity.matches(&node.name, &node.labels) {
            let reason = "node(s) didn't match Pod's node affinity/selector";
            return Some(Rejection::of(Plugin::NodeAffinity, reason, false));
        }
        None
    }

    fn port_rejection(&self, node: &Node) -> Option<Rejection> {
        let conflicts = self
            .pod
            .ports
            .iter()
            .any(|port| node.ports.iter().any(|taken| taken.conflicts_with(port)));
        let reason = "node(s) didn't have free ports for the requested pod ports";
        conflicts.then(|| Rejection::of(Plugin::NodePorts, reason, true))
    }

    fn volume_rejection(&self, node: &Node) -> Option<Rejection> {
        let conflict = self.volumes.as_ref()?.conflict(self.view, self.pod, node)?;
        Some(match conflict {
            VolumeConflict::Exclusive => {
                let reason = "node has pod using PersistentVolumeClaim with the same name and \
                              ReadWriteOncePod access mode";
                Rejection::of(Plugin::VolumeRestrictions, reason, true)
            }
            VolumeConflict::TooMany => {
                let reason = "node(s) exceed max volume count";
                Rejection::of(Plugin::NodeVolumeLimits, reason, true)
            }
            VolumeConflict::Binding(reasons) => Rejection {
                plugin: Plugin::VolumeBinding,
                reasons: reasons.into_iter().map(Str::new_static).collect(),
                is_resolvable: false,
            },
            VolumeConflict::Zone => {
                Rejection::of(Plugin::VolumeZone, "node(s) had no available volume zone", false)
            }
        })
    }

    fn topology_rejection(&self, node: &Node) -> Option<Rejection> {
        if let Some(conflict) =
            self.spread.as_ref().and_then(|spread| spread.conflict(self.pod, node))
        {
            let plugin = Plugin::PodTopologySpread;
            return Some(match conflict {
                SpreadConflict::MissingLabel => {
                    let reason = "node(s) didn't match pod topology spread constraints (missing \
                                  required label)";
                    Rejection::of(plugin, reason, false)
                }
                SpreadConflict::Skew => {
                    let reason = "node(s) didn't match pod topology spread constraints";
                    Rejection::of(plugin, reason, true)
                }
            });
        }
        let affinity = self.affinity.as_ref()?;
        let conflict = affinity.conflict(self.view.cluster, self.pod, node)?;
        let (reason, is_resolvable) = match conflict {
            AffinityConflict::Affinity => ("node(s) didn't match pod affinity rules", false),
            AffinityConflict::AntiAffinity => {
                ("node(s) didn't match pod anti-affinity rules", true)
            }
            AffinityConflict::ExistingAntiAffinity => {
                ("node(s) didn't satisfy existing pods anti-affinity rules", true)
            }
        };
        Some(Rejection::of(Plugin::InterPodAffinity, reason, is_resolvable))
    }
}

/// Whether a node has room: number of pods and all resources. All that is lacking is named.
fn fit_rejection(pod: &Pod, node: &Node) -> Option<Rejection> {
    let wanted = &pod.requests.exact;
    let has = &node.allocatable;
    let used = &node.requested;
    let mut reasons = vec![];
    let mut is_resolvable = true;
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= node.pods_max {
        reasons.push(Str::new_static("Too many pods"));
    }
    let mut lacks = |name: &str, wanted: i64, has: i64, used: i64| {
        if wanted > 0 && wanted > has - used {
            reasons.push(Str::new(format!("Insufficient {name}")));
            is_resolvable &= wanted <= has;
        }
    };
    lacks("cpu", wanted.cpu, has.cpu, used.cpu);
    lacks("memory", wanted.memory, has.memory, used.memory);
    lacks("ephemeral-storage", wanted.ephemeral, has.ephemeral, used.ephemeral);
    for (name, amount) in &wanted.others {
        lacks(name, *amount, has.other(name), used.other(name));
    }
    let plugin = Plugin::NodeResourcesFit;
    (!reasons.is_empty()).then_some(Rejection { plugin, reasons, is_resolvable })
}
