//! The scheduler: places pods on nodes as kube-scheduler with its default profile does.
//!
//! What it knows is kept up to date change by change ([`cluster`]); where a pod goes is a function
//! of that ([`decide`]). A placed pod counts on its node at once, before it is bound, so that the
//! next pod is decided without waiting; bindings and reports are written concurrently.

mod affinity;
mod affinity_terms;
mod cluster;
mod decide;
mod device_selectors;
mod devices;
mod filters;
mod label_index;
pub(crate) mod node;
mod observe;
mod pod;
mod pod_volumes;
mod preemption;
mod queue;
pub(crate) mod resources;
mod scores;
mod search;
mod selectors;
mod shares;
mod spread;
mod spread_constraints;
mod volume_conflicts;
mod volumes;
mod writes;

use cluster::Cluster;
use decide::{Decision, Unschedulable, decide};
use devices::{Allocation, ClaimKey};
use keelson_loops::client::Client;
use keelson_meta::{Failure, Str};
use keelson_registry::{Informer, Registry};
use pod::{Pod, PodKey};
use preemption::Budget;
use queue::PodQueue;
use search::Search;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use volumes::Binding;
use writes::Report;

/// The name in `spec.schedulerName` of pods, and in events.
const NAME: &str = "default-scheduler";
/// Minimum time between two looks at changes.
const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;
/// Maximum number of bindings and reports that are being written.
const WRITES_MAX: usize = 256;
/// How many pods are decided before the writes get their turn.
const BATCH_PODS: usize = 32;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    Scheduler::new(&registry).run().await;
}

struct Scheduler {
    client: Client,
    informer: Informer,
    cluster: Cluster,
    queue: PodQueue,
    search: Search,
    /// Pods that are placed and not known to be bound.
    assumed: HashMap<PodKey, Arc<Pod>>,
    /// Pods whose volumes are being bound, with their nodes.
    waiting: HashMap<PodKey, (Arc<Pod>, Str)>,
    writes: JoinSet<Written>,
}

/// What is chosen for a pod besides its node.
struct Chosen {
    bindings: Vec<Binding>,
    devices: Vec<(ClaimKey, Allocation)>,
}

/// What was written.
enum Written {
    /// The pod was bound, or reported.
    Done,
    /// The volumes of a pod were chosen. It is bound when they are.
    Volumes(Arc<Pod>, Str),
    /// The pod could not be bound.
    Failed(Arc<Pod>, Failure),
}

impl Scheduler {
    fn new(registry: &Arc<Registry>) -> Scheduler {
        let client = Client::of_user(registry, "system:kube-scheduler", &[]);
        let random = registry.clock.random();
        let seed =
            random.iter().fold(1, |seed: u64, byte| (seed << 8) ^ (seed >> 56) ^ u64::from(*byte));
        Scheduler {
            client: client.with_field_manager("kube-scheduler"),
            informer: registry.informer(observe::SCOPE),
            cluster: Cluster::default(),
            queue: PodQueue::default(),
            search: Search::new(seed),
            assumed: HashMap::new(),
            waiting: HashMap::new(),
            writes: JoinSet::new(),
        }
    }

    async fn run(mut self) {
        let registry = self.client.registry.clone();
        let mut next_observe = Instant::now();
        loop {
            if Instant::now() >= next_observe {
                let mut events = vec![];
                self.informer.take_all(&mut events);
                self.observe(&events);
                next_observe = Instant::now() + OBSERVE_INTERVAL;
            }
            let is_more = self.place_batch();
            let due = self.queue.next_due();
            tokio::select! {
                biased;
                Some(written) = self.writes.join_next() => {
                    self.finish(written);
                    while let Some(written) = self.writes.try_join_next() {
                        self.finish(written);
                    }
                }
                () = tokio::task::yield_now(), if is_more => {}
                () = changed(&mut self.informer, next_observe) => {}
                () = wait_until(&registry, due) => {}
            }
        }
    }

    /// Places some pods. Returns whether more can be placed at once.
    fn place_batch(&mut self) -> bool {
        let now = self.client.registry.clock.monotonic();
        for _ in 0..BATCH_PODS {
            if self.writes.len() >= WRITES_MAX {
                return false;
            }
            let Some(pod) = self.queue.next(now) else { return false };
            self.place(&pod);
        }
        true
    }

    fn place(&mut self, pod: &Arc<Pod>) {
        let Some(wishes) = pod.wishes.as_deref() else { return self.queue.remove(&pod.key) };
        let registry = self.client.registry.clone();
        let budgets = move || budgets(&registry);
        match decide(&self.cluster, &budgets, pod, wishes, &mut self.search) {
            Decision::Placed { node, bindings, devices } => {
                self.assume(pod, node, Chosen { bindings, devices });
            }
            Decision::Waiting => {
                let plugins = BTreeSet::from([filters::Plugin::DynamicResources]);
                self.queue.reject(&pod.key, plugins);
            }
            Decision::Unschedulable(why) => self.refuse(pod, why),
        }
    }

    /// Counts a pod on its node, and binds it.
    fn assume(&mut self, pod: &Arc<Pod>, node: Str, chosen: Chosen) {
        let Chosen { bindings, devices } = chosen;
        self.queue.remove(&pod.key);
        self.cluster.withdraw_nomination(&pod.key);
        let placed = Pod { node: node.clone(), wishes: None, ..Pod::clone(pod) };
        self.cluster.put_pod(placed);
        self.assumed.insert(pod.key.clone(), pod.clone());
        self.queue.wake(queue::Change::PodAdded);
        for binding in &bindings {
            if let Binding::Volume(_, volume) = binding {
                self.cluster.volumes.chosen.insert(volume.clone(), pod.key.clone());
            }
        }
        for (claim, allocation) in &devices {
            let chosen = (pod.key.clone(), allocation.clone());
            self.cluster.devices.chosen.insert(claim.clone(), chosen);
        }
        let client = self.client.clone();
        let pod = pod.clone();
        self.writes.spawn(async move {
            let claims = pod
                .wishes
                .as_ref()
                .and_then(|wishes| wishes.device_claims.clone())
                .unwrap_or_default();
            if let Err(error) = writes::reserve_devices(&client, &pod, &claims, &devices).await {
                return Written::Failed(pod, error);
            }
            let written = if bindings.is_empty() {
                writes::bind(&client, &pod, &node).await.map(|()| Written::Done)
            } else {
                let chosen = writes::choose_volumes(&client, &pod, &node, &bindings).await;
                chosen.map(|()| Written::Volumes(pod.clone(), node))
            };
            written.unwrap_or_else(|error| Written::Failed(pod, error))
        });
    }

    fn refuse(&mut self, pod: &Arc<Pod>, why: Unschedulable) {
        self.queue.reject(&pod.key, why.plugins);
        let was_nominated = pod.wishes.as_ref().is_some_and(|wishes| !wishes.nominated.is_empty());
        let nominated = match &why.preemption {
            Some(preemption) => Some(preemption.node.clone()),
            None => (why.clears_nomination && was_nominated).then(Str::default),
        };
        if let Some(node) = &nominated {
            self.cluster.nominate(pod, node);
        }
        let report = Report { reason: "Unschedulable", message: why.message, nominated };
        let client = self.client.clone();
        let pod = pod.clone();
        self.writes.spawn(async move {
            let mut written = writes::report(&client, &pod, &report).await;
            if let (Ok(()), Some(preemption)) = (&written, &why.preemption) {
                let node = &preemption.node;
                let victims = &preemption.victims;
                written = writes::preempt(&client, &pod, node, victims).await;
            }
            match written {
                Ok(()) => Written::Done,
                Err(error) => Written::Failed(pod, error),
            }
        });
    }

    fn finish(&mut self, written: Result<Written, tokio::task::JoinError>) {
        match written {
            Ok(Written::Done) => {}
            Ok(Written::Volumes(pod, node)) => {
                self.waiting.insert(pod.key.clone(), (pod, node));
                self.bind_waiting();
            }
            Ok(Written::Failed(pod, error)) => self.retry(&pod, &error),
            // The supervisor restarts the loop.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }

    /// Binds pods whose volumes have been bound.
    fn bind_waiting(&mut self) {
        let volumes = &self.cluster.volumes;
        let ready: Vec<PodKey> = self
            .waiting
            .iter()
            .filter(|(_, (pod, _))| volumes.are_bound(pod))
            .map(|(key, _)| key.clone())
            .collect();
        for key in ready {
            let Some((pod, node)) = self.waiting.remove(&key) else { continue };
            let client = self.client.clone();
            self.writes.spawn(async move {
                match writes::bind(&client, &pod, &node).await {
                    Ok(()) => Written::Done,
                    Err(error) => Written::Failed(pod, error),
                }
            });
        }
    }

    /// Takes a pod off its node again, and tries later.
    fn retry(&mut self, pod: &Arc<Pod>, error: &Failure) {
        let is_assumed = self.assumed.get(&pod.key).is_some_and(|known| known.uid == pod.uid);
        if is_assumed {
            self.assumed.remove(&pod.key);
            self.waiting.remove(&pod.key);
            self.cluster.remove_pod(&pod.key);
            self.cluster.volumes.chosen.retain(|_, key| *key != pod.key);
            self.cluster.devices.chosen.retain(|_, (key, _)| *key != pod.key);
            self.queue.wake(queue::Change::PodRemoved);
        }
        let now = self.client.registry.clock.monotonic();
        match error.code {
            404 => tracing::debug!(pod = ?pod.key, %error, "the pod is gone"),
            409 => tracing::debug!(pod = ?pod.key, %error, "another write came first; retrying"),
            _ => tracing::warn!(pod = ?pod.key, %error, "a pod could not be placed; retrying"),
        }
        let is_placed = self.cluster.pod(&pod.key).is_some_and(|known| known.uid == pod.uid);
        if error.code != 404 && !is_placed {
            self.queue.delay(pod.clone(), now);
        }
    }
}

fn budgets(registry: &Registry) -> Vec<Budget> {
    let Some(kind) = registry.kind("policy", "poddisruptionbudgets") else { return vec![] };
    let all = registry.cached_all(&kind);
    let budgets = all.range("", "").filter_map(|entry| kind.decode(entry).ok());
    budgets.map(|budget| Budget::of(&budget)).collect()
}

/// Waits for a change, and at least until the next look.
async fn changed(informer: &mut Informer, next_observe: Instant) {
    informer.changed().await;
    sleep_until(next_observe).await;
}

async fn wait_until(registry: &Registry, at: Option<Instant>) {
    match at {
        Some(at) => registry.clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
