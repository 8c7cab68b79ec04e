//! The controller of Deployments: it replaces ReplicaSets step by step.

mod annotations;
mod new_set;
mod parts;
mod replica_set;
mod rollback;
mod rollout;
mod status;
mod strategy;

use crate::Context;
use crate::claims::Claims;
use crate::dependents::{Affected, Dependents, queue_all, selector_of};
use crate::pod_control::PodControl;
use crate::stored::{self, Name, name_of};
use keelson_loops::client::Client;
use keelson_loops::client::is_namespace_terminating;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::metadata::Metadata;
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Status, value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Target};
use keelson_resources::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(context: Context) {
    let client = Client::new(&context.registry, "deployment-controller");
    let control = PodControl::new(client, "deployment-controller");
    let sets = Dependents::of("Deployment");
    let pods = Dependents::of("ReplicaSet");
    control_loop::run(&context.registry, Deployments { control, sets, pods }).await;
}

struct Deployments {
    control: PodControl,
    /// The ReplicaSets by controller.
    sets: Dependents,
    /// The pods by controller. Recreation waits until those of old ReplicaSets are gone.
    pods: Dependents,
}

impl ControlLoop for Deployments {
    type Key = Name;
    const NAME: &'static str = "deployment-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("apps", "deployments"), ("apps", "replicasets"), ("", "pods")]);
    const WORKERS_MAX: usize = 16;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Name>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => match kind.gvr.resource.as_str() {
                    "pods" => self.pods.list(all.range("", "")),
                    "replicasets" => {
                        self.sets.list(all.range("", ""));
                        let client = &self.control.client;
                        let kind = client.kind("apps", "deployments");
                        queue_all(&client.registry, kind, queue);
                    }
                    _ => queue.extend(all.range("", "").map(name_of)),
                },
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry } => {
                    match kind.gvr.resource.as_str() {
                        "pods" => {
                            let affected = self.pods.observe(event);
                            if matches!(event, InformerEvent::Deleted { .. }) {
                                self.queue_owner_of_set(&affected, entry.namespace(), queue);
                            }
                        }
                        "replicasets" => {
                            self.queue_affected(&self.sets.observe(event), entry, queue);
                        }
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
        let kinds = Kinds::of(client);
        let Some(kinds) = kinds else { return Ok(None) };
        let stored = stored::read(&client.registry, &kinds.deployments, &namespace, &name)?;
        let Some(deployment) = stored else { return Ok(None) };
        let result = self.sync_deployment(kinds, deployment).await;
        match result {
            // Nothing can be created in such a namespace.
            Err(error) if is_namespace_terminating(&error) => Ok(None),
            result => result,
        }
    }
}

/// The kinds that the controller writes.
#[derive(Clone)]
struct Kinds {
    deployments: Arc<Kind>,
    sets: Arc<Kind>,
}

impl Kinds {
    fn of(client: &Client) -> Option<Kinds> {
        let deployments = client.kind("apps", "deployments")?;
        Some(Kinds { deployments, sets: client.kind("apps", "replicasets")? })
    }
}

impl Deployments {
    /// Queues the owners of a changed ReplicaSet, or those that might adopt it.
    fn queue_affected(&self, affected: &Affected, set: &Entry, queue: &mut Queue<Name>) {
        let client = &self.control.client;
        affected.queue_owners("Deployment", set.namespace(), queue);
        let kind = client.kind("apps", "deployments");
        affected.queue_adopters(&client.registry, kind, set, queue, selector_of);
    }

    /// Queues the Deployment behind the ReplicaSet of a deleted pod, if it waits for that.
    fn queue_owner_of_set(&self, affected: &Affected, namespace: &str, queue: &mut Queue<Name>) {
        let registry = &self.control.client.registry;
        let Some(kinds) = Kinds::of(&self.control.client) else { return };
        let set = affected
            .now
            .as_ref()
            .filter(|owner| owner.kind == "ReplicaSet")
            .and_then(|owner| registry.cached(&kinds.sets, namespace, &owner.name));
        let owner = set.and_then(|set| Metadata::of(&set).controller());
        let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") else { return };
        let deployment = stored::read(registry, &kinds.deployments, namespace, &owner.name);
        if let Ok(Some(deployment)) = deployment
            && deployment.str_at(&["spec", "strategy", "type"]) == "Recreate"
        {
            queue.add((namespace.into(), owner.name));
        }
    }

    async fn sync_deployment(
        &self,
        kinds: Kinds,
        deployment: Object,
    ) -> Result<Option<Duration>, Failure> {
        let client = &self.control.client;
        if deployment.at(&["spec", "selector"]).is_none_or(|one| *one == value!({})) {
            self.refuse(&kinds, &deployment).await?;
            return Ok(None);
        }
        let selector = Selector::from_object(deployment.at(&["spec", "selector"]))
            .map_err(Status::internal)?;
        let sets = self.sets.candidates(&client.registry, &kinds.sets, &deployment, &selector)?;
        let namespace = deployment.namespace();
        let name = deployment.name();
        let owner_target = Target::of(&kinds.deployments, namespace, name);
        let claims =
            Claims { client, owner: &deployment, owner_target: &owner_target, finalizers: &[] };
        let is_match = |set: &Object| selector.matches_object(set);
        let mut sets = claims.claim(&kinds.sets, sets, is_match).await?;
        for set in &mut sets {
            set.set_gvk(&kinds.sets.storage.gvk);
            self.sets.put(set);
        }
        let mut rollout =
            parts::Rollout { control: &self.control, of: self, kinds, deployment, sets };
        rollout.sync().await
    }

    /// Warns about a Deployment that would select all pods.
    async fn refuse(&self, kinds: &Kinds, deployment: &Object) -> Result<(), Failure> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.control.event(deployment, "Warning", "SelectingAll", message);
        let mut status = stored::status(deployment);
        stored::set_count(&mut status, "observedGeneration", deployment.generation());
        let client = &self.control.client;
        stored::write_status(client, &kinds.deployments, deployment, status).await.map(drop)
    }

    /// Whether pods of old ReplicaSets may still run.
    fn has_old_pods(&self, sets: &[Object], new: Option<&Object>) -> Result<bool, Failure> {
        let client = &self.control.client;
        let Some(kind) = client.kind("", "pods") else { return Ok(false) };
        let is_old = |set: &&Object| new.is_none_or(|new| new.uid() != set.uid());
        for set in sets.iter().filter(is_old) {
            let pods = self.pods.owned(&client.registry, &kind, set)?;
            if pods.iter().any(|pod| !crate::pod_facts::is_terminal(pod)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
