//! Devices: which claims of a pod are allocated, and which devices those that are not would get on
//! a node. Requests are counted; of expressions, only the simple form is understood.

use super::device_selectors::{Device, DeviceSelector};
use super::node::Node;
use super::pod::{Pod, PodKey};
use crate::node_terms::Term;
use keelson_meta::{Object, Str, Value};
use std::collections::{HashMap, HashSet};

/// Namespace and name of a claim.
pub type ClaimKey = (Str, Str);
/// Driver, pool and name of a device.
pub type DeviceKey = (Str, Str, Str);

/// The devices of a slice, and the nodes that reach them.
#[derive(Clone, Debug)]
pub struct Slice {
    reach: Reach,
    devices: Vec<Device>,
}

#[derive(Clone, Debug)]
enum Reach {
    Node(Str),
    All,
    Selected(Vec<Term>),
}

impl Slice {
    pub fn of(slice: &Object) -> Slice {
        let node = slice.str_at(&["spec", "nodeName"]);
        let selected = slice.at(&["spec", "nodeSelector"]).map(Term::all);
        let driver = Str::new(slice.str_at(&["spec", "driver"]));
        let pool = Str::new(slice.str_at(&["spec", "pool", "name"]));
        let devices = slice.array_at(&["spec", "devices"]).iter();
        Slice {
            reach: match selected {
                _ if !node.is_empty() => Reach::Node(node.into()),
                Some(terms) => Reach::Selected(terms),
                None => Reach::All,
            },
            devices: devices.map(|device| Device::of(&driver, &pool, device)).collect(),
        }
    }

    fn is_reached_by(&self, node: &Node) -> bool {
        match &self.reach {
            Reach::Node(name) => *name == node.name,
            Reach::All => true,
            Reach::Selected(terms) => {
                terms.iter().any(|term| term.matches(&node.name, &node.labels))
            }
        }
    }
}

/// Selectors that must all match; `None` stands for one that is not understood.
type Selectors = Vec<Option<DeviceSelector>>;

/// Returns the selectors of a class or a request.
pub fn selectors(list: &[Value]) -> Selectors {
    let expressions = list.iter().filter_map(|one| one.str_at(&["cel", "expression"]));
    expressions.map(DeviceSelector::parse).collect()
}

#[derive(Clone, Debug)]
struct Request {
    name: String,
    class: Str,
    /// `None`: all devices that match.
    count: Option<usize>,
    selectors: Selectors,
}

impl Request {
    /// Returns the alternatives of a request, the best first.
    fn all(request: &Value) -> Vec<Request> {
        let name = request.str_at(&["name"]).unwrap_or_default();
        let read = |one: &Value, name: String| Request {
            name,
            class: one.str_at(&["deviceClassName"]).unwrap_or_default().into(),
            count: match one.str_at(&["allocationMode"]) {
                Some("All") => None,
                _ => usize::try_from(one.int_at(&["count"]).unwrap_or(1)).ok(),
            },
            selectors: selectors(one.array_at(&["selectors"])),
        };
        if let Some(exactly) = request.get("exactly") {
            return vec![read(exactly, name.to_owned())];
        }
        let alternatives = request.array_at(&["firstAvailable"]).iter();
        let named = alternatives.map(|one| {
            let own = one.str_at(&["name"]).unwrap_or_default();
            read(one, format!("{name}/{own}"))
        });
        named.collect()
    }
}

/// What scheduling reads of a claim.
#[derive(Clone, Debug, Default)]
pub struct DeviceClaim {
    is_deleted: bool,
    allocation: Option<Allocation>,
    requests: Vec<Vec<Request>>,
}

/// The devices of a claim: each with the name of its request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    pub results: Vec<(String, DeviceKey)>,
    /// The nodes that reach all of them; `None`: all nodes.
    pub terms: Option<Vec<Term>>,
    /// The only node that reaches them.
    pub node: Option<Str>,
}

impl DeviceClaim {
    pub fn of(claim: &Object) -> DeviceClaim {
        let allocation = claim.at(&["status", "allocation"]).map(|allocation| {
            let results = allocation.array_at(&["devices", "results"]).iter().map(|result| {
                let text = |field: &str| Str::new(result.str_at(&[field]).unwrap_or_default());
                (text("request").to_string(), (text("driver"), text("pool"), text("device")))
            });
            let terms = allocation.at(&["nodeSelector"]).map(Term::all);
            Allocation { results: results.collect(), terms, node: None }
        });
        let requests = claim.array_at(&["spec", "devices", "requests"]).iter();
        DeviceClaim {
            is_deleted: claim.deletion_timestamp().is_some(),
            allocation,
            requests: requests.map(Request::all).collect(),
        }
    }

    pub fn is_allocated(&self) -> bool {
        self.allocation.is_some()
    }
}

/// All slices, classes and claims.
#[derive(Debug, Default)]
pub struct Devices {
    pub slices: HashMap<Str, Slice>,
    pub classes: HashMap<Str, Selectors>,
    pub claims: HashMap<ClaimKey, DeviceClaim>,
    /// Allocations that are being written, and for which pods.
    pub chosen: HashMap<ClaimKey, (PodKey, Allocation)>,
}

/// The claims of a pod, and the devices that are taken.
#[derive(Debug)]
pub struct DeviceCheck<'a> {
    devices: &'a Devices,
    allocated: Vec<&'a Allocation>,
    open: Vec<(&'a ClaimKey, &'a DeviceClaim)>,
    taken: HashSet<DeviceKey>,
}

impl Devices {
    /// Whether all claims of a pod have been created. `None`: one has no name yet.
    pub fn has_all(&self, pod: &Pod, claims: Option<&[Str]>) -> bool {
        claims.is_some_and(|claims| {
            let is_known =
                |name: &Str| self.claims.contains_key(&(pod.key.0.clone(), name.clone()));
            claims.iter().all(is_known)
        })
    }

    /// Sorts the claims of a pod. `Ok(None)`: it has none. An error says why no node is allowed.
    pub fn check<'a>(
        &'a self,
        pod: &Pod,
        claims: &[Str],
    ) -> Result<Option<DeviceCheck<'a>>, String> {
        if claims.is_empty() {
            return Ok(None);
        }
        let known = self.claims.values().filter_map(|claim| claim.allocation.as_ref());
        let chosen = self.chosen.values().map(|(_, allocation)| allocation);
        let taken = known.chain(chosen).flat_map(|one| &one.results).map(|(_, device)| device);
        let mut allocated = vec![];
        let mut open = vec![];
        for name in claims {
            let key = (pod.key.0.clone(), name.clone());
            let not_found = || format!("resourceclaim.resource.k8s.io {name:?} not found");
            let (key, claim) = self.claims.get_key_value(&key).ok_or_else(not_found)?;
            if claim.is_deleted {
                return Err("resourceclaim must not be deleted".to_owned());
            }
            match claim.allocation.as_ref().or(self.chosen.get(key).map(|(_, one)| one)) {
                Some(allocation) => allocated.push(allocation),
                None => open.push((key, claim)),
            }
            let mut requests = claim.requests.iter().flatten();
            if let Some(request) = requests.find(|one| !self.classes.contains_key(&one.class)) {
                let name = &request.name;
                let class = &request.class;
                return Err(format!("request {name}: device class {class} does not exist"));
            }
        }
        Ok(Some(DeviceCheck { devices: self, allocated, open, taken: taken.cloned().collect() }))
    }
}

impl DeviceCheck<'_> {
    /// Returns what the claims get on a node, or why it is not allowed.
    pub fn allocate(&self, node: &Node) -> Result<Vec<(ClaimKey, Allocation)>, &'static str> {
        let is_elsewhere = |allocation: &Allocation| {
            let is_other = allocation.node.as_ref().is_some_and(|name| *name != node.name);
            let terms = allocation.terms.as_ref();
            is_other
                || terms.is_some_and(|terms| {
                    !terms.iter().any(|term| term.matches(&node.name, &node.labels))
                })
        };
        if self.allocated.iter().any(|allocation| is_elsewhere(allocation)) {
            return Err("resourceclaim not available on the node");
        }
        let mut taken = self.taken.clone();
        let mut allocations = vec![];
        for (key, claim) in &self.open {
            let mut allocation = Allocation::default();
            for alternatives in &claim.requests {
                let mut found = alternatives
                    .iter()
                    .map(|request| (request, self.devices_for(request, node, &taken)));
                let Some((request, Some(found))) = found.find(|(_, found)| found.is_some()) else {
                    return Err("cannot allocate all claims");
                };
                for (slice, device) in found {
                    match &slice.reach {
                        Reach::Node(name) => allocation.node = Some(name.clone()),
                        Reach::Selected(terms) => allocation.terms = Some(terms.clone()),
                        Reach::All => {}
                    }
                    taken.insert(key_of(device));
                    allocation.results.push((request.name.clone(), key_of(device)));
                }
            }
            allocations.push(((*key).clone(), allocation));
        }
        Ok(allocations)
    }

    /// Returns the devices for a request on a node; `None` if there are not enough.
    fn devices_for(
        &self,
        request: &Request,
        node: &Node,
        taken: &HashSet<DeviceKey>,
    ) -> Option<Vec<(&Slice, &Device)>> {
        let class = self.devices.classes.get(&request.class)?;
        let selectors: Option<Vec<&DeviceSelector>> =
            class.iter().chain(&request.selectors).map(Option::as_ref).collect();
        let Some(selectors) = selectors else {
            tracing::warn!(request = request.name, "the selector of devices is not understood");
            return None;
        };
        let mut slices: Vec<(&Str, &Slice)> =
            self.devices.slices.iter().filter(|(_, slice)| slice.is_reached_by(node)).collect();
        slices.sort_unstable_by_key(|(name, _)| *name);
        let matching = slices.into_iter().flat_map(|(_, slice)| {
            let devices = slice
                .devices
                .iter()
                .filter(|device| selectors.iter().all(|selector| selector.matches(device)));
            devices.map(move |device| (slice, device))
        });
        let is_free = |(_, device): &(&Slice, &Device)| !taken.contains(&key_of(device));
        match request.count {
            Some(count) => {
                let found: Vec<(&Slice, &Device)> = matching.filter(is_free).take(count).collect();
                (found.len() == count).then_some(found)
            }
            None => {
                let found: Vec<(&Slice, &Device)> = matching.collect();
                (!found.is_empty() && found.iter().all(is_free)).then_some(found)
            }
        }
    }
}

fn key_of(device: &Device) -> DeviceKey {
    (device.driver.clone(), device.pool.clone(), device.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn object(fields: Value) -> Object {
        Object::from_value(fields).unwrap_or_default()
    }

    /// Two devices on the node `a` and one on `b`, one of which is taken.
    fn devices(count: i64) -> Devices {
        let mut devices = Devices::default();
        for (node, names) in [("a", ["d0", "d1"].as_slice()), ("b", &["d0"])] {
            let list: Vec<Value> = names.iter().map(|name| value!({"name": (*name)})).collect();
            let slice = value!({"spec": {"driver": "x", "nodeName": node,
                "pool": {"name": node, "generation": 1}, "devices": (list)}});
            devices.slices.insert(node.into(), Slice::of(&object(slice)));
        }
        let class = value!([{"cel": {"expression": "device.driver == 'x'"}}]);
        devices.classes.insert("c".into(), selectors(class.as_array().unwrap_or_default()));
        let claim = value!({"spec": {"devices": {"requests": [{"name": "r", "exactly":
            {"deviceClassName": "c", "allocationMode": "ExactCount", "count": count}}]}}});
        devices.claims.insert(("n".into(), "new".into()), DeviceClaim::of(&object(claim)));
        let old = value!({"status": {"allocation": {"devices": {"results": [{"request": "r",
            "driver": "x", "pool": "b", "device": "d0"}]}}}});
        devices.claims.insert(("n".into(), "old".into()), DeviceClaim::of(&object(old)));
        devices
    }

    #[test]
    fn claims_get_free_devices_of_their_node() {
        let check = |count: i64, node: &str, want: Result<&str, &str>| {
            let devices = devices(count);
            let pod = Pod { key: ("n".into(), "p".into()), ..Pod::default() };
            let check = devices.check(&pod, &["new".into()]).ok().flatten().map(|check| {
                let node = Node { name: node.into(), ..Node::default() };
                check.allocate(&node).map(|all| {
                    let names = all.iter().flat_map(|(_, one)| &one.results);
                    names.map(|(_, key)| key.2.as_str()).collect::<Vec<&str>>().join(" ")
                })
            });
            assert_eq!(check, Some(want.map(str::to_owned)));
        };
        check(1, "a", Ok("d0"));
        check(2, "a", Ok("d0 d1"));
        check(3, "a", Err("cannot allocate all claims"));
        check(1, "b", Err("cannot allocate all claims"));
    }
}
