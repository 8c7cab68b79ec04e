//! The whole server while something below it fails. Clients read and write a few objects all the time
//! and a watcher follows them, across restarts too; in the end every fault must have left the same
//! three things: nothing lost that was acknowledged, no event doubled or out of order, and for each
//! object a history that can have happened one step after the other.
//!
//! `KEELSON_FAULTS=100` lets things fail that often in each test; `KEELSON_FAULTS_SEED=N` repeats a run's
//! choices.

mod clock;
mod disk;
mod linear;
mod load;
mod processes;

/// How often something fails in a test.
fn rounds(usual: usize) -> usize {
    let given = std::env::var("KEELSON_FAULTS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(usual)
}
