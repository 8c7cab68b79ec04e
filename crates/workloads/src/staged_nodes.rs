//! Simulated nodes and Stages together: which of them decides about pods and nodes.

use crate::nodes;
use crate::stage_player::{self, StageBook};

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let (shared, events) = nodes::shared();
    let stages = StageBook::open(&context.registry, &context.simulation.stages);
    tokio::select! {
        () = run_both(&context, &stages, &shared) => {}
        () = events => {}
        () = stages.follow() => {}
    }
}

/// When Stages change, both begin again: other objects may be theirs.
async fn run_both(context: &crate::Context, stages: &StageBook, shared: &nodes::Shared) {
    let started = context.registry.clock.now();
    let mut changed = stages.subscribe();
    loop {
        let rules = changed.borrow_and_update().clone();
        let has_nodes = rules.decide("", "Node");
        let has_pods = rules.decide("", "Pod");
        let state = shared.state.clone();
        tokio::select! {
            () = nodes::run(context, shared, has_nodes, has_pods) => return,
            () = stage_player::run(&context.registry, rules, state, started) => return,
            change = changed.changed() => {
                if change.is_err() {
                    return;
                }
            }
        }
    }
}
