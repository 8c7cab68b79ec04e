//! The attacks on the API server. Each is a function with a deadline and a limit on what it sends.

mod behind;
mod bodies;
mod certificates;
mod conversions;
mod editor;
mod frames;
mod nodes;
mod requests;
mod selectors;
mod sockets;
mod vanishing;

use crate::attack::{Attack, Outcome, of_tables};
use crate::target::Target;

/// An entry of a table of attacks.
type Entry = crate::attack::Entry<Target>;

/// Returns all attacks, in the order of a run.
pub fn all() -> Vec<Attack<Target>> {
    of_tables(&[
        sockets::ATTACKS.as_slice(),
        &frames::ATTACKS,
        &certificates::ATTACKS,
        &requests::ATTACKS,
        &bodies::ATTACKS,
        &selectors::ATTACKS,
        &conversions::ATTACKS,
        &editor::ATTACKS,
        &nodes::ATTACKS,
        &behind::ATTACKS,
        &vanishing::ATTACKS,
    ])
}
