//! `--simulate`: a cluster in the server.

mod clock;
mod daemon_sets;
mod logs;
mod nodes;
mod stages;

use crate::http::Server;
use keelson::{AdmissionChain, Keelson, Simulation, SteppedClock};

/// Starts a server that simulates a cluster, in which pods need no service account. Returns its
/// clock, too.
fn start(simulation: Simulation) -> (Server, SteppedClock) {
    let off = ["ServiceAccount".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    let clock = simulation.clock.clone();
    let builder =
        Keelson::builder().with(|builder| builder.admission.chain = admission).simulate(simulation);
    (Server::start_plain(builder), clock)
}
