//! The attacks. Each is a function with a deadline and a limit on what it sends.

mod bodies;
mod certificates;
mod frames;
mod requests;
mod selectors;
mod sockets;

use crate::target::Target;
use anyhow::Result;
use std::time::Instant;

/// One attack.
pub struct Attack {
    pub name: &'static str,
    pub description: &'static str,
    /// A fault of the server that is not fixed yet.
    pub known_fault: Option<&'static str>,
    /// Attacks until the deadline. Returns an error for a response that is wrong.
    pub run: fn(&Target, Instant) -> Result<Outcome>,
}

/// The result of an attack.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of requests, connections or frames.
    pub sent: usize,
    pub note: String,
}

impl Outcome {
    pub fn sent(sent: usize) -> Outcome {
        Outcome { sent, note: String::new() }
    }
}

/// Returns all attacks, in the order of a run.
pub fn all() -> Vec<Attack> {
    [
        sockets::ATTACKS.as_slice(),
        &frames::ATTACKS,
        &certificates::ATTACKS,
        &requests::ATTACKS,
        &bodies::ATTACKS,
        &selectors::ATTACKS,
    ]
    .into_iter()
    .flatten()
    .map(|(name, description, known_fault, run)| Attack {
        name,
        description,
        known_fault: *known_fault,
        run: *run,
    })
    .collect()
}

/// An entry of a table of attacks: name, description, known fault and function.
type Entry =
    (&'static str, &'static str, Option<&'static str>, fn(&Target, Instant) -> Result<Outcome>);
