//! The limit of open files (RLIMIT_NOFILE), and the detection of changed files.

use keelson_meta::Value;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Returns the soft limit of open files.
pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard limit, and returns it. A program calls this
/// once, before it starts a server.
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

/// Returns the words of Go for an error when a file is read.
pub(crate) fn go_words(path: &Path, error: &std::io::Error) -> String {
    let text = error.to_string();
    let why = text.split(" (os error").next().unwrap_or_default().to_lowercase();
    // Go opens a folder, and finds out when it reads.
    let does = match error.kind() {
        std::io::ErrorKind::IsADirectory => "read",
        _ => "open",
    };
    format!("{does} {}: {why}", path.display())
}

/// Checks that a configuration of `apiserver.config.k8s.io` is of a kind, in the words of Go.
pub(crate) fn check_kind(file: &Value, kind: &str) -> Result<(), String> {
    let [found, version] =
        ["kind", "apiVersion"].map(|name| file.str_at(&[name]).unwrap_or_default());
    if found.is_empty() || found == kind {
        return Ok(());
    }
    Err(format!(
        "no kind {found:?} is registered for version {version:?} in scheme \
         \"pkg/runtime/scheme.go:111\""
    ))
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

/// Waits until files have another fingerprint than `last`, which is replaced. It is taken before
/// the caller reads the files, so that the next call finds changes made meanwhile.
pub(crate) async fn changed(
    last: &mut Fingerprint,
    interval: Duration,
    fingerprint: impl Fn() -> Fingerprint,
) {
    loop {
        tokio::time::sleep(interval).await;
        let new = fingerprint();
        if new != *last {
            *last = new;
            return;
        }
    }
}

/// Waits until a file has another text than `last`, which is replaced before the caller parses it,
/// so that an invalid file is logged only once. `what` names the file in the log.
pub(crate) async fn text_changed(path: &Path, last: &mut String, interval: Duration, what: &str) {
    loop {
        tokio::time::sleep(interval).await;
        match std::fs::read_to_string(path) {
            Ok(text) if text == *last => {}
            Ok(text) => {
                *last = text;
                return;
            }
            Err(error) => {
                let path = path.display().to_string();
                tracing::debug!(%error, path, "{what} not read");
            }
        }
    }
}
