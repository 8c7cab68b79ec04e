//! Backups of a running server. The server holds the lock of the data folder, so it serves backups
//! on a Unix socket in that folder: each connection receives one backup. Only the owner of the
//! socket and root may connect.

use keelson_store::Embedded;
use std::io::{self, BufWriter};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Timeout of a reader that stalls. Its snapshot keeps old pages from being reused.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes per write to the socket.
const CHUNK_BYTES: usize = 64 << 10;
/// Delay after a connection that could not be accepted.
const ACCEPT_DELAY: Duration = Duration::from_secs(1);

/// Returns the path of the backup socket of a data folder.
pub fn backup_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("store").join("backup.sock")
}

/// The listening socket and its task.
pub(crate) struct BackupSocket {
    path: PathBuf,
    stop: watch::Sender<bool>,
    /// The connection that is receiving a backup. There is one at a time; others wait.
    reader: Arc<Mutex<Option<UnixStream>>>,
    task: JoinHandle<()>,
}

impl BackupSocket {
    /// Opens the socket, in the place of one that an earlier server left. The caller must hold the
    /// lock of the data folder.
    pub(crate) fn open(path: PathBuf, store: Arc<Embedded>) -> io::Result<Self> {
        remove(&path)?;
        let listener = UnixListener::bind(&path)?;
        // The folder is private by default, but an operator may have opened it to others.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let (stop, stop_signal) = watch::channel(false);
        let reader = Arc::new(Mutex::new(None));
        let owner = std::fs::metadata(&path)?.uid();
        let task = tokio::spawn(serve(listener, owner, store, reader.clone(), stop_signal));
        Ok(Self { path, stop, reader, task })
    }

    /// Ends a backup that is being sent, and removes the socket.
    pub(crate) async fn close(self) {
        self.stop.send_replace(true);
        if let Some(stream) = &*self.reader.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails when the reader has closed the connection itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = self.task.await;
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "backup socket not removed");
        }
    }
}

async fn serve(
    listener: UnixListener,
    owner: u32,
    store: Arc<Embedded>,
    reader: Arc<Mutex<Option<UnixStream>>>,
    mut stop_signal: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            _ = stop_signal.wait_for(|stop| *stop) => return,
        };
        let stream = accepted.and_then(|stream| {
            // Another user may have connected before the mode of the socket was set.
            if ![0, owner].contains(&stream.peer_cred()?.uid()) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let stream = stream.into_std()?;
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(STALL_TIME_MAX))?;
            *reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.try_clone()?);
            Ok(stream)
        });
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "backup connection not accepted");
                tokio::time::sleep(ACCEPT_DELAY).await;
                continue;
            }
        };
        if *stop_signal.borrow() {
            return;
        }
        let store = store.clone();
        let send = move || store.backup(&mut BufWriter::with_capacity(CHUNK_BYTES, stream));
        match tokio::task::spawn_blocking(send).await {
            Ok(Ok(summary)) => {
                let objects = summary.objects;
                let revision = summary.revision.0;
                tracing::info!(objects, revision, bytes = summary.bytes, "backup sent");
            }
            Ok(Err(error)) => {
                use std::error::Error;
                let source = error.source();
                tracing::warn!(%error, source, "backup aborted");
            }
            Err(error) => tracing::error!(%error, "backup panicked"),
        }
        *reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
