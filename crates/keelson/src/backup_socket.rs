//! Backups of a running server: it holds the lock of the data, so it offers them on a unix socket in
//! its data folder. Whoever connects is sent one backup. File permissions say who may.

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

/// Timeout of a stalled reader; its snapshot keeps old pages meanwhile.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes that go to the socket at once.
const CHUNK_BYTES: usize = 64 << 10;
/// After a connection that could not be taken.
const ACCEPT_DELAY: Duration = Duration::from_secs(1);

/// The path of the backup socket of a data folder.
pub fn backup_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("store").join("backup.sock")
}

/// The open socket.
pub(crate) struct BackupSocket {
    path: PathBuf,
    stop: watch::Sender<bool>,
    /// The reader under way: one at a time, others wait.
    reader: Arc<Mutex<Option<UnixStream>>>,
    task: JoinHandle<()>,
}

impl BackupSocket {
    /// Opens it; the lock of the data folder must be held. What another server left is replaced.
    pub(crate) fn open(path: PathBuf, store: Arc<Embedded>) -> io::Result<Self> {
        remove(&path)?;
        let listener = UnixListener::bind(&path)?;
        // Nobody else reaches the folder, but it may have been opened up on purpose.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let (stop, told) = watch::channel(false);
        let reader = Arc::new(Mutex::new(None));
        let owner = std::fs::metadata(&path)?.uid();
        let task = tokio::spawn(offer(listener, owner, store, reader.clone(), told));
        Ok(Self { path, stop, reader, task })
    }

    /// Ends what is under way and takes the socket away.
    pub(crate) async fn close(self) {
        self.stop.send_replace(true);
        if let Some(stream) = &*self.reader.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = self.task.await;
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a socket stays behind");
        }
    }
}

async fn offer(
    listener: UnixListener,
    owner: u32,
    store: Arc<Embedded>,
    reader: Arc<Mutex<Option<UnixStream>>>,
    mut told: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            _ = told.wait_for(|stop| *stop) => return,
        };
        let stream = accepted.and_then(|stream| {
            // Somebody may have come before the socket had its mode.
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
                tracing::warn!(%error, "a backup was asked for and could not be given");
                tokio::time::sleep(ACCEPT_DELAY).await;
                continue;
            }
        };
        if *told.borrow() {
            return;
        }
        let store = store.clone();
        let send = move || store.backup(&mut BufWriter::with_capacity(CHUNK_BYTES, stream));
        match tokio::task::spawn_blocking(send).await {
            Ok(Ok(made)) => {
                let (objects, revision) = (made.objects, made.revision.0);
                tracing::info!(objects, revision, bytes = made.bytes, "a backup was made");
            }
            Ok(Err(error)) => {
                use std::error::Error;
                let source = error.source();
                tracing::warn!(%error, source, "a backup was broken off");
            }
            Err(error) => tracing::error!(%error, "a backup was broken off"),
        }
        *reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
