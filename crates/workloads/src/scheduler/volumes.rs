//! Volumes: which nodes the claims of a pod allow, and what is bound to what when it is placed.

use super::node::Node;
use super::pod::{Pod, PodKey};
use super::pod_volumes::PodVolumes;
use crate::node_terms::Term;
use crate::sorted_pairs::{find, labels_of};
use keelson_meta::selector::Selector;
use keelson_meta::{Object, Quantity, Str, Value};
use std::collections::{HashMap, HashSet};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Labels of volumes that restrict them to zones.
const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Namespace and name of a claim.
pub type ClaimKey = (Str, Str);

/// What scheduling reads of a claim.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    pub uid: Str,
    /// Its volume; empty: none.
    pub volume: Str,
    is_bound: bool,
    is_lost: bool,
    is_deleted: bool,
    class: Str,
    selected_node: Str,
    access_modes: Vec<Str>,
    mode: Str,
    request: i64,
    selector: Option<Selector>,
    /// The uid of its controller.
    owner: Str,
}

impl Claim {
    pub fn of(claim: &Object) -> Claim {
        let owner = claim.controller().and_then(|owner| owner.str_at(&["uid"]));
        Claim {
            uid: claim.uid().into(),
            volume: claim.str_at(&["spec", "volumeName"]).into(),
            is_bound: claim.annotation(BIND_COMPLETED).is_some(),
            is_lost: claim.str_at(&["status", "phase"]) == "Lost",
            is_deleted: claim.deletion_timestamp().is_some(),
            class: claim.str_at(&["spec", "storageClassName"]).into(),
            selected_node: claim.annotation(SELECTED_NODE).unwrap_or_default().into(),
            access_modes: texts(claim.array_at(&["spec", "accessModes"])),
            mode: claim.str_at(&["spec", "volumeMode"]).into(),
            request: amount(claim.at(&["spec", "resources", "requests", "storage"])),
            selector: claim
                .at(&["spec", "selector"])
                .and_then(|one| Selector::from_object(Some(one)).ok()),
            owner: owner.unwrap_or_default().into(),
        }
    }

    /// Whether it has its volume for good.
    pub fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.is_bound
    }

    fn is_exclusive(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }
}

/// What scheduling reads of a volume.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    affinity: Option<Vec<Term>>,
    labels: Vec<(Str, Str)>,
    class: Str,
    capacity: i64,
    access_modes: Vec<Str>,
    mode: Str,
    /// Namespace, name and uid of the claim that it is reserved for.
    claim: Option<(Str, Str, Str)>,
    is_available: bool,
    driver: Str,
    handle: Str,
}

impl Volume {
    pub fn of(volume: &Object) -> Volume {
        let reference = volume.at(&["spec", "claimRef"]);
        let claim = reference.map(|reference| {
            let text = |field: &str| Str::new(reference.str_at(&[field]).unwrap_or_default());
            (text("namespace"), text("name"), text("uid"))
        });
        let phase = volume.str_at(&["status", "phase"]);
        Volume {
            affinity: volume.at(&["spec", "nodeAffinity", "required"]).map(Term::all),
            labels: labels_of(volume),
            class: volume.str_at(&["spec", "storageClassName"]).into(),
            capacity: amount(volume.at(&["spec", "capacity", "storage"])),
            access_modes: texts(volume.array_at(&["spec", "accessModes"])),
            mode: volume.str_at(&["spec", "volumeMode"]).into(),
            claim,
            is_available: phase == "Available" && volume.deletion_timestamp().is_none(),
            driver: volume.str_at(&["spec", "csi", "driver"]).into(),
            handle: volume.str_at(&["spec", "csi", "volumeHandle"]).into(),
        }
    }

    fn allows(&self, node: &Node) -> bool {
        let affinity = self.affinity.as_ref();
        affinity.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
    }

    /// Whether the node lies in one of the zones that the labels name.
    pub fn is_in_zone(&self, node: &Node) -> bool {
        ZONE_LABELS.iter().all(|label| {
            let Some(zones) = find(&self.labels, label) else { return true };
            let current = label.replace("failure-domain.beta", "topology");
            let Some(zone) = node.label(label).or_else(|| node.label(&current)) else {
                // Nodes without zones are in all of them.
                return !ZONE_LABELS.iter().any(|label| node.label(label).is_some());
            };
            zones.split("__").any(|one| one == zone)
        })
    }

    fn fits(&self, claim: &Claim, key: &ClaimKey) -> bool {
        let mode = |mode: &Str| if mode.is_empty() { "Filesystem".into() } else { mode.clone() };
        let is_reserved_for_it = match &self.claim {
            None => return self.is_available && self.fits_open(claim, &mode),
            Some((namespace, name, uid)) => {
                *namespace == key.0 && *name == key.1 && (uid.is_empty() || *uid == claim.uid)
            }
        };
        is_reserved_for_it && mode(&self.mode) == mode(&claim.mode)
    }

    fn fits_open(&self, claim: &Claim, mode: &dyn Fn(&Str) -> Str) -> bool {
        let selector = claim.selector.as_ref();
        self.class == claim.class
            && self.capacity >= claim.request
            && mode(&self.mode) == mode(&claim.mode)
            && claim.access_modes.iter().all(|wanted| self.access_modes.contains(wanted))
            && selector.is_none_or(|selector| selector.matches(|key| find(&self.labels, key)))
    }
}

/// What scheduling reads of a storage class.
#[derive(Clone, Debug, Default)]
pub struct Class {
    waits: bool,
    has_provisioner: bool,
    /// Each has requirements by label, with the allowed values.
    topologies: Vec<Vec<(Str, Vec<Str>)>>,
}

impl Class {
    pub fn of(class: &Object) -> Class {
        let requirements = |term: &Value| {
            let all = term.array_at(&["matchLabelExpressions"]).iter();
            let one = |one: &Value| {
                let key = Str::new(one.str_at(&["key"]).unwrap_or_default());
                (key, texts(one.array_at(&["values"])))
            };
            all.map(one).collect()
        };
        Class {
            waits: class.str_at(&["volumeBindingMode"]) == "WaitForFirstConsumer",
            has_provisioner: !matches!(class.str_at(&["provisioner"]), "" | NO_PROVISIONER),
            topologies: class.array_at(&["allowedTopologies"]).iter().map(requirements).collect(),
        }
    }

    fn allows(&self, node: &Node) -> bool {
        self.topologies.is_empty()
            || self.topologies.iter().any(|all| {
                all.iter().all(|(key, values)| {
                    node.label(key).is_some_and(|has| values.iter().any(|one| one == has))
                })
            })
    }
}

fn texts(values: &[Value]) -> Vec<Str> {
    values.iter().filter_map(Value::as_str).map(Str::new).collect()
}

fn amount(value: Option<&Value>) -> i64 {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    text.parse::<Quantity>().map_or(0, |quantity| quantity.value())
}

/// All claims, volumes and classes, and the limits of nodes.
#[derive(Debug, Default)]
pub struct Volumes {
    pub claims: HashMap<ClaimKey, Claim>,
    pub volumes: HashMap<Str, Volume>,
    pub classes: HashMap<Str, Class>,
    /// How many volumes a node attaches, by node and driver.
    pub limits: HashMap<Str, Vec<(Str, usize)>>,
    /// Volumes that were chosen and are not bound yet, with the pods for which they were.
    pub chosen: HashMap<Str, PodKey>,
}

/// What becomes of a claim when its pod is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It gets this volume.
    Volume(ClaimKey, Str),
    /// A volume is made for it on the chosen node.
    Provision(ClaimKey),
}

/// The claims of a pod, sorted by what is to do.
#[derive(Debug, Default)]
pub struct VolumeCheck<'a> {
    pub bound: Vec<&'a Claim>,
    delayed: Vec<(ClaimKey, &'a Claim)>,
    /// Exclusive claims, whose other pod keeps this one away.
    pub exclusive: Vec<Str>,
    drivers: bool,
}

impl Volumes {
    /// Reads the limits of a node.
    pub fn put_limits(&mut self, csi_node: &Object) {
        let drivers = csi_node.array_at(&["spec", "drivers"]).iter().filter_map(|driver| {
            let count = driver.int_at(&["allocatable", "count"])?;
            Some((Str::new(driver.str_at(&["name"])?), usize::try_from(count).ok()?))
        });
        self.limits.insert(csi_node.name().into(), drivers.collect());
    }

    /// Sorts the claims of a pod. An error concerns all nodes.
    pub fn check<'a>(&'a self, pod: &Pod) -> Result<Option<VolumeCheck<'a>>, String> {
        let PodVolumes { claims, drivers } = &pod.volumes;
        if claims.is_empty() && drivers.is_empty() {
            return Ok(None);
        }
        let mut check = VolumeCheck { drivers: !self.limits.is_empty(), ..Default::default() };
        let mut unbound = false;
        for (name, is_ephemeral) in claims {
            let key = (pod.key.0.clone(), name.clone());
            let Some(claim) = self.claims.get(&key) else {
                return Err(if *is_ephemeral {
                    format!(
                        "waiting for ephemeral volume controller to create the \
                         persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                });
            };
            if claim.is_lost {
                let volume = &claim.volume;
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume \
                     {volume:?}"
                ));
            }
            if claim.is_deleted {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if *is_ephemeral && claim.owner != pod.uid {
                let (namespace, pod) = &pod.key;
                return Err(format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not \
                     owner)"
                ));
            }
            if claim.is_exclusive() {
                check.exclusive.push(name.clone());
            }
            let waits = self.classes.get(&claim.class).is_some_and(|class| class.waits);
            match () {
                () if claim.is_bound() => check.bound.push(claim),
                () if waits && claim.volume.is_empty() => check.delayed.push((key, claim)),
                () => unbound = true,
            }
        }
        if unbound {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Ok(Some(check))
    }

    /// Whether all claims of a pod have their volumes.
    pub fn are_bound(&self, pod: &Pod) -> bool {
        let mut claims = pod.volumes.claims.iter();
        claims.all(|(name, _)| {
            let claim = self.claims.get(&(pod.key.0.clone(), name.clone()));
            claim.is_some_and(Claim::is_bound)
        })
    }

    /// Returns how many volumes of each driver the pods of a node use.
    fn attached(&self, pods: &[&Pod]) -> HashMap<Str, HashSet<Str>> {
        let mut attached: HashMap<Str, HashSet<Str>> = HashMap::new();
        for pod in pods {
            for (index, driver) in pod.volumes.drivers.iter().enumerate() {
                let id = Str::new(format!("{}/{}/{index}", pod.key.0, pod.key.1));
                attached.entry(driver.clone()).or_default().insert(id);
            }
            for (name, _) in &pod.volumes.claims {
                let claim = self.claims.get(&(pod.key.0.clone(), name.clone()));
                let volume = claim.and_then(|claim| self.volumes.get(&claim.volume));
                if let Some(volume) = volume.filter(|volume| !volume.driver.is_empty()) {
                    let handles = attached.entry(volume.driver.clone()).or_default();
                    handles.insert(volume.handle.clone());
                }
            }
        }
        attached
    }
}

impl VolumeCheck<'_> {
    /// Whether a node would attach more volumes than it can.
    pub fn exceeds_limits(&self, volumes: &Volumes, pod: &Pod, node: &Node) -> bool {
        let Some(limits) = volumes.limits.get(&node.name).filter(|_| self.drivers) else {
            return false;
        };
        let mut pods: Vec<&Pod> = node.pods.iter().map(AsRef::as_ref).collect();
        pods.push(pod);
        let attached = volumes.attached(&pods);
        let wanted = volumes.attached(&[pod]);
        limits.iter().any(|(driver, limit)| {
            wanted.contains_key(driver)
                && attached.get(driver).is_some_and(|all| all.len() > *limit)
        })
    }

    /// Returns what becomes of the claims on a node, or why it is not allowed.
    pub fn bindings(
        &self,
        volumes: &Volumes,
        node: &Node,
    ) -> Result<Vec<Binding>, Vec<&'static str>> {
        let mut reasons = vec![];
        let known = || self.bound.iter().map(|claim| volumes.volumes.get(&claim.volume));
        if known().flatten().any(|volume| !volume.allows(node)) {
            reasons.push("node(s) didn't match PersistentVolume's node affinity");
        }
        let mut bindings: Vec<Binding> = vec![];
        let mut taken: HashSet<&Str> = volumes.chosen.keys().collect();
        let mut is_bindable = true;
        for (key, claim) in &self.delayed {
            if !claim.selected_node.is_empty() {
                is_bindable &= claim.selected_node == node.name;
                bindings.push(Binding::Provision(key.clone()));
                continue;
            }
            let fitting = volumes.volumes.iter().filter(|(name, volume)| {
                !taken.contains(name) && volume.fits(claim, key) && volume.allows(node)
            });
            let smallest = fitting.min_by(|(name, volume), (other_name, other)| {
                (volume.claim.is_none(), volume.capacity, *name).cmp(&(
                    other.claim.is_none(),
                    other.capacity,
                    *other_name,
                ))
            });
            let class = volumes.classes.get(&claim.class);
            match (smallest, class) {
                (Some((name, _)), _) => {
                    taken.insert(name);
                    bindings.push(Binding::Volume(key.clone(), name.clone()));
                }
                (None, Some(class)) if class.has_provisioner && class.allows(node) => {
                    bindings.push(Binding::Provision(key.clone()));
                }
                _ => is_bindable = false,
            }
        }
        if !is_bindable {
            reasons.push("node(s) didn't find available persistent volumes to bind");
        }
        if known().any(|volume| volume.is_none()) {
            reasons
                .push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
        }
        if reasons.is_empty() { Ok(bindings) } else { Err(reasons) }
    }
}
