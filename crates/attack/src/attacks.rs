//! The attacks. Each is a function that knows how long it may take; what it sends is bounded too.

mod bodies;
mod certificates;
mod frames;
mod requests;
mod sockets;

use crate::target::Target;
use anyhow::Result;
use std::time::Instant;

/// One way to attack.
pub struct Attack {
    pub name: &'static str,
    pub what: &'static str,
    /// A fault that is not mended yet.
    pub known: Option<&'static str>,
    /// An error is an answer that should not have been.
    pub run: fn(&Target, Instant) -> Result<Outcome>,
}

/// What an attack did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Requests, connections or frames.
    pub sent: usize,
    pub note: String,
}

impl Outcome {
    pub fn of(sent: usize) -> Outcome {
        Outcome { sent, note: String::new() }
    }
}

/// All of them, in order.
pub fn all() -> Vec<Attack> {
    [
        sockets::ATTACKS.as_slice(),
        &frames::ATTACKS,
        &certificates::ATTACKS,
        &requests::ATTACKS,
        &bodies::ATTACKS,
    ]
    .into_iter()
    .flatten()
    .map(|(name, what, known, run)| Attack { name, what, known: *known, run: *run })
    .collect()
}

/// A line of a table of attacks: name, what it is, what is known to be wrong, and the attack.
type Line =
    (&'static str, &'static str, Option<&'static str>, fn(&Target, Instant) -> Result<Outcome>);
