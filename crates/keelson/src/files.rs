//! The limit of open files (RLIMIT_NOFILE).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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

/// What tells files from what they were: change time, size, number of each. `None`: it is not there.
pub(crate) type Fingerprint = Vec<Option<(i64, i64, u64, u64)>>;

/// What tells these files from what they were.
pub(crate) fn fingerprint(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Fingerprint {
    let of = |file: &Path| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
    };
    files.into_iter().map(|file| of(file.as_ref())).collect()
}
