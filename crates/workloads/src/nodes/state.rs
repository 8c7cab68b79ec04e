//! What the loop of the nodes knows besides the objects: which pods are on which node, which
//! addresses are taken, and which pods wait for which objects.

use super::pod_facts::{Needed, Rejection, Started};
use super::{PodKey, node};
use crate::scheduler::node::pods_max;
use crate::scheduler::resources::Resources;
use keelson_meta::{Object, Str};
use keelson_records::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// What is needed of a node to run its pods.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: Str,
    /// Its internal addresses.
    pub addresses: Box<[Str]>,
    /// The first 24 bits of the addresses of its pods, with the dot that follows.
    pub pod_prefix: Str,
    pub is_failed: bool,
    pub allocatable: Resources,
    pub pods_max: i64,
}

impl NodeFacts {
    /// Reads a node.
    pub fn of(node: &Object) -> NodeFacts {
        let addresses = node.array_at(&["status", "addresses"]).iter();
        let internal = addresses.filter(|one| one.str_at(&["type"]) == Some("InternalIP"));
        let cidr = node.str_at(&["spec", "podCIDR"]);
        let own = node::pod_cidr(node.name());
        let cidr = if cidr.contains('.') { cidr } else { &own };
        let prefix = cidr.rsplit_once('.').map_or("", |(prefix, _)| prefix);
        NodeFacts {
            name: node.name().into(),
            addresses: internal.filter_map(|one| one.str_at(&["address"])).map(Str::new).collect(),
            pod_prefix: Str::new(format!("{prefix}.")),
            is_failed: node::is_failed(node),
            allocatable: Resources::of(node.at(&["status", "allocatable"])),
            pods_max: pods_max(node),
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct State {
    /// Whether the nodes of the start are being created.
    pub is_registered: bool,
    nodes: HashMap<Str, Arc<NodeFacts>>,
    /// Nodes that existed at some time. They are not created again.
    seen: HashSet<Str>,
    pods: HashMap<PodKey, Place>,
    by_node: HashMap<Str, NodePods>,
    /// Pods that wait for an object: its resource, namespace and name.
    waiting: BTreeMap<Needed, BTreeSet<PodKey>>,
    needed: HashMap<PodKey, Vec<Needed>>,
    /// The exact times at which containers started that end by themselves. The status has seconds.
    started: HashMap<PodKey, Started>,
}

#[derive(Debug)]
struct Place {
    node: Str,
    /// The last number of its address.
    host: Option<u16>,
    /// What it requests, if the node has accepted it and it has not ended.
    accepted: Option<Resources>,
}

#[derive(Debug, Default)]
struct NodePods {
    pods: BTreeSet<PodKey>,
    hosts: BTreeSet<u16>,
    /// The number that is tried next.
    next: u16,
    /// What the accepted pods request, and their number.
    used: Resources,
    accepted: i64,
}

/// Numbers of a /24 that pods may have.
const HOSTS: std::ops::RangeInclusive<u16> = 2..=254;
/// More pods of a node than a /24 has addresses share the numbers above it.
const HOSTS_MAX: u16 = u16::MAX;

impl State {
    /// Forgets what is learned again when all objects are listed.
    pub fn begin_again(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        let started = std::mem::take(&mut self.started);
        *self = State { seen, started, ..State::default() };
    }

    pub fn node(&self, name: &str) -> Option<Arc<NodeFacts>> {
        self.nodes.get(name).cloned()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether any pod is on a node.
    pub fn has_pods(&self) -> bool {
        !self.pods.is_empty()
    }

    pub fn put_node(&mut self, facts: NodeFacts) {
        self.seen.insert(facts.name.clone());
        let name = facts.name.clone();
        self.nodes.insert(name, Arc::new(facts));
    }

    pub fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    pub fn retain_nodes(&mut self, is_known: impl Fn(&str) -> bool) {
        self.nodes.retain(|name, _| is_known(name));
    }

    /// Whether a node existed at some time.
    pub fn was_seen(&self, name: &str) -> bool {
        self.seen.contains(name)
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = PodKey> + use<> {
        let known = self.by_node.get(node).map(|known| known.pods.clone());
        known.unwrap_or_default().into_iter()
    }

    /// Places a pod on its node, with its address.
    pub fn place_pod(&mut self, key: &PodKey, node: &str, address: &str) {
        if let Some(known) = self.pods.get(key)
            && known.node != node
        {
            // It is another pod with the name of one that was deleted.
            self.remove_pod(key);
        }
        let host = address.rsplit_once('.').and_then(|(_, host)| host.parse::<u16>().ok());
        let place = self.pods.entry(key.clone()).or_insert_with(|| {
            let pods = self.by_node.entry(node.into()).or_default();
            pods.pods.insert(key.clone());
            Place { node: node.into(), host: None, accepted: None }
        });
        if place.host.is_none()
            && let Some(host) = host
        {
            place.host = Some(host);
            self.by_node.entry(node.into()).or_default().hosts.insert(host);
        }
    }

    pub fn remove_pod(&mut self, key: &PodKey) {
        self.set_waiting(key, vec![]);
        self.started.remove(key);
        self.release(key);
        let Some(place) = self.pods.remove(key) else { return };
        let Some(pods) = self.by_node.get_mut(&place.node) else { return };
        pods.pods.remove(key);
        if let Some(host) = place.host {
            pods.hosts.remove(&host);
        }
        if pods.pods.is_empty() {
            self.by_node.remove(&place.node);
        }
    }

    /// Counts what a pod requests on its node, unless the node does not have it. A pod that was
    /// accepted before is not asked about again.
    pub fn accept(
        &mut self,
        key: &PodKey,
        facts: &NodeFacts,
        requests: &Resources,
        was_accepted: bool,
    ) -> Result<(), Rejection> {
        let Some(place) = self.pods.get_mut(key).filter(|place| place.accepted.is_none()) else {
            return Ok(());
        };
        let pods = self.by_node.entry(place.node.clone()).or_default();
        if !was_accepted && let Some(rejection) = pods.lack(facts, requests) {
            return Err(rejection);
        }
        pods.used.add(requests);
        pods.accepted += 1;
        place.accepted = Some(requests.clone());
        Ok(())
    }

    /// Gives back what a pod requested, because it has ended.
    pub fn release(&mut self, key: &PodKey) {
        let Some(place) = self.pods.get_mut(key) else { return };
        let Some(requests) = place.accepted.take() else { return };
        if let Some(pods) = self.by_node.get_mut(&place.node) {
            pods.used.sub(&requests);
            pods.accepted -= 1;
        }
    }

    pub fn retain_pods(&mut self, is_known: impl Fn(&PodKey) -> bool) {
        let gone: Vec<PodKey> = self.pods.keys().filter(|key| !is_known(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove_pod(key));
    }

    /// Returns the address of a pod; takes a free one of its node if it has none.
    pub fn address_for(&mut self, key: &PodKey, facts: &NodeFacts) -> Option<Str> {
        let place = self.pods.get_mut(key)?;
        let host = match place.host {
            Some(host) => host,
            None => {
                let host = self.by_node.get_mut(&place.node)?.take_host();
                *place.host.insert(host)
            }
        };
        let prefix = &facts.pod_prefix;
        if HOSTS.contains(&host) {
            return Some(Str::new(format!("{prefix}{host}")));
        }
        // Beyond 253 pods, addresses of 100.64.0.0/10 by node and number.
        let number = crate::random::of_text(prefix) % 64;
        Some(Str::new(format!("100.{}.{}.{}", 64 + number, host / 256, host % 256)))
    }

    /// Sets the objects for which a pod waits.
    pub fn set_waiting(&mut self, key: &PodKey, needed: Vec<Needed>) {
        if needed.is_empty() && !self.needed.contains_key(key) {
            return;
        }
        for old in self.needed.remove(key).unwrap_or_default() {
            if let Some(pods) = self.waiting.get_mut(&old) {
                pods.remove(key);
                if pods.is_empty() {
                    self.waiting.remove(&old);
                }
            }
        }
        for new in &needed {
            self.waiting.entry(new.clone()).or_default().insert(key.clone());
        }
        if !needed.is_empty() {
            self.needed.insert(key.clone(), needed);
        }
    }

    /// Returns the pods that wait for an object.
    pub fn waiting_for(
        &self,
        resource: &str,
        entry: &Entry,
    ) -> impl Iterator<Item = PodKey> + use<> {
        let is_it = |needed: &Needed| {
            needed.0 == resource && needed.1 == entry.namespace() && needed.2 == entry.name()
        };
        let mut all = self.waiting.iter();
        let pods = all.find(|(needed, _)| is_it(needed)).map(|(_, pods)| pods.clone());
        pods.unwrap_or_default().into_iter()
    }

    /// Returns all pods that wait for an object.
    pub fn all_waiting(&self) -> impl Iterator<Item = PodKey> + use<> {
        let keys: Vec<PodKey> = self.needed.keys().cloned().collect();
        keys.into_iter()
    }

    pub fn started(&self, key: &PodKey) -> Started {
        self.started.get(key).cloned().unwrap_or_default()
    }

    /// Remembers when containers started.
    pub fn remember(&mut self, key: &PodKey, started: &Started) {
        if !started.is_empty() {
            self.started.entry(key.clone()).or_default().extend(started.clone());
        }
    }
}

impl NodePods {
    /// Returns what a node does not have for one more pod.
    fn lack(&self, node: &NodeFacts, wanted: &Resources) -> Option<Rejection> {
        let has = &node.allocatable;
        let used = &self.used;
        let mut rows = vec![
            ("pods", 1, node.pods_max, self.accepted),
            ("cpu", wanted.cpu, has.cpu, used.cpu),
            ("memory", wanted.memory, has.memory, used.memory),
            ("ephemeral-storage", wanted.ephemeral, has.ephemeral, used.ephemeral),
        ];
        let others = wanted.others.iter();
        rows.extend(
            others
                .map(|(name, amount)| (name.as_str(), *amount, has.other(name), used.other(name))),
        );
        let lacks = |row: &&(&str, i64, i64, i64)| row.1 > 0 && row.1 > row.2 - row.3;
        let (name, requested, capacity, used) = rows.iter().find(lacks)?;
        Some(Rejection {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, \
                 capacity: {capacity}"
            ),
        })
    }

    fn take_host(&mut self) -> u16 {
        let first = *HOSTS.start();
        let start = if HOSTS.contains(&self.next) { self.next } else { first };
        let mut order = (start..=*HOSTS.end()).chain(first..start).chain(256..HOSTS_MAX);
        let host = order.find(|host| !self.hosts.contains(host)).unwrap_or(HOSTS_MAX);
        self.hosts.insert(host);
        self.next = host.saturating_add(1);
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_accepts_pods_until_it_is_full() {
        let mut state = State::default();
        let mut facts = NodeFacts::default();
        (facts.pods_max, facts.allocatable.cpu) = (3, 1_000);
        let accept = |state: &mut State, name: &str, cpu: i64, was_accepted: bool| {
            state.place_pod(&key(name), "n", "");
            let requests = Resources { cpu, ..Resources::default() };
            let accepted = state.accept(&key(name), &facts, &requests, was_accepted);
            accepted.err().map_or_else(String::new, |rejection| rejection.reason)
        };
        assert_eq!(accept(&mut state, "a", 700, false), "");
        assert_eq!(accept(&mut state, "b", 400, false), "OutOfcpu");
        assert_eq!(accept(&mut state, "a", 700, false), "", "it was accepted");
        state.release(&key("a"));
        assert_eq!(accept(&mut state, "b", 400, false), "");
        assert_eq!(accept(&mut state, "old", 900, true), "");
        assert_eq!(accept(&mut state, "c", 0, false), "");
        assert_eq!(accept(&mut state, "d", 0, false), "OutOfpods");
    }

    fn key(name: &str) -> PodKey {
        ("default".into(), name.into())
    }

    #[test]
    fn pods_of_a_node_have_different_addresses_and_give_them_back() {
        let mut state = State::default();
        let facts = NodeFacts { pod_prefix: "10.1.2.".into(), ..NodeFacts::default() };
        let take = |state: &mut State, name: &str, address: &str| {
            state.place_pod(&key(name), "n", address);
            state.address_for(&key(name), &facts).unwrap_or_default()
        };
        assert_eq!(take(&mut state, "old", "10.1.2.2"), "10.1.2.2");
        assert_eq!(take(&mut state, "a", ""), "10.1.2.3");
        assert_eq!(take(&mut state, "a", ""), "10.1.2.3");
        state.remove_pod(&key("a"));
        assert_eq!(take(&mut state, "b", ""), "10.1.2.4");
        for more in 0..252 {
            take(&mut state, &format!("p{more}"), "");
        }
        let pods: BTreeSet<PodKey> = state.pods_on("n").collect();
        assert_eq!(pods.len(), 254);
        assert!(take(&mut state, "beyond", "").starts_with("100."));
    }

    #[test]
    fn a_pod_waits_for_what_it_needs_until_it_needs_nothing() {
        let mut state = State::default();
        let needed: Needed = ("secrets", "default".into(), "s".into());
        state.set_waiting(&key("a"), vec![needed.clone()]);
        assert_eq!(state.all_waiting().count(), 1);
        state.set_waiting(&key("a"), vec![]);
        assert_eq!((state.all_waiting().count(), state.waiting.len()), (0, 0));
    }
}
