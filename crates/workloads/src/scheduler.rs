//! The scheduler: binds pods to nodes.

use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, value};
use keelson_registry::{InformerEvent, InformerScope, Registry, Target};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::of_user(&registry, "system:kube-scheduler", &[])
        .with_field_manager("kube-scheduler");
    control_loop::run(&registry, Scheduler { client, pods: Mutex::default() }).await;
}

struct Scheduler {
    client: Client,
    /// The nodes of bound pods.
    pods: Mutex<HashMap<(Str, Str), Str>>,
}

impl ControlLoop for Scheduler {
    type Key = (Str, Str);
    const NAME: &'static str = "kube-scheduler";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "pods"), ("", "nodes")]);
    const WORKERS_MAX: usize = 64;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Self::Key>) -> bool {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let entries = match &event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "pods" => {
                    all.range("", "").cloned().collect()
                }
                InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == "pods" => {
                    vec![entry.clone()]
                }
                InformerEvent::Deleted { kind, entry } if kind.gvr.resource == "pods" => {
                    pods.remove(&(entry.namespace().into(), entry.name().into()));
                    vec![]
                }
                _ => vec![],
            };
            for entry in entries {
                let key = (Str::new(entry.namespace()), Str::new(entry.name()));
                match entry.field("spec.nodeName").filter(|node| !node.is_empty()) {
                    Some(node) => drop(pods.insert(key, node.into())),
                    None => queue.add(key),
                }
            }
        }
        false
    }

    async fn sync(&self, key: Self::Key) -> Result<Option<Duration>, Failure> {
        let registry = &self.client.registry;
        let kinds = (registry.kind("", "pods"), registry.kind("", "nodes"));
        let (Some(kind), Some(nodes)) = kinds else { return Ok(None) };
        let Some(entry) = registry.cached(&kind, &key.0, &key.1) else { return Ok(None) };
        let pod = kind.decode(&entry)?;
        let is_mine = pod.str_at(&["spec", "schedulerName"]) == "default-scheduler"
            && pod.array_at(&["spec", "schedulingGates"]).is_empty();
        if !is_mine || !pod.str_at(&["spec", "nodeName"]).is_empty() {
            return Ok(None);
        }
        let all = registry.cached_all(&nodes);
        let node = {
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let mut counts: HashMap<Str, usize> = HashMap::new();
            pods.values().for_each(|node| *counts.entry(node.clone()).or_default() += 1);
            let count = |name: &str| counts.get(name).copied().unwrap_or(0);
            let best =
                all.range("", "").map(|node| Str::new(node.name())).min_by_key(|name| count(name));
            if let Some(best) = &best {
                pods.insert(key.clone(), best.clone());
            }
            best
        };
        let Some(node) = node else { return Ok(Some(Duration::from_secs(1))) };
        let binding = value!({"metadata": {"name": (pod.name()), "namespace": (pod.namespace()),
            "uid": (pod.uid())}, "target": {"kind": "Node", "name": (node)}});
        let target = Target::of(&kind, &key.0, &key.1);
        let binding = Object::from_value(binding).unwrap_or_default();
        self.client.act(&target, "binding", binding).await.map(|()| None)
    }
}
