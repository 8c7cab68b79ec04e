//! The controller of StatefulSets: pods with a stable name and storage of their own.

mod claims_of_pods;
mod history;
mod identity;
mod status;
mod sync;
mod update;

use crate::Context;
use crate::claims::Claims;
use crate::dependents::{Affected, Dependents, queue_all};
use crate::pod_control::PodControl;
use crate::pod_facts::next_available;
use crate::stored::{self, Name, name_of};
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Target};
use keelson_resources::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(context: Context) {
    let client = Client::new(&context.registry, "statefulset-controller");
    let control = PodControl::new(client, "statefulset-controller");
    let pods = Dependents::of("StatefulSet");
    let revisions = Dependents::of("StatefulSet");
    control_loop::run(&context.registry, StatefulSets { control, pods, revisions }).await;
}

struct StatefulSets {
    control: PodControl,
    pods: Dependents,
    revisions: Dependents,
}

impl ControlLoop for StatefulSets {
    type Key = Name;
    const NAME: &'static str = "statefulset-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("apps", "statefulsets"),
        ("apps", "controllerrevisions"),
        ("", "pods"),
    ]);
    const WORKERS_MAX: usize = 16;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Name>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => match kind.gvr.resource.as_str() {
                    "pods" => {
                        self.pods.list(all.range("", ""));
                        let client = &self.control.client;
                        let kind = client.kind("apps", "statefulsets");
                        queue_all(&client.registry, kind, queue);
                    }
                    "controllerrevisions" => self.revisions.list(all.range("", "")),
                    _ => queue.extend(all.range("", "").map(name_of)),
                },
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry } => {
                    match kind.gvr.resource.as_str() {
                        "pods" => self.queue_affected(&self.pods.observe(event), entry, queue),
                        "controllerrevisions" => drop(self.revisions.observe(event)),
                        _ => queue.add(name_of(entry)),
                    }
                }
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, (namespace, name): Name) -> Result<Option<Duration>, Failure> {
        let client = &self.control.client;
        let Some(kinds) = Kinds::of(client) else { return Ok(None) };
        let Some(set) = stored::read(&client.registry, &kinds.sets, &namespace, &name)? else {
            return Ok(None);
        };
        let Ok(selector) = Selector::from_object(set.at(&["spec", "selector"])) else {
            return Ok(None);
        };
        let revisions = self.revisions_of(&kinds, &set, &selector).await?;
        let pods = self.pods.candidates(&client.registry, &kinds.pods, &set, &selector)?;
        let target = Target::of(&kinds.sets, &namespace, &name);
        let claims = Claims { client, owner: &set, owner_target: &target, finalizers: &[] };
        let is_match = |pod: &Object| {
            selector.matches_object(pod) && identity::parent(pod.name()) == Some(set.name())
        };
        let mut pods = claims.claim(&kinds.pods, pods, is_match).await?;
        for pod in &mut pods {
            pod.set_gvk(&kinds.pods.storage.gvk);
            self.pods.put(pod);
        }
        let now = client.now();
        let seconds = set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
        let again = next_available(&pods, seconds, now);
        let mut update = update::Update { of: self, kinds, set, pods, now };
        let status = update.run(revisions).await?;
        let counted = |name: &str| status.get(name).and_then(Value::as_int).unwrap_or(0);
        if seconds > 0 && counted("readyReplicas") != counted("availableReplicas") {
            return Ok(again.or(Some(Duration::from_secs(seconds.unsigned_abs()))));
        }
        Ok(None)
    }
}

/// The kinds that the controller writes.
#[derive(Clone)]
struct Kinds {
    sets: Arc<Kind>,
    pods: Arc<Kind>,
    revisions: Arc<Kind>,
    claims: Arc<Kind>,
}

impl Kinds {
    fn of(client: &Client) -> Option<Kinds> {
        Some(Kinds {
            sets: client.kind("apps", "statefulsets")?,
            pods: client.kind("", "pods")?,
            revisions: client.kind("apps", "controllerrevisions")?,
            claims: client.kind("", "persistentvolumeclaims")?,
        })
    }
}

impl StatefulSets {
    /// Queues the owners of a changed pod, or those that might adopt it.
    fn queue_affected(&self, affected: &Affected, pod: &Entry, queue: &mut Queue<Name>) {
        affected.queue_owners("StatefulSet", pod.namespace(), queue);
        // Only the set whose name the pod has may adopt it.
        if affected.is_adoptable
            && let Some(parent) = identity::parent(pod.name())
        {
            queue.add((pod.namespace().into(), parent.into()));
        }
    }

    /// Returns the revisions of a set, in their order; orphans are adopted.
    async fn revisions_of(
        &self,
        kinds: &Kinds,
        set: &Object,
        selector: &Selector,
    ) -> Result<Vec<Object>, Failure> {
        let client = &self.control.client;
        let all = self.revisions.candidates(&client.registry, &kinds.revisions, set, selector)?;
        // Revisions that the selector does not match are neither used nor released.
        let all = all.into_iter().filter(|revision| selector.matches_object(revision)).collect();
        let target = Target::of(&kinds.sets, set.namespace(), set.name());
        let claims = Claims { client, owner: set, owner_target: &target, finalizers: &[] };
        let mut claimed = claims.claim(&kinds.revisions, all, |_| true).await?;
        for revision in &claimed {
            self.revisions.put(revision);
        }
        claimed.sort_by(crate::history::by_number);
        Ok(claimed)
    }
}
