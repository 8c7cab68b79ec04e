//! The controllers of ReplicaSets and ReplicationControllers: they keep a number of pods.

mod decide;
mod related;
mod steady;

use crate::Context;
use crate::claims::Claims;
use crate::dependents::{Dependents, queue_all, selector_of};
use crate::pod_control::{PodControl, pod_from_template};
use crate::pod_facts::{is_active, is_terminating, next_available, rank_for_deletion};
use crate::stored::{self, Name, name_of};
use decide::{Counts, Plan, min_ready_seconds, plan, status_of};
use futures_util::future::join_all;
use keelson_loops::client::Client;
use keelson_loops::client::is_namespace_terminating;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object};
use keelson_registry::{InformerEvent, InformerScope, Target};
use keelson_resources::Kind;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use steady::Steady;

/// A kind that keeps a number of pods.
pub(crate) trait Replicas: Send + Sync + 'static {
    /// The name of the loop.
    const NAME: &'static str;
    /// Its group and resource, and pods.
    const SCOPE: &'static [(&'static str, &'static str)];
    /// The source of its events, and the name of its service account.
    const COMPONENT: &'static str;
    const ACCOUNT: &'static str;
    /// The kind in owner references.
    const KIND: &'static str;
    /// Whether the status has `terminatingReplicas`.
    const COUNTS_TERMINATING: bool;

    /// Returns the selector of an object.
    fn selector(object: &Object) -> Option<Selector>;
}

/// `apps/v1` ReplicaSet.
pub(crate) struct ReplicaSets;

impl Replicas for ReplicaSets {
    const NAME: &'static str = "replicaset-controller";
    const SCOPE: &'static [(&'static str, &'static str)] = &[("apps", "replicasets"), ("", "pods")];
    const COMPONENT: &'static str = "replicaset-controller";
    const ACCOUNT: &'static str = "replicaset-controller";
    const KIND: &'static str = "ReplicaSet";
    const COUNTS_TERMINATING: bool = true;

    fn selector(object: &Object) -> Option<Selector> {
        selector_of(object)
    }
}

/// `v1` ReplicationController.
pub(crate) struct ReplicationControllers;

impl Replicas for ReplicationControllers {
    const NAME: &'static str = "replicationcontroller-controller";
    const SCOPE: &'static [(&'static str, &'static str)] =
        &[("", "replicationcontrollers"), ("", "pods")];
    const COMPONENT: &'static str = "replication-controller";
    const ACCOUNT: &'static str = "replication-controller";
    const KIND: &'static str = "ReplicationController";
    const COUNTS_TERMINATING: bool = false;

    fn selector(object: &Object) -> Option<Selector> {
        let labels = object.at(&["spec", "selector"])?.as_object()?;
        let labels =
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
        Some(Selector::from_labels(labels))
    }
}

/// Runs until it is dropped.
pub(crate) async fn run<R: Replicas>(context: Context) {
    let client = Client::new(&context.registry, R::ACCOUNT);
    let pods = PodControl::new(client, R::COMPONENT);
    let dependents = Dependents::of(R::KIND);
    let controller =
        Controller { pods, dependents, steady: Steady::default(), of: PhantomData::<R> };
    control_loop::run(&context.registry, controller).await;
}

struct Controller<R> {
    pods: PodControl,
    /// The pods by controller.
    dependents: Dependents,
    steady: Steady,
    of: PhantomData<R>,
}

impl<R: Replicas> ControlLoop for Controller<R> {
    type Key = Name;
    const NAME: &'static str = R::NAME;
    const SCOPE: InformerScope = InformerScope::Only(R::SCOPE);
    const WORKERS_MAX: usize = 16;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Name>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "pods" => {
                    self.dependents.list(all.range("", ""));
                    self.steady.observe(event);
                    queue_all(&self.pods.client.registry, self.kind(), queue);
                }
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry }
                    if kind.gvr.resource == "pods" =>
                {
                    let affected = self.dependents.observe(event);
                    self.steady.observe(event);
                    affected.queue_owners(R::KIND, entry.namespace(), queue);
                    let registry = &self.pods.client.registry;
                    affected.queue_adopters(registry, self.kind(), entry, queue, R::selector);
                }
                InformerEvent::Listed(_, all) => queue.extend(all.range("", "").map(name_of)),
                InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
                    queue.add(name_of(entry));
                }
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, (namespace, name): Name) -> Result<Option<Duration>, Failure> {
        let client = &self.pods.client;
        let (Some(kind), Some(pod_kind)) = (self.kind(), client.kind("", "pods")) else {
            return Ok(None);
        };
        let Some(owner) = stored::read(&client.registry, &kind, &namespace, &name)? else {
            return Ok(None);
        };
        let Some(selector) = R::selector(&owner) else { return Ok(None) };
        let registry = &client.registry;
        let counted =
            self.steady.counted(registry, &pod_kind, &self.dependents, &owner, &selector)?;
        if let Some(counted) = counted {
            let terminating = R::COUNTS_TERMINATING.then_some(counted.terminating);
            let status = status_of(&owner, counted.counts, terminating, &Ok(()), client.now());
            return stored::write_status(client, &kind, &owner, status).await.map(|_| None);
        }
        let pods = self.dependents.candidates(&client.registry, &pod_kind, &owner, &selector)?;
        let is_match = |pod: &Object| selector.matches_object(pod);
        let terminating = pods.iter().filter(|pod| {
            is_terminating(pod)
                && crate::pod_control::is_controlled_by(pod, &owner)
                && is_match(pod)
        });
        let terminating = R::COUNTS_TERMINATING.then(|| stored::count(terminating.count()));
        let active: Vec<Object> = pods.into_iter().filter(is_active).collect();
        let owner_target = Target::of(&kind, &namespace, &name);
        let claims = Claims { client, owner: &owner, owner_target: &owner_target, finalizers: &[] };
        let active = claims.claim(&pod_kind, active, is_match).await?;
        for pod in &active {
            self.dependents.put(pod);
        }
        let managed = match owner.deletion_timestamp() {
            Some(_) => Ok(()),
            None => self.manage(&owner, &active).await,
        };
        let now = client.now();
        let counts = Counts::of(&owner, &active, now);
        let status = status_of(&owner, counts, terminating, &managed, now);
        let written = stored::write_status(client, &kind, &owner, status).await?;
        managed?;
        let Some(written) = written else { return Ok(None) };
        let seconds = min_ready_seconds(&written);
        let counted = |name| written.int_at(&["status", name]).unwrap_or(0);
        if seconds > 0 && counted("readyReplicas") != counted("availableReplicas") {
            let fallback = Duration::from_secs(seconds.unsigned_abs());
            return Ok(Some(next_available(&active, seconds, now).unwrap_or(fallback)));
        }
        Ok(None)
    }
}

impl<R: Replicas> Controller<R> {
    fn kind(&self) -> Option<Arc<Kind>> {
        let (group, resource) = R::SCOPE[0];
        self.pods.client.kind(group, resource)
    }

    /// Creates or deletes pods.
    async fn manage(&self, owner: &Object, active: &[Object]) -> Result<(), Failure> {
        match plan(owner, active.len()) {
            Plan::Nothing => Ok(()),
            Plan::Create(count) => self.create(owner, count).await,
            Plan::Delete(count) => {
                let mut ranked = active.to_vec();
                if count < ranked.len() {
                    let related = related::pods::<R>(&self.pods.client, owner)?;
                    rank_for_deletion(&mut ranked, &related, self.pods.client.now());
                }
                let deletions =
                    ranked[..count].iter().map(|pod| self.pods.delete(owner, pod.name()));
                let results = join_all(deletions).await;
                let errors = results.into_iter().filter_map(Result::err);
                let first = errors.into_iter().find(|error| error.code != 404);
                first.map_or(Ok(()), Err)
            }
        }
    }

    /// Creates pods in batches that double, so that a quota is not met by many requests.
    async fn create(&self, owner: &Object, count: usize) -> Result<(), Failure> {
        let template = owner.at(&["spec", "template"]).cloned().unwrap_or_default();
        let pod = pod_from_template(&template, owner);
        let mut left = count;
        let mut batch = 1;
        while left > 0 {
            batch = batch.min(left);
            let creations = (0..batch).map(|_| self.pods.create(owner, pod.clone()));
            let mut failed = None;
            for result in join_all(creations).await {
                match result {
                    Ok(pod) => self.dependents.put(&pod),
                    // All creations fail in such a namespace: there is nothing to do.
                    Err(error) if is_namespace_terminating(&error) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            left -= batch;
            batch *= 2;
        }
        Ok(())
    }
}
