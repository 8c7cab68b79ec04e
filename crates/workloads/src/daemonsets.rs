//! The controller of DaemonSets: one pod on each node that its template allows.

mod backoff;
mod history;
mod manage;
mod placement;
mod pods;
mod rolling;
mod status;
mod sync;
mod update;

use crate::Context;
use crate::dependents::{Affected, Dependents, queue_all, selector_of};
use crate::pod_control::PodControl;
use crate::pods_by_node::node_of;
use crate::stored::{self, Name, name_of};
use backoff::Backoff;
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Str, value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope};
use keelson_resources::Kind;
use placement::{Node, Placement, Verdict};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(context: Context) {
    let client = Client::new(&context.registry, "daemon-set-controller");
    let control = PodControl::new(client, "daemonset-controller");
    let controller = DaemonSets {
        control,
        pods: Dependents::of("DaemonSet"),
        revisions: Dependents::of("DaemonSet"),
        nodes: Mutex::default(),
        failed: Mutex::default(),
    };
    control_loop::run(&context.registry, controller).await;
}

struct DaemonSets {
    control: PodControl,
    pods: Dependents,
    revisions: Dependents,
    /// What placement asks of nodes, by name; `None` until a set is looked at.
    nodes: Mutex<Option<BTreeMap<Str, Arc<Node>>>>,
    /// When failed pods may be replaced.
    failed: Mutex<Backoff>,
}

impl ControlLoop for DaemonSets {
    type Key = Name;
    const NAME: &'static str = "daemonset-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("apps", "daemonsets"),
        ("apps", "controllerrevisions"),
        ("", "pods"),
        ("", "nodes"),
    ]);
    const WORKERS_MAX: usize = 8;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Name>) -> bool {
        let mut changed = vec![];
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => match kind.gvr.resource.as_str() {
                    "pods" => {
                        self.pods.list(all.range("", ""));
                        self.queue_all(queue);
                    }
                    "nodes" => {
                        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = None;
                        self.queue_all(queue);
                    }
                    "controllerrevisions" => self.revisions.list(all.range("", "")),
                    _ => queue.extend(all.range("", "").map(name_of)),
                },
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry } => {
                    match kind.gvr.resource.as_str() {
                        "pods" => self.queue_affected(&self.pods.observe(event), entry, queue),
                        "nodes" => {
                            let is_deleted = matches!(event, InformerEvent::Deleted { .. });
                            changed.extend(self.observe_node(kind, entry, is_deleted));
                        }
                        "controllerrevisions" => drop(self.revisions.observe(event)),
                        _ => queue.add(name_of(entry)),
                    }
                }
                InformerEvent::Withdrawn(_) => {}
            }
        }
        self.queue_concerned(&changed, queue);
        false
    }

    async fn sync(&self, (namespace, name): Name) -> Result<Option<Duration>, Failure> {
        let client = &self.control.client;
        let Some(kinds) = Kinds::of(client) else { return Ok(None) };
        let Some(set) = stored::read(&client.registry, &kinds.sets, &namespace, &name)? else {
            return Ok(None);
        };
        if set.at(&["spec", "selector"]).is_none_or(|one| *one == value!({})) {
            let message =
                "This daemon set is selecting all pods. A non-empty selector is required.";
            self.control.event(&set, "Warning", "SelectingAll", message);
            return Ok(None);
        }
        let Ok(selector) = Selector::from_object(set.at(&["spec", "selector"])) else {
            return Ok(None);
        };
        // What a set that is being deleted has on nodes cannot be told: its revisions may be gone.
        if set.deletion_timestamp().is_some() {
            return Ok(None);
        }
        let nodes = self.nodes();
        update::Update { of: self, kinds, set, selector, nodes, now: client.now() }.run().await
    }
}

/// The kinds that the controller writes.
struct Kinds {
    sets: Arc<Kind>,
    pods: Arc<Kind>,
    revisions: Arc<Kind>,
}

impl Kinds {
    fn of(client: &Client) -> Option<Kinds> {
        Some(Kinds {
            sets: client.kind("apps", "daemonsets")?,
            pods: client.kind("", "pods")?,
            revisions: client.kind("apps", "controllerrevisions")?,
        })
    }
}

impl DaemonSets {
    fn queue_all(&self, queue: &mut Queue<Name>) {
        let client = &self.control.client;
        queue_all(&client.registry, client.kind("apps", "daemonsets"), queue);
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get_or_insert_with(|| self.read_nodes()).values().cloned().collect()
    }

    fn read_nodes(&self) -> BTreeMap<Str, Arc<Node>> {
        let client = &self.control.client;
        let Some(kind) = client.kind("", "nodes") else { return BTreeMap::new() };
        let all = client.registry.cached_all(&kind);
        let nodes = all.range("", "").filter_map(|entry| Node::read(&kind, entry));
        nodes.map(|node| (node.name.clone(), Arc::new(node))).collect()
    }

    /// Queues the sets that run on changed nodes, and those whose pods must leave them. Where pods
    /// may stay but not start, nothing is to be done: as in kube-controller-manager, their set
    /// reports them as misplaced when something else changes.
    fn queue_concerned(&self, nodes: &[Arc<Node>], queue: &mut Queue<Name>) {
        let client = &self.control.client;
        let Some(kinds) = Kinds::of(client).filter(|_| !nodes.is_empty()) else { return };
        for entry in client.registry.cached_all(&kinds.sets).range("", "") {
            let set = kinds.sets.decode(entry).unwrap_or_default();
            let placement = Placement::of(&set);
            let is_concerned = |node: &Arc<Node>| match placement.judge(node) {
                Verdict::Run => true,
                Verdict::Stay => false,
                Verdict::Leave => self.has_pod_on(&kinds.pods, &set, &node.name),
            };
            if nodes.iter().any(is_concerned) {
                queue.add(name_of(entry));
            }
        }
    }

    /// Whether a pod of a set is bound to a node.
    fn has_pod_on(&self, pods: &Arc<Kind>, set: &Object, node: &str) -> bool {
        let owned = self.pods.owned_entries(&self.control.client.registry, pods, set);
        owned.iter().any(|pod| node_of(pod).is_some_and(|bound| bound == node))
    }

    /// Observes a node and returns it if pods may be placed otherwise now. The pods of a deleted
    /// node are deleted by others. Before a set is looked at, nothing is placed.
    fn observe_node(&self, kind: &Kind, entry: &Entry, is_deleted: bool) -> Option<Arc<Node>> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = nodes.as_mut()?;
        if is_deleted {
            nodes.remove(entry.name());
            return None;
        }
        let node = Arc::new(Node::read(kind, entry)?);
        if nodes.get(&node.name) == Some(&node) {
            return None;
        }
        nodes.insert(node.name.clone(), node.clone());
        Some(node)
    }

    /// Queues the owners of a changed pod, or those that might adopt it.
    fn queue_affected(&self, affected: &Affected, pod: &Entry, queue: &mut Queue<Name>) {
        let client = &self.control.client;
        affected.queue_owners("DaemonSet", pod.namespace(), queue);
        let kind = client.kind("apps", "daemonsets");
        affected.queue_adopters(&client.registry, kind, pod, queue, selector_of);
    }
}
