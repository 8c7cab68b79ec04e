//! The limit of open files (RLIMIT_NOFILE), and the detection of changed files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the soft limit of open files.
pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard limit, and returns it. A program calls this once,
/// before it starts a server.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "RLIMIT_NOFILE not raised");
        }
    }
    open_files_max()
}

/// For each file the modification time in seconds and nanoseconds, the size and the inode number;
/// `None`: the file does not exist. It changes when one of the files changes.
pub(crate) type Fingerprint = Vec<Option<(i64, i64, u64, u64)>>;

/// Returns the fingerprint of these files.
pub(crate) fn fingerprint(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Fingerprint {
    let of_file = |file: &Path| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino()))
    };
    files.into_iter().map(|file| of_file(file.as_ref())).collect()
}
