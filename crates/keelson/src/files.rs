//! How many files the process may have open (RLIMIT_NOFILE).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that may be open at once.
pub(crate) fn open_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises that number as far as the system lets everybody; returns it. A program that serves calls this
/// once, before the server starts.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "RLIMIT_NOFILE could not be raised");
        }
    }
    open_max()
}
