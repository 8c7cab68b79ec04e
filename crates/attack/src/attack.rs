//! [`Attack`]: what is done to a server, and what came of it.

use anyhow::Result;
use std::time::Instant;

/// One attack on a kind of server.
pub struct Attack<T> {
    pub name: &'static str,
    pub description: &'static str,
    /// A fault of the server that is not fixed yet.
    pub known_fault: Option<&'static str>,
    /// Attacks until the deadline. Returns an error for a response that is wrong.
    pub run: fn(&T, Instant) -> Result<Outcome>,
}

/// An entry of a table of attacks: name, description, known fault and function.
pub type Entry<T> =
    (&'static str, &'static str, Option<&'static str>, fn(&T, Instant) -> Result<Outcome>);

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

/// Returns the attacks of tables, in order.
pub fn of_tables<T>(tables: &[&[Entry<T>]]) -> Vec<Attack<T>> {
    let entries = tables.iter().copied().flatten();
    entries
        .map(|(name, description, known_fault, run)| Attack {
            name,
            description,
            known_fault: *known_fault,
            run: *run,
        })
        .collect()
}
