//! Simulated nodes: they register themselves, renew their leases, and report about their pods as
//! kubelets do. One loop runs all of them; each acts as its own user (`system:node:NAME`).
//!
//! What a pod does follows from its spec, its annotations and the time ([`pod::step`]); its
//! containers' state is kept in its status alone, so that a restarted program goes on where the
//! last one ended.

mod behavior;
mod conditions;
mod container;
mod events;
mod lease;
mod logs;
mod needs;
pub(crate) mod node;
mod pod;
mod pod_facts;
mod reports;
mod script;
pub(crate) mod state;

pub use logs::simulated_nodes;
pub(crate) use reports::Reports;

use crate::Simulation;
use crate::node_terms::NodeAffinity;
use crate::scheduler::resources::requests;
use crate::sorted_pairs::labels_of;
use crate::stored::name_of;
use events::PodEvents;
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Object, Str, Timestamp, Value};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, NewObject, Registry, Subresource, Target};
use keelson_resources::Kind;
use pod_facts::Rejection;
use state::{NodeFacts, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum number of pods whose events wait to be written. After that, nodes wait for the events.
const EVENT_BATCHES_MAX: usize = 4_096;
/// Nothing is due before the next change.
const FOREVER: Option<Duration> = None;

/// What the nodes share with what runs beside them, and keep over a new start.
#[derive(Clone)]
pub(crate) struct Shared {
    pub state: Arc<Mutex<State>>,
    events: mpsc::Sender<PodEvents>,
}

/// Returns the shared part, and what writes the events of pods until it is dropped.
pub(crate) fn shared() -> (Shared, impl Future<Output = ()>) {
    let (events, received) = mpsc::channel(EVENT_BATCHES_MAX);
    (Shared { state: Arc::default(), events }, events::write(received))
}

/// Runs the nodes until it is dropped. What Stages decide is left to them.
pub(crate) async fn run(
    context: &crate::Context,
    shared: &Shared,
    has_staged_nodes: bool,
    has_staged_pods: bool,
) {
    lock_state(&shared.state).begin_again();
    let nodes = Nodes {
        registry: context.registry.clone(),
        events: shared.events.clone(),
        simulation: context.simulation.clone(),
        reports: context.reports.clone(),
        state: shared.state.clone(),
        has_staged_nodes,
        has_staged_pods,
    };
    control_loop::run(&context.registry, nodes).await;
}

fn lock_state(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a node knows when it looks at a pod.
struct NodeView<'a> {
    facts: &'a NodeFacts,
    needs: &'a needs::Needs,
    rejection: Option<&'a Rejection>,
}

/// Maximum pods and nodes that are synced at once.
const WORKERS_MAX: usize = 64;
/// While there are no pods, one of so many nodes is synced at once, but at least `WORKERS_MIN`.
const NODES_PER_WORKER: usize = 64;
const WORKERS_MIN: usize = 2;

/// Returns how many keys are synced at once. While there are no pods, they are few: what many
/// writes need for a moment makes pages that stay, because something that lives on lies in each.
fn workers_for(nodes: usize, has_pods: bool) -> usize {
    match has_pods {
        true => WORKERS_MAX,
        false => (nodes / NODES_PER_WORKER).clamp(WORKERS_MIN, WORKERS_MAX),
    }
}

struct Nodes {
    registry: Arc<Registry>,
    events: mpsc::Sender<PodEvents>,
    simulation: Arc<Simulation>,
    reports: Arc<Reports>,
    state: Arc<Mutex<State>>,
    /// Whether Stages write the status of nodes.
    has_staged_nodes: bool,
    /// Whether Stages say what pods do.
    has_staged_pods: bool,
}

/// What is synced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    /// The object of a node.
    Node(Str),
    /// The lease of a node.
    Lease(Str),
    /// A pod, by namespace and name.
    Pod(Str, Str),
}

/// Namespace and name of a pod.
pub(crate) type PodKey = (Str, Str);

impl ControlLoop for Nodes {
    type Key = Key;
    const NAME: &'static str = "simulated-nodes";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("", "configmaps"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "pods"),
        ("", "secrets"),
    ]);
    const WORKERS_MAX: usize = WORKERS_MAX;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn workers(&self) -> usize {
        let state = self.state();
        workers_for(self.simulation.nodes.max(state.node_count()), state.has_pods())
    }

    /// However many pods there are, a node must not look dead.
    fn is_urgent(key: &Key) -> bool {
        matches!(key, Key::Lease(_))
    }

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        let mut state = self.state();
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => match kind.gvr.resource.as_str() {
                    "nodes" => {
                        for entry in all.range("", "") {
                            self.observe_node(&mut state, kind, entry, queue);
                        }
                        state.retain_nodes(|name| all.get(name).is_some());
                        if !std::mem::replace(&mut state.is_registered, true) {
                            queue.extend(node::names(&self.simulation).map(Key::Node));
                        }
                    }
                    "pods" => {
                        state.retain_pods(|key| all.get(&format!("{}/{}", key.0, key.1)).is_some());
                        all.range("", "").for_each(|entry| observe_pod(&mut state, entry, queue));
                    }
                    _ => queue.extend(state.all_waiting().map(pod_key)),
                },
                InformerEvent::Put { kind, entry, .. } => match kind.gvr.resource.as_str() {
                    "nodes" => self.observe_node(&mut state, kind, entry, queue),
                    "pods" => observe_pod(&mut state, entry, queue),
                    resource => {
                        queue.extend(state.waiting_for(resource, entry).map(pod_key));
                    }
                },
                InformerEvent::Deleted { kind, entry } => match kind.gvr.resource.as_str() {
                    "nodes" => state.remove_node(entry.name()),
                    "pods" => state.remove_pod(&name_of(entry)),
                    _ => {}
                },
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        match key {
            Key::Node(name) => self.sync_node(&name).await,
            Key::Lease(name) => self.renew_lease(&name).await,
            Key::Pod(namespace, name) => self.sync_pod((namespace, name)).await,
        }
    }
}

fn pod_key((namespace, name): PodKey) -> Key {
    Key::Pod(namespace, name)
}

/// Places a pod on its node, and makes it due if the node is simulated.
fn observe_pod(state: &mut State, entry: &Entry, queue: &mut Queue<Key>) {
    let Some(node) = entry.field("spec.nodeName").filter(|node| !node.is_empty()) else { return };
    let key = name_of(entry);
    state.place_pod(&key, node, entry.field("status.podIP").unwrap_or_default());
    if state.node(node).is_some() {
        queue.add(pod_key(key));
    }
}

impl Nodes {
    fn state(&self) -> MutexGuard<'_, State> {
        lock_state(&self.state)
    }

    fn observe_node(&self, state: &mut State, kind: &Kind, entry: &Entry, queue: &mut Queue<Key>) {
        let Ok(object) = kind.decode(entry) else { return };
        if !node::is_simulated(&object) {
            return state.remove_node(entry.name());
        }
        let facts = NodeFacts::of(&object);
        let is_failed = facts.is_failed;
        let was_running = state.node(entry.name()).map(|known| !known.is_failed);
        state.put_node(facts);
        if is_failed {
            return;
        }
        queue.add(Key::Node(entry.name().into()));
        if was_running != Some(true) {
            queue.add(Key::Lease(entry.name().into()));
            queue.extend(state.pods_on(entry.name()).map(pod_key));
        }
    }

    fn client_of(&self, node: &str) -> Client {
        let user = format!("system:node:{node}");
        Client::of_user(&self.registry, &user, &["system:nodes"]).with_field_manager("kubelet")
    }

    /// Creates a node, or brings its status up to date.
    async fn sync_node(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.registry.kind("", "nodes") else { return Ok(FOREVER) };
        let target = Target::of(&kind, "", name);
        let client = self.client_of(name);
        let now = client.now();
        let Some(entry) = self.registry.cached(&kind, "", name) else {
            let is_wanted = node::names(&self.simulation).any(|wanted| wanted == name);
            if is_wanted && !self.state().was_seen(name) {
                let mut new = node::new(name, &self.simulation, now);
                if self.has_staged_nodes {
                    new.object_mut("status").remove("conditions");
                }
                client.create(&target, new).await?;
            }
            return Ok(FOREVER);
        };
        if self.has_staged_nodes {
            return Ok(FOREVER);
        }
        let mut object = kind.decode(&entry)?;
        if node::is_failed(&object) || !node::set_status(&mut object, &self.simulation, now) {
            return Ok(FOREVER);
        }
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            node::set_status(&mut object, &self.simulation, now);
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        match client.modify(&target, Subresource::Status, &change).await {
            Err(status) if status.code == 404 => Ok(FOREVER),
            result => result.map(|()| FOREVER),
        }
    }

    /// Brings the status of a pod up to date, or removes the pod.
    async fn sync_pod(&self, key: PodKey) -> Result<Option<Duration>, Failure> {
        if self.has_staged_pods {
            return Ok(FOREVER);
        }
        let Some(kind) = self.registry.kind("", "pods") else { return Ok(FOREVER) };
        let Some(entry) = self.registry.cached(&kind, &key.0, &key.1) else { return Ok(FOREVER) };
        let facts = entry.field("spec.nodeName").and_then(|node| self.state().node(node));
        let Some(facts) = facts.filter(|facts| !facts.is_failed) else { return Ok(FOREVER) };
        let object = kind.decode(&entry)?;
        let needs = needs::of(&self.registry, &object);
        self.state().set_waiting(&key, needs.missing());
        let rejection = self.rejection(&facts, &key, &object);
        let node = NodeView { facts: &facts, needs: &needs, rejection: rejection.as_ref() };
        let outcome = self.step(&key, &node, &object);
        let target = Target::of(&kind, &key.0, &key.1);
        let client = self.client_of(&facts.name);
        if outcome.status.is_some() {
            self.state().remember(&key, &outcome.started);
            match self.write_status(&client, &target, &node, &object).await {
                Err(status) if status.code == 404 => return Ok(FOREVER),
                result => result?,
            }
        }
        if self.simulation.pod_events && !outcome.events.is_empty() {
            let events = outcome.events;
            let batch = PodEvents {
                client: client.clone(),
                node: facts.name.clone(),
                pod: object.clone(),
                events,
            };
            // The receiver ends with the loop.
            let _ = self.events.send(batch).await;
        }
        if outcome.is_removed {
            return remove(&client, &target, &object).await;
        }
        let now = client.now();
        Ok(outcome.wake.map(|wake| span(wake.since(now))))
    }

    /// Writes the status that follows from the newest state of a pod.
    async fn write_status(
        &self,
        client: &Client,
        target: &Target,
        node: &NodeView<'_>,
        pod: &Object,
    ) -> Result<(), Failure> {
        let key = (target.namespace.clone(), target.name.clone());
        let change = |live: Option<&Object>| {
            // Another pod may have the name by now.
            let live = live.filter(|live| live.uid() == pod.uid());
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if let Some(status) = self.step(&key, node, &object).status {
                object.root.insert("status", status);
            }
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        client.modify(target, Subresource::Status, &change).await
    }

    fn step(&self, key: &PodKey, node: &NodeView<'_>, object: &Object) -> pod::Outcome {
        let NodeView { facts, needs, rejection } = *node;
        let uses_host = object.at(&["spec", "hostNetwork"]).and_then(Value::as_bool) == Some(true);
        let pod_ip = if uses_host {
            facts.addresses.first().cloned()
        } else {
            let given = object.str_at(&["status", "podIP"]);
            let mut state = self.state();
            if given.is_empty() { state.address_for(key, facts) } else { Some(given.into()) }
        };
        let started = self.state().started(key);
        let surroundings = pod::Surroundings {
            now: self.registry.clock.now(),
            host_ips: &facts.addresses,
            pod_ip: pod_ip.as_deref(),
            needs,
            rejection,
            started: &started,
        };
        pod::step(object, &surroundings)
    }

    /// Whether a pod asks for another node. Few ask for any, so that labels are not kept.
    fn is_elsewhere(&self, node: &str, pod: &Object) -> bool {
        let affinity = NodeAffinity::of(pod);
        let read = || {
            let kind = self.registry.kind("", "nodes")?;
            kind.decode(&self.registry.cached(&kind, "", node)?).ok()
        };
        affinity.is_required()
            && read().is_some_and(|object| !affinity.matches(node, &labels_of(&object)))
    }

    /// Returns why a node does not accept a pod that it has not accepted before.
    fn rejection(&self, facts: &NodeFacts, key: &PodKey, pod: &Object) -> Option<Rejection> {
        if matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed") {
            self.state().release(key);
            return None;
        }
        let was_accepted = !pod.str_at(&["status", "startTime"]).is_empty();
        if !was_accepted && self.is_elsewhere(&facts.name, pod) {
            return Some(Rejection {
                reason: "NodeAffinity".to_owned(),
                message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node \
                          affinity/selector"
                    .to_owned(),
            });
        }
        let requests = requests(pod).exact;
        self.state().accept(key, facts, &requests, was_accepted).err()
    }
}

async fn remove(
    client: &Client,
    target: &Target,
    pod: &Object,
) -> Result<Option<Duration>, Failure> {
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        uid: Some(pod.uid().into()),
        ..DeleteOptions::default()
    };
    match client.delete(target, &options).await {
        // The pod is gone, or another one has its name.
        Err(status) if status.code == 404 || status.code == 409 => Ok(FOREVER),
        result => result.map(|_| FOREVER),
    }
}

/// Returns a duration that is not negative.
pub(crate) fn span(duration: GoDuration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.0).unwrap_or(0))
}

/// Returns a time that lies a duration after another.
fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.plus(duration.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_without_pods_are_written_two_at_a_time() {
        assert_eq!([1, 100, 640, 5_000].map(|nodes| workers_for(nodes, false)), [2, 2, 10, 64]);
        assert_eq!(workers_for(1, true), 64);
    }
}
