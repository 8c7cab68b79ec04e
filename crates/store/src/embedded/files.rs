//! The file of a disk, and the one beside it that may take its place.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::directory;

/// What is added to the name of the file beside.
const BESIDE: &str = ".new";
/// A smaller file is not copied to give space back.
const SPARED_BYTES: u64 = 4 << 20;

/// Which of the two is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The file in use.
    Current,
    /// The one that is being made beside it.
    Beside,
}

/// Where the file of a disk is. Another one can be made beside it and take its name.
pub trait Files: Send + Sync + 'static {
    /// Opens a file that is there.
    fn open(&self, place: Place) -> io::Result<Arc<dyn StorageBackend>>;

    /// Makes an empty file beside, in the place of what an earlier attempt has left.
    fn make_beside(&self) -> io::Result<()>;

    /// Gives the file beside the name of the one in use, which is lost. A crash may take that back
    /// until [`Files::sync_names`] has succeeded; one of the two is there in any case.
    fn promote(&self) -> io::Result<()>;

    /// Makes durable which file has which name.
    fn sync_names(&self) -> io::Result<()>;

    /// Takes the file beside away, if there is one.
    fn discard_beside(&self) -> io::Result<()>;

    /// Bytes that the file in use takes up.
    fn size(&self) -> io::Result<u64>;

    /// Bytes for which there is room; `None` when nobody knows.
    fn room(&self) -> io::Result<Option<u64>>;

    /// The size below which a file is left as it is.
    fn spared(&self) -> u64 {
        SPARED_BYTES
    }
}

/// Files of a directory.
pub(super) struct DirFiles {
    current: PathBuf,
    beside: PathBuf,
}

impl DirFiles {
    pub(super) fn new(current: PathBuf) -> Self {
        let mut name = current.file_name().unwrap_or_default().to_owned();
        name.push(BESIDE);
        let beside = current.with_file_name(name);
        Self { current, beside }
    }

    /// Makes the file when it is not there, and takes away what a crash has left beside it.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.current);
        drop(options?);
        self.discard_beside()?;
        // Else a power cut may take the name away, and all that was synced with it.
        self.sync_names()
    }
}

impl Files for DirFiles {
    fn open(&self, place: Place) -> io::Result<Arc<dyn StorageBackend>> {
        let path = match place {
            Place::Current => &self.current,
            Place::Beside => &self.beside,
        };
        backend(OpenOptions::new().read(true).write(true).open(path)?)
    }

    fn make_beside(&self) -> io::Result<()> {
        self.discard_beside()?;
        OpenOptions::new().write(true).create_new(true).open(&self.beside).map(drop)
    }

    fn promote(&self) -> io::Result<()> {
        std::fs::rename(&self.beside, &self.current)
    }

    fn sync_names(&self) -> io::Result<()> {
        directory::sync(directory::parent(&self.current))
    }

    fn discard_beside(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.beside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    #[cfg(unix)]
    fn size(&self) -> io::Result<u64> {
        /// POSIX leaves it open; every system that Rust runs on counts these.
        const BLOCK_BYTES: u64 = 512;
        let blocks = std::os::unix::fs::MetadataExt::blocks(&self.current.metadata()?);
        Ok(blocks * BLOCK_BYTES)
    }

    #[cfg(not(unix))]
    fn size(&self) -> io::Result<u64> {
        Ok(self.current.metadata()?.len())
    }

    #[cfg(unix)]
    fn room(&self) -> io::Result<Option<u64>> {
        let found = rustix::fs::statvfs(directory::parent(&self.current))?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    #[cfg(not(unix))]
    fn room(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// A file as the library takes it.
pub(super) fn backend(file: File) -> io::Result<Arc<dyn StorageBackend>> {
    Ok(Arc::new(FileBackend::new(file).map_err(io::Error::other)?))
}
