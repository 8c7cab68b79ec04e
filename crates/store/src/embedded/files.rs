//! The file of a disk, and a new file that may replace it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::{Durability, directory};

/// Suffix of the name of the new file.
const NEW_SUFFIX: &str = ".new";
/// A smaller file is not rewritten to save space.
const REWRITE_BYTES_MIN: u64 = 4 << 20;

/// Which of the two files to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileRole {
    /// The file in use.
    Current,
    /// The file that is being made to replace it.
    New,
}

/// The file of a disk, which can be replaced by a new one.
pub trait Files: Send + Sync + 'static {
    /// Opens an existing file.
    fn open(&self, role: FileRole) -> io::Result<Arc<dyn StorageBackend>>;

    /// Creates an empty new file. Replaces one that an earlier attempt has left.
    fn create_new(&self) -> io::Result<()>;

    /// Renames the new file to the one in use and so replaces it. A crash may undo this until
    /// [`Files::sync_directory`] has succeeded; one of the two files exists in any case.
    fn promote(&self) -> io::Result<()>;

    /// Makes renames durable by syncing the directory.
    fn sync_directory(&self) -> io::Result<()>;

    /// Removes the new file, if there is one.
    fn remove_new(&self) -> io::Result<()>;

    /// Returns the disk space of the file in use, in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Returns the free disk space in bytes, or `None` if it is unknown.
    fn free_bytes(&self) -> io::Result<Option<u64>>;

    /// Returns the size below which a file is not rewritten to save space.
    fn rewrite_bytes_min(&self) -> u64 {
        REWRITE_BYTES_MIN
    }
}

/// Files in a directory.
pub(super) struct DirFiles {
    current: PathBuf,
    new_file: PathBuf,
    syncs: bool,
}

impl DirFiles {
    pub(super) fn new(current: PathBuf, durability: Durability) -> Self {
        let mut name = current.file_name().unwrap_or_default().to_owned();
        name.push(NEW_SUFFIX);
        let new_file = current.with_file_name(name);
        Self { current, new_file, syncs: durability == Durability::Sync }
    }

    /// Creates the file if it does not exist, and removes a new file that a crash has left.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.current);
        drop(options?);
        self.remove_new()?;
        // Otherwise a power cut may lose the file's name, and all synced data with it.
        self.sync_directory()
    }
}

impl Files for DirFiles {
    fn open(&self, role: FileRole) -> io::Result<Arc<dyn StorageBackend>> {
        let path = match role {
            FileRole::Current => &self.current,
            FileRole::New => &self.new_file,
        };
        backend(OpenOptions::new().read(true).write(true).open(path)?, self.syncs)
    }

    fn create_new(&self) -> io::Result<()> {
        self.remove_new()?;
        OpenOptions::new().write(true).create_new(true).open(&self.new_file).map(drop)
    }

    fn promote(&self) -> io::Result<()> {
        std::fs::rename(&self.new_file, &self.current)
    }

    fn sync_directory(&self) -> io::Result<()> {
        if !self.syncs {
            return Ok(());
        }
        directory::sync(directory::parent(&self.current))
    }

    fn remove_new(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.new_file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    #[cfg(unix)]
    fn size(&self) -> io::Result<u64> {
        /// The unit of `st_blocks`. POSIX leaves it open, but every system that Rust supports uses
        /// 512.
        const BLOCK_BYTES: u64 = 512;
        let blocks = std::os::unix::fs::MetadataExt::blocks(&self.current.metadata()?);
        Ok(blocks * BLOCK_BYTES)
    }

    #[cfg(not(unix))]
    fn size(&self) -> io::Result<u64> {
        Ok(self.current.metadata()?.len())
    }

    #[cfg(unix)]
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let found = rustix::fs::statvfs(directory::parent(&self.current))?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    #[cfg(not(unix))]
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// Wraps a file for redb.
pub(super) fn backend(file: File, syncs: bool) -> io::Result<Arc<dyn StorageBackend>> {
    let file = FileBackend::new(file).map_err(io::Error::other)?;
    Ok(if syncs { Arc::new(file) } else { Arc::new(Unsynced(file)) })
}

/// A file that the system writes when it likes.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The kernel refuses to sync a device of characters, so a sync that is asked for fails.
    #[test]
    fn unsynced_files_are_never_synced() {
        let sync = |durability| {
            let files = DirFiles::new(PathBuf::from("/dev/null"), durability);
            files.open(FileRole::Current).expect("a file").sync_data()
        };
        assert!(sync(Durability::Sync).is_err());
        assert!(sync(Durability::Unsynced).is_ok());
    }
}
