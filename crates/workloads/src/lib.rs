//! A cluster in a test: the control loops of workloads, a scheduler and simulated nodes. Nothing
//! runs: what pods do is written into their status.
//!
//! Each loop has the name of the kube-controller-manager loop that it replaces (the scheduler that
//! of its profile), acts as its service account, and steps aside while the stock program holds its
//! lease. What a loop decides is a pure function of objects; what it writes goes through the API.

mod autoscaling;
mod claims;
mod cron_job;
mod daemonsets;
mod dependents;
mod deployments;
mod ephemeral_volumes;
mod healthy_node;
mod history;
mod job;
mod node_lifecycle;
mod node_terms;
mod node_ttl;
mod nodes;
mod pod_control;
mod pod_facts;
mod pod_garbage;
mod pod_status;
mod pods_by_node;
mod ports;
mod provisioner;
mod random;
mod replicasets;
mod resource_claims;
mod scheduler;
mod service_addresses;
mod simulation;
mod sorted_pairs;
mod stage_player;
mod staged_nodes;
mod stages;
mod statefulsets;
mod stored;
mod taint_eviction;
mod taints;
mod template_hash;
mod volume_expander;
mod volumes;

pub use nodes::simulated_nodes;
pub use ports::SimulatedPorts;
pub use simulation::Simulation;
pub use stages::StageFiles;

use keelson_loops::{Controller, StandsFor};
use keelson_registry::Registry;
use std::sync::Arc;
use std::time::Duration;

/// What the loops of this crate need besides their own state.
#[derive(Clone)]
pub struct Context {
    /// The registry.
    pub registry: Arc<Registry>,
    /// What is simulated.
    pub simulation: Arc<Simulation>,
    /// When the simulated nodes report next.
    reports: Arc<nodes::Reports>,
}

impl Context {
    /// Returns the context of one server.
    pub fn new(registry: Arc<Registry>, simulation: &Simulation) -> Context {
        Context { registry, simulation: Arc::new(simulation.clone()), reports: Arc::default() }
    }
}

/// Minimum time between two looks at changes of the loops that a pod passes on its way: each waits
/// for the one before it.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(1);

/// All control loops, in alphabetical order.
pub const ALL: &[Controller<Context>] = &[
    Controller::new("cronjob-controller", |context| Box::pin(cron_job::run(context))),
    Controller::new("daemonset-controller", |context: Context| Box::pin(daemonsets::run(context))),
    Controller::new("deployment-controller", |context: Context| {
        Box::pin(deployments::run(context))
    }),
    Controller::new("ephemeral-volume-controller", |context| {
        Box::pin(ephemeral_volumes::run(context))
    }),
    Controller::new("horizontal-pod-autoscaler-controller", |context| {
        Box::pin(autoscaling::run(context))
    }),
    Controller::new("job-controller", |context| Box::pin(job::run(context))),
    Controller::new("kube-scheduler", |context: Context| {
        Box::pin(scheduler::run(context.registry))
    })
    .stands_for(StandsFor::Scheduler),
    Controller::new("node-lifecycle-controller", |context| Box::pin(node_lifecycle::run(context))),
    Controller::new("persistentvolume-binder-controller", |context| {
        Box::pin(volumes::run(context))
    }),
    Controller::new("persistentvolume-expander-controller", |context| {
        Box::pin(volume_expander::run(context))
    }),
    Controller::new("pod-garbage-collector-controller", |context| {
        Box::pin(pod_garbage::run(context))
    }),
    Controller::new("replicaset-controller", |context: Context| {
        Box::pin(replicasets::run::<replicasets::ReplicaSets>(context))
    }),
    Controller::new("replicationcontroller-controller", |context: Context| {
        Box::pin(replicasets::run::<replicasets::ReplicationControllers>(context))
    }),
    Controller::new("resourceclaim-controller", |context| Box::pin(resource_claims::run(context))),
    Controller::new("service-lb-controller", |context| Box::pin(service_addresses::run(context)))
        .stands_for(StandsFor::Nobody),
    Controller::new("simulated-nodes", |context: Context| Box::pin(staged_nodes::run(context)))
        .stands_for(StandsFor::Nobody),
    Controller::new("simulated-provisioner", |context| Box::pin(provisioner::run(context)))
        .stands_for(StandsFor::Nobody),
    Controller::new("statefulset-controller", |context: Context| {
        Box::pin(statefulsets::run(context))
    }),
    Controller::new("taint-eviction-controller", |context| Box::pin(taint_eviction::run(context))),
    Controller::new("ttl-controller", |context| Box::pin(node_ttl::run(context))),
];
