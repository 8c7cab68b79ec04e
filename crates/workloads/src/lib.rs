//! A cluster in a test: the control loops of workloads, a scheduler and simulated nodes. Nothing
//! runs: what pods do is written into their status.
//!
//! Each loop has the name of the kube-controller-manager loop that it replaces (the scheduler that of
//! its profile), acts as its service account, and steps aside while the stock program holds its lease.
//! What a loop decides is a pure function of objects; what it writes goes through the API.

mod claims;
mod cron_job;
mod dependents;
mod job;
mod pod_control;
mod pod_facts;
mod replicasets;
mod stored;
mod template_hash;

use keelson_loops::Controller;
use keelson_registry::{Registry, SteppedClock};
use std::sync::Arc;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The number of nodes that are created at the start.
    pub nodes: usize,
    /// The clock of the server, which a test can step and scale.
    pub clock: SteppedClock,
}

impl Default for Simulation {
    fn default() -> Self {
        Simulation { nodes: 1, clock: SteppedClock::new(1.0) }
    }
}

/// What the loops of this crate need besides their own state.
#[derive(Clone)]
pub struct Context {
    /// The registry.
    pub registry: Arc<Registry>,
    /// What is simulated.
    pub simulation: Arc<Simulation>,
}

impl Context {
    /// Returns the context of one server.
    pub fn new(registry: Arc<Registry>, simulation: &Simulation) -> Context {
        Context { registry, simulation: Arc::new(simulation.clone()) }
    }
}

/// All control loops, in alphabetical order.
pub const ALL: &[Controller<Context>] = &[
    Controller::new("cronjob-controller", |context| Box::pin(cron_job::run(context))),
    Controller::new("job-controller", |context| Box::pin(job::run(context))),
    Controller::new("replicaset-controller", |context: Context| {
        Box::pin(replicasets::run::<replicasets::ReplicaSets>(context))
    }),
    Controller::new("replicationcontroller-controller", |context: Context| {
        Box::pin(replicasets::run::<replicasets::ReplicationControllers>(context))
    }),
];
