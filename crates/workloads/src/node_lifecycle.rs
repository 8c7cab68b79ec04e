//! The node lifecycle controller: nodes that do not report become unknown, nodes get the taints
//! that follow from their conditions, and the pods of silent nodes become unready.
//!
//! Healthy nodes cost nothing: their facts are kept by `observe`, and a look at all nodes compares
//! times only.

mod health;
mod taints;
mod zones;

use crate::nodes::Reports;
use crate::pods_by_node::{PodsByNode, node_of};
use crate::stored::{Name, name_of};
use health::{Health, Tainting};
use keelson_loops::client::{Client, InvolvedObject};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Status, Str, Timestamp, value};
use keelson_records::Entry;
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use keelson_resources::Kind;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use taints::Change;
use tokio::time::Instant;
use zones::{Finding, Zones};

/// The source component of its events.
const COMPONENT: &str = "node-controller";
/// The namespace of the leases that kubelets renew.
const LEASES: &str = "kube-node-lease";
/// Time between two looks at all nodes.
const PERIOD: Duration = Duration::from_secs(5);
/// Time after the last look from which a look is late: the clock was stepped, or the process stood.
const LATE: Duration = Duration::from_secs(10);
/// Real time that all nodes get to report when a look is late.
const REPORT_TIME: Duration = Duration::from_millis(20);
/// Real time that simulated nodes get, as long as one of them has to report.
const REPORT_TIME_MAX: Duration = Duration::from_secs(10);
/// Labels of a node that are repeated under their old names.
const OLD_LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "node-controller");
    let events = Recorder::new(&client, COMPONENT);
    let lifecycle = NodeLifecycle {
        client,
        events,
        reports: context.reports,
        pods: PodsByNode::default(),
        known: Mutex::default(),
    };
    control_loop::run(&context.registry, lifecycle).await;
}

struct NodeLifecycle {
    client: Client,
    events: Recorder,
    reports: Arc<Reports>,
    pods: PodsByNode,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<Str, Health>,
    /// The last renewal of each lease.
    renewals: HashMap<Str, Str>,
    zones: Zones,
    /// The time of the last look.
    looked: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    /// A look at all nodes.
    Monitor,
    /// Taints and labels of a node that follow from itself.
    Node(Str),
    /// A node that is new or has been deleted, with its uid.
    Event(Str, Str, bool),
    /// A pod that was bound to a node.
    Pod(Name),
}

impl ControlLoop for NodeLifecycle {
    type Key = Key;
    const NAME: &'static str = "node-lifecycle-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("", "nodes"), ("", "pods"), ("coordination.k8s.io", "leases")]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => match kind.gvr.resource.as_str() {
                    "nodes" => {
                        all.range("", "").for_each(|entry| self.observe_node(kind, entry, queue));
                        queue.add(Key::Monitor);
                    }
                    "leases" => all.range("", "").for_each(|entry| self.observe_lease(kind, entry)),
                    _ => self.pods.observe(event),
                },
                InformerEvent::Put { kind, entry, previous } => match kind.gvr.resource.as_str() {
                    "nodes" => self.observe_node(kind, entry, queue),
                    "leases" => self.observe_lease(kind, entry),
                    _ => {
                        self.pods.observe(event);
                        let before = previous.as_ref().and_then(node_of);
                        if node_of(entry).is_some() && node_of(entry) != before {
                            self.observe_bound(entry, queue);
                        }
                    }
                },
                InformerEvent::Deleted { kind, entry } => match kind.gvr.resource.as_str() {
                    "nodes" => self.forget_node(entry, queue),
                    "leases" => {}
                    _ => self.pods.observe(event),
                },
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "nodes") else { return Ok(None) };
        match key {
            Key::Monitor => self.monitor(&kind).await.map(Some),
            Key::Node(name) => self.sync_node(&kind, &name).await.map(|()| None),
            Key::Event(name, uid, is_new) => {
                let (reason, text) = if is_new {
                    ("RegisteredNode", format!("Registered Node {name} in Controller"))
                } else {
                    ("RemovingNode", format!("Removing Node {name} from Controller"))
                };
                self.event(&name, &uid, reason, &format!("Node {name} event: {text}"));
                Ok(None)
            }
            Key::Pod(pod) => self.sync_pod(&pod).await.map(|()| None),
        }
    }
}

impl NodeLifecycle {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe_node(&self, kind: &Kind, entry: &Entry, queue: &mut Queue<Key>) {
        let Ok(node) = kind.decode(entry) else { return };
        let name = Str::new(entry.name());
        let now = self.client.now();
        let mut known = self.known();
        let before = known.nodes.get(&name);
        let health = Health::of(&node, before, now);
        let is_new = before.is_none_or(|before| before.uid != health.uid);
        let has_changed = before.is_none_or(|before| {
            (&before.ready, &before.zone, before.tainting())
                != (&health.ready, &health.zone, health.tainting())
        });
        let is_bare = taints::no_schedule(&node).apply(&node, now).is_none();
        if is_new || !is_bare || old_labels(&node).is_some() {
            queue.add(Key::Node(name.clone()));
        }
        if is_new {
            queue.add(Key::Event(name.clone(), health.uid.clone(), true));
        }
        if has_changed {
            queue.add(Key::Monitor);
        }
        known.nodes.insert(name, health);
    }

    fn forget_node(&self, entry: &Entry, queue: &mut Queue<Key>) {
        let mut known = self.known();
        known.zones.remove(entry.name());
        known.renewals.remove(entry.name());
        if let Some(health) = known.nodes.remove(entry.name()) {
            queue.add(Key::Event(entry.name().into(), health.uid, false));
            queue.add(Key::Monitor);
        }
    }

    fn observe_lease(&self, kind: &Kind, entry: &Entry) {
        if entry.namespace() != LEASES {
            return;
        }
        let Ok(lease) = kind.decode(entry) else { return };
        let renewed = lease.str_at(&["spec", "renewTime"]);
        let name = entry.name();
        let now = self.client.now();
        let mut known = self.known();
        // Times of one form order like their texts.
        if known.renewals.get(name).is_none_or(|before| before.as_str() < renewed) {
            known.renewals.insert(name.into(), renewed.into());
            if let Some(health) = known.nodes.get_mut(name) {
                health.seen = now;
            }
        }
    }

    /// Pods that are bound to a node that is not ready are not ready.
    fn observe_bound(&self, entry: &Entry, queue: &mut Queue<Key>) {
        let known = self.known();
        let health = node_of(entry).and_then(|node| known.nodes.get(node));
        if health.is_some_and(|health| health.ready.is_some() && !health.is_ready()) {
            queue.add(Key::Pod(name_of(entry)));
        }
    }

    fn event(&self, name: &str, uid: &str, reason: &str, message: &str) {
        let involved = InvolvedObject {
            kind: "Node",
            api_version: "v1",
            name,
            uid,
            ..InvolvedObject::default()
        };
        self.events.record(self.client.now(), &involved, "Normal", reason, message);
    }

    fn node(&self, kind: &Kind, name: &str) -> Result<Option<Object>, Failure> {
        let entry = self.client.registry.cached(kind, "", name);
        entry.map(|entry| kind.decode(&entry)).transpose()
    }

    async fn sync_node(&self, kind: &Arc<Kind>, name: &str) -> Result<(), Failure> {
        let Some(node) = self.node(kind, name)? else { return Ok(()) };
        self.change_taints(kind, &node, &taints::no_schedule(&node)).await?;
        let Some(labels) = old_labels(&node) else { return Ok(()) };
        let target = Target::of(kind, "", name);
        let patch = value!({"metadata": {"labels": (labels)}});
        let form = PatchForm::Strategic;
        self.client.patch(&target, Subresource::None, form, &patch).await.map(drop)
    }

    async fn change_taints(
        &self,
        kind: &Arc<Kind>,
        node: &Object,
        change: &Change,
    ) -> Result<(), Failure> {
        let Some(taints) = change.apply(node, self.client.now()) else { return Ok(()) };
        let target = Target::of(kind, "", node.name());
        let version = node.resource_version();
        let taints = if taints.is_empty() { value!(null) } else { value!((taints)) };
        let patch = value!({"metadata": {"resourceVersion": version},
            "spec": {"taints": (taints)}});
        let form = PatchForm::Strategic;
        match self.client.patch(&target, Subresource::None, form, &patch).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Looks at all nodes and returns the time until the next look.
    async fn monitor(&self, kind: &Arc<Kind>) -> Result<Duration, Failure> {
        let now = self.client.now();
        self.await_reports(now).await?;
        let (silent, finding, swapped) = self.look(now);
        for name in &silent {
            self.lose(kind, name).await?;
        }
        match finding {
            Finding::Usual => {}
            Finding::AllLost => {
                for name in self.tainted() {
                    self.set_no_execute(kind, &name, "True").await?;
                }
            }
            Finding::Recovered => {
                self.known().nodes.values_mut().for_each(|health| health.seen = now);
            }
        }
        let (due, next) = self.known().zones.due(now);
        for name in swapped.iter().chain(&due) {
            let ready = self.known().nodes.get(name).and_then(|health| health.ready.clone());
            if let Some(ready) = ready {
                self.set_no_execute(kind, name, &ready).await?;
            }
        }
        let soonest = self.known().nodes.values().filter_map(|health| health.remaining(now)).min();
        // A node is lost when its time is exceeded, not when it ends.
        let soonest = soonest.map(|soonest| soonest + Duration::from_millis(1));
        Ok([next, soonest].into_iter().flatten().fold(PERIOD, Duration::min))
    }

    /// If a look is late, so are the reports of nodes: waits until those that report have done so.
    /// A node that has not is judged by the time `now`, as if the look had taken no time.
    async fn await_reports(&self, now: Timestamp) -> Result<(), Failure> {
        let before = self.known().looked.replace(now);
        let is_late =
            before.is_some_and(|before| now.since(before).seconds() > LATE.as_secs().cast_signed());
        if !is_late {
            return Ok(());
        }
        let began = Instant::now();
        tokio::time::sleep(REPORT_TIME).await;
        while self.reports.any_due(now) && began.elapsed() < REPORT_TIME_MAX {
            tokio::time::sleep(REPORT_TIME / 10).await;
        }
        let registry = &self.client.registry;
        let known = registry.cache.wait_known_everywhere().await;
        known.map_err(|error| Status::unavailable(error.to_string()))?;
        if let Some(leases) = self.client.kind("coordination.k8s.io", "leases") {
            let all = registry.cached_all(&leases);
            all.range(&format!("{LEASES}/"), "")
                .for_each(|lease| self.observe_lease(&leases, lease));
        }
        Ok(())
    }

    /// Returns the nodes that have become silent, what their zones show, and the nodes whose taints
    /// change at once.
    fn look(&self, now: Timestamp) -> (Vec<Str>, Finding, Vec<Str>) {
        let mut known = self.known();
        let Known { nodes, zones, .. } = &mut *known;
        let mut silent = vec![];
        let mut swapped = vec![];
        let mut by_zone: BTreeMap<Str, Vec<bool>> = BTreeMap::new();
        for (name, health) in nodes.iter() {
            let is_silent =
                health.remaining(now).is_none() && health.ready.as_deref() != Some("Unknown");
            if !health.is_excluded {
                let is_ready = health.is_ready() && !is_silent;
                by_zone.entry(health.zone.clone()).or_default().push(is_ready);
            }
            // The taints of a node that becomes silent now are decided when that is stored.
            match health.tainting() {
                _ if is_silent => silent.push(name.clone()),
                Tainting::InTurn => zones.add(&health.zone, name, now),
                Tainting::Now => swapped.push(name.clone()),
                Tainting::None => zones.remove(name),
            }
        }
        let finding = zones.observe(&by_zone, now);
        (silent, finding, if finding == Finding::AllLost { vec![] } else { swapped })
    }

    fn tainted(&self) -> Vec<Str> {
        let known = self.known();
        let tainted = known.nodes.iter().filter(|(_, health)| health.is_tainted());
        tainted.map(|(name, _)| name.clone()).collect()
    }

    async fn set_no_execute(
        &self,
        kind: &Arc<Kind>,
        name: &str,
        ready: &str,
    ) -> Result<(), Failure> {
        let Some(node) = self.node(kind, name)? else { return Ok(()) };
        self.change_taints(kind, &node, &taints::no_execute(ready)).await
    }

    /// Makes the conditions of a silent node unknown and its pods unready.
    async fn lose(&self, kind: &Arc<Kind>, name: &Str) -> Result<(), Failure> {
        let Some(node) = self.node(kind, name)? else { return Ok(()) };
        let Some((changed, was_ready)) = health::make_unknown(&node, self.client.now()) else {
            return Ok(());
        };
        let target = Target::of(kind, "", name);
        self.client.update(&target, Subresource::Status, changed).await?;
        if !was_ready {
            return Ok(());
        }
        let message = format!("Node {name} status is now: NodeNotReady");
        self.event(name, node.uid(), "NodeNotReady", &message);
        for pod in self.pods.on(name) {
            self.make_unready(&pod).await?;
        }
        Ok(())
    }

    async fn sync_pod(&self, pod: &Name) -> Result<(), Failure> {
        let Some(pods) = self.client.kind("", "pods") else { return Ok(()) };
        let entry = self.client.registry.cached(&pods, &pod.0, &pod.1);
        let Some(node) = entry.as_ref().and_then(node_of) else { return Ok(()) };
        let is_lost = {
            let known = self.known();
            let health = known.nodes.get(node);
            health.is_some_and(|health| health.ready.is_some() && !health.is_ready())
        };
        if is_lost {
            self.make_unready(pod).await?;
        }
        Ok(())
    }

    async fn make_unready(&self, (namespace, name): &Name) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("", "pods") else { return Ok(()) };
        let entry = self.client.registry.cached(&kind, namespace, name);
        let Some(pod) = entry.map(|entry| kind.decode(&entry)).transpose()? else { return Ok(()) };
        let Some(changed) = health::make_unready(&pod, self.client.now()) else { return Ok(()) };
        let target = Target::of(&kind, namespace, name);
        match self.client.update(&target, Subresource::Status, changed).await {
            Err(error) if error.code == 404 => return Ok(()),
            stored => drop(stored?),
        }
        let text = ("NodeNotReady", "Node is not ready");
        self.events.about(&self.client, &pod, "Warning", text);
        Ok(())
    }
}

/// Returns the labels that a node lacks under their old names.
fn old_labels(node: &Object) -> Option<keelson_meta::Map> {
    let differs = |(new, old): &(&'static str, &'static str)| {
        let new = node.label(new)?;
        (node.label(old) != Some(new)).then(|| (Str::new_static(old), new.into()))
    };
    let labels: keelson_meta::Map = OLD_LABELS.iter().filter_map(differs).collect();
    (!labels.is_empty()).then_some(labels)
}
