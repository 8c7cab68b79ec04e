//! The TTL controller: tells kubelets, by an annotation of their node, for how long they may keep
//! Secrets and ConfigMaps. The more nodes there are, the longer.

use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Str, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// From how many and up to how many nodes a step holds, and its seconds. The ranges overlap, so
/// that a cluster at a boundary does not change back and forth.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "ttl-controller");
    let ttl = NodeTtl { client, nodes: Mutex::default(), step: AtomicUsize::new(0) };
    control_loop::run(&context.registry, ttl).await;
}

struct NodeTtl {
    client: Client,
    nodes: Mutex<HashSet<Str>>,
    /// The place in `STEPS`.
    step: AtomicUsize,
}

/// Returns the step for a number of nodes, from the step that held before.
fn step_for(mut step: usize, nodes: usize) -> usize {
    while nodes > STEPS[step].1 && step + 1 < STEPS.len() {
        step += 1;
    }
    while nodes < STEPS[step].0 && step > 0 {
        step -= 1;
    }
    step
}

impl ControlLoop for NodeTtl {
    /// The name of a node.
    type Key = Str;
    const NAME: &'static str = "ttl-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "nodes")]);
    const WORKERS_MAX: usize = 4;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &events {
            match event {
                InformerEvent::Listed(_, all) => {
                    *nodes = all.range("", "").map(|entry| entry.name().into()).collect();
                    queue.extend(nodes.iter().cloned());
                }
                // What a kubelet reports changes nothing; a node whose annotation is lost gets it
                // at its next change of another kind.
                InformerEvent::Put { entry, previous, .. } => {
                    nodes.insert(entry.name().into());
                    let text = &*entry.json_slice();
                    let has = memchr::memmem::find(text, ANNOTATION.as_bytes()).is_some();
                    if previous.is_none() || !has {
                        queue.add(entry.name().into());
                    }
                }
                InformerEvent::Deleted { entry, .. } => {
                    nodes.remove(entry.name());
                }
                InformerEvent::Withdrawn(_) => {}
            }
        }
        let before = self.step.load(Ordering::Relaxed);
        let step = step_for(before, nodes.len());
        if step != before {
            self.step.store(step, Ordering::Relaxed);
            queue.extend(nodes.iter().cloned());
        }
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "nodes") else { return Ok(None) };
        let Some(entry) = self.client.registry.cached(&kind, "", &name) else { return Ok(None) };
        let seconds = STEPS[self.step.load(Ordering::Relaxed)].2.to_string();
        if kind.decode(&entry)?.annotation(ANNOTATION) == Some(&seconds) {
            return Ok(None);
        }
        let mut annotations = keelson_meta::Map::new();
        annotations.insert(ANNOTATION, seconds);
        let patch = value!({"metadata": {"annotations": (annotations)}});
        let target = Target::of(&kind, "", &name);
        let form = PatchForm::Strategic;
        match self.client.patch(&target, Subresource::None, form, &patch).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        let check = |before: usize, nodes: usize, want: usize| {
            assert_eq!(step_for(before, nodes), want, "{before} {nodes}");
        };
        check(0, 100, 0);
        check(0, 101, 1);
        check(1, 90, 1);
        check(1, 89, 0);
        check(0, 5000, 4);
        check(4, 1, 0);
    }
}
