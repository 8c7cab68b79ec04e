//! [`Simulation`]: what is simulated.

use crate::{SimulatedPorts, StageFiles};
use keelson_registry::SteppedClock;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The number of nodes that are created at the start: `keelson-node-0` and so on.
    pub nodes: usize,
    /// The clock of the server, which a test can step and scale.
    pub clock: SteppedClock,
    /// The zones (`topology.kubernetes.io/zone`) over which these nodes are spread in turn; empty:
    /// the nodes have no zone.
    pub zones: Vec<String>,
    /// The region (`topology.kubernetes.io/region`) of these nodes; empty: none.
    pub region: String,
    /// More labels of these nodes.
    pub labels: Vec<(String, String)>,
    /// The capacity of each of these nodes, by resource. All of it is allocatable.
    pub capacity: Vec<(String, String)>,
    /// Whether nodes create events about pods (Pulled, Created, Started, Killing and so on).
    /// Without them a pod that starts costs three writes less.
    pub pod_events: bool,
    /// Stages of files, which say what happens to objects instead of the rules of the simulation.
    pub stages: StageFiles,
    /// What answers at ports of pods. More can be registered while the server runs.
    pub ports: SimulatedPorts,
}

impl Default for Simulation {
    /// One node with 8 CPUs, 32 GiB of memory and room for 110 pods.
    fn default() -> Self {
        let capacity = [
            ("cpu", "8"),
            ("ephemeral-storage", "256Gi"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("memory", "32Gi"),
            ("pods", "110"),
        ];
        Simulation {
            nodes: 1,
            clock: SteppedClock::new(1.0),
            zones: ["zone-a", "zone-b", "zone-c"].map(str::to_owned).into(),
            region: "region-1".to_owned(),
            labels: vec![],
            capacity: capacity.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into(),
            pod_events: true,
            stages: StageFiles::default(),
            ports: SimulatedPorts::default(),
        }
    }
}
