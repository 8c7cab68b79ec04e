//! The job controller: runs pods until enough of them have succeeded, and counts them.
//!
//! A pod has a finalizer until it is counted, so that no result is lost: the uid of a pod that
//! ended is entered into the status, its finalizer is removed, then it is added to the counts.

mod backoff;
mod facts;
mod indexes;
mod policy;
mod state;
mod status;
mod sync;
mod template;

use crate::claims::Claims;
use crate::dependents::Dependents;
use crate::pod_control::PodControl;
use backoff::Failures;
use facts::{FINALIZER, JobPod, Spec};
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::metadata::OwnerReference;
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Str, value};
use keelson_records::Entry;
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use keelson_resources::Kind;
use state::State;
use status::Status;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use sync::JobSync;

const GROUP: &str = "batch";
const RESOURCE: &str = "jobs";
/// The value of `managedBy` of Jobs that this loop manages; so does an absent one.
const MANAGED_BY: &str = "kubernetes.io/job-controller";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "job-controller");
    let jobs = Jobs {
        control: PodControl::new(client, "job-controller"),
        pods: Dependents::of("Job"),
        failures: Mutex::default(),
    };
    control_loop::run(&context.registry, jobs).await;
}

struct Jobs {
    control: PodControl,
    pods: Dependents,
    failures: Mutex<HashMap<(Str, Str), Failures>>,
}

/// What is synced. The parts are namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Job(Str, Str),
    /// A pod with the finalizer that may have no Job.
    Orphan(Str, Str),
}

impl ControlLoop for Jobs {
    type Key = Key;
    const NAME: &'static str = "job-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "pods"), (GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 16;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == RESOURCE => {
                    all.range("", "").for_each(|entry| queue.add(job_key(entry)));
                }
                InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == RESOURCE => {
                    queue.add(job_key(entry));
                }
                InformerEvent::Deleted { kind, entry } if kind.gvr.resource == RESOURCE => {
                    queue.add(job_key(entry));
                    let job = kind.decode(entry).unwrap_or_default();
                    queue.extend(self.tracked_pods(&job));
                }
                InformerEvent::Listed(_, all) => {
                    self.pods.list(all.range("", ""));
                    let tracked = all.range("", "").filter(|entry| is_tracked(entry));
                    queue.extend(tracked.map(orphan_key));
                }
                event => self.observe_pod(event, queue),
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        match key {
            Key::Job(namespace, name) => self.sync_job(namespace, name).await,
            Key::Orphan(namespace, name) => self.release_orphan(&namespace, &name).await,
        }
    }
}

fn job_key(entry: &Entry) -> Key {
    Key::Job(entry.namespace().into(), entry.name().into())
}

fn orphan_key(entry: &Entry) -> Key {
    Key::Orphan(entry.namespace().into(), entry.name().into())
}

fn is_job(owner: &OwnerReference) -> bool {
    owner.kind == "Job" && owner.api_version == "batch/v1"
}

/// Whether a pod may have the finalizer.
fn is_tracked(entry: &Entry) -> bool {
    memchr::memmem::find(&entry.json_slice(), FINALIZER.as_bytes()).is_some()
}

impl Jobs {
    /// Returns the pods of a Job that was deleted. Those that were being deleted before do not
    /// change any more, so nothing else would release them.
    fn tracked_pods(&self, job: &Object) -> Vec<Key> {
        let client = &self.control.client;
        let Some(pods) = client.kind("", "pods") else { return vec![] };
        let owned = self.pods.owned(&client.registry, &pods, job).unwrap_or_default();
        let tracked = owned.iter().filter(|pod| pod.finalizers().any(|one| one == FINALIZER));
        tracked.map(|pod| Key::Orphan(pod.namespace().into(), pod.name().into())).collect()
    }

    fn observe_pod(&self, event: &InformerEvent, queue: &mut Queue<Key>) {
        let affected = self.pods.observe(event);
        let (InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. }) = event
        else {
            return;
        };
        let client = &self.control.client;
        let Some(kind) = client.kind(GROUP, RESOURCE) else { return };
        let owners = [&affected.now, &affected.before].into_iter().flatten();
        for owner in owners.filter(|owner| is_job(owner)) {
            queue.add(Key::Job(entry.namespace().into(), owner.name.clone()));
        }
        let job = affected.now.as_ref().filter(|owner| is_job(owner));
        let job =
            job.and_then(|owner| client.registry.cached(&kind, entry.namespace(), &owner.name));
        let job = job.and_then(|job| kind.decode(&job).ok());
        let is_owned = job.is_some_and(|job| !status::is_finished(&job));
        if !is_owned && is_tracked(entry) && !matches!(event, InformerEvent::Deleted { .. }) {
            queue.add(orphan_key(entry));
        }
        if affected.is_adoptable {
            let prefix = format!("{}/", entry.namespace());
            let all = client.registry.cached_all(&kind);
            let selecting = all.range(&prefix, "").filter(|job| {
                let job = kind.decode(job).unwrap_or_default();
                selector_of(&job).matches(|key| entry.label(key))
            });
            queue.extend(selecting.map(job_key));
        }
    }

    /// Removes the finalizer of a pod that no unfinished Job counts.
    async fn release_orphan(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Duration>, Failure> {
        let client = &self.control.client;
        let (Some(pods), Some(jobs)) = (client.kind("", "pods"), client.kind(GROUP, RESOURCE))
        else {
            return Ok(None);
        };
        let known = client.registry.cached(&pods, namespace, name);
        let Some(pod) = known.map(|entry| pods.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        if let Some(owner) = pod.controller() {
            let text = |name: &str| owner.str_at(&[name]).unwrap_or_default();
            if text("kind") != "Job" || text("apiVersion") != "batch/v1" {
                return Ok(None);
            }
            let job = client
                .registry
                .cached(&jobs, namespace, text("name"))
                .map(|entry| jobs.decode(&entry))
                .transpose()?
                .filter(|job| job.uid() == text("uid"));
            if job.is_some_and(|job| !is_managed(&job) || !status::is_finished(&job)) {
                return Ok(None);
            }
        }
        if pod.finalizers().any(|one| one == FINALIZER) {
            self.release(&pods, &pod).await?;
        }
        Ok(None)
    }

    /// Removes the finalizer of a pod. A pod that does not exist has none.
    async fn release(&self, kind: &Arc<Kind>, pod: &Object) -> Result<(), Failure> {
        let target = Target::of(kind, pod.namespace(), pod.name());
        let patch = value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
        let form = PatchForm::Strategic;
        match self.control.client.patch(&target, Subresource::None, form, &patch).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    fn known_failures(&self) -> std::sync::MutexGuard<'_, HashMap<(Str, Str), Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sync_job(&self, namespace: Str, name: Str) -> Result<Option<Duration>, Failure> {
        let client = &self.control.client;
        let key = (namespace, name);
        let (Some(jobs), Some(pods)) = (client.kind(GROUP, RESOURCE), client.kind("", "pods"))
        else {
            return Ok(None);
        };
        let target = Target::of(&jobs, &key.0, &key.1);
        let known = client.registry.cached(&jobs, &key.0, &key.1);
        let Some(job) = known.map(|entry| jobs.decode(&entry)).transpose()? else {
            self.known_failures().remove(&key);
            return Ok(None);
        };
        if !is_managed(&job) {
            return Ok(None);
        }
        if status::is_finished(&job) {
            self.known_failures().remove(&key);
            // Pods are counted before a Job ends, unless somebody else has ended it.
            for pod in self.pods.owned(&client.registry, &pods, &job)? {
                if pod.finalizers().any(|one| one == FINALIZER) {
                    self.release(&pods, &pod).await?;
                }
            }
            return Ok(None);
        }
        let spec = Spec::of(&job);
        let claims =
            Claims { client, owner: &job, owner_target: &target, finalizers: &[FINALIZER] };
        let selector = selector_of(&job);
        let candidates = self.pods.candidates(&client.registry, &pods, &job, &selector)?;
        let owned = claims
            .claim(&pods, candidates, |pod| selector.matches_object(pod))
            .await?
            .into_iter()
            .map(|pod| JobPod::new(pod, &spec))
            .collect();
        let failures = self.known_failures().get(&key).copied().unwrap_or_default();
        let is_deleted = job.deletion_timestamp().is_some();
        let status = Status::of(&job);
        let state = State::new(spec, status, owned, is_deleted, failures, client.now());
        let mut run = JobSync { jobs: self, target, kind: pods, job, state };
        run.run(&key).await?;
        Ok(run.state.again)
    }
}

fn is_managed(job: &Object) -> bool {
    matches!(job.str_at(&["spec", "managedBy"]), "" | MANAGED_BY)
}

fn selector_of(job: &Object) -> Selector {
    match job.at(&["spec", "selector"]) {
        None => Selector::NOTHING,
        selector => Selector::from_object(selector).unwrap_or(Selector::NOTHING),
    }
}
