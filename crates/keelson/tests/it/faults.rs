//! Faults below the server. Clients read and write a few objects, and a watch follows them across
//! restarts. After each fault three properties must hold: no
//! acknowledged write is lost, no event is duplicated or out of order, and the history of each
//! object is linearizable.
//!
//! `KEELSON_FAULTS` sets the number of faults in each test; `KEELSON_FAULTS_SEED` repeats a run's
//! choices.

mod clock;
mod cluster;
mod converted;
mod disk;
mod gateway;
mod linear;
mod links;
pub mod load;
mod processes;
mod small_disk;

/// Number of faults in each test.
pub fn rounds(usual: usize) -> usize {
    let given = std::env::var("KEELSON_FAULTS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(usual)
}
