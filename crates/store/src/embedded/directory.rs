//! The data directory: whose it is, which version it has, and who holds it.

use std::error::Error;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::DiskError;

/// The version of the directory's format; raised by every change that an older one cannot read.
const FORMAT_VERSION: u32 = 4;
/// An older version whose records an opening takes over.
const FORMAT_VERSION_OLD: u32 = 3;
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_FILE_NEW: &str = "FORMAT.new";
const FORMAT_NAME: &str = "keelson-store";
const FORMAT_BYTES_MAX: u64 = 64;
const LOCK_FILE: &str = "LOCK";
pub(super) const RECORDS_FILE: &str = "records.redb";

/// Why a data directory could not be opened. `Display` is one line that names the directory.
#[derive(Debug)]
pub enum OpenError {
    /// Another process holds it.
    Locked {
        /// The data directory.
        dir: PathBuf,
    },
    /// It is not there, or nobody has claimed it yet.
    Absent {
        /// The data directory.
        dir: PathBuf,
    },
    /// It holds files, but not those of a Keelson store.
    Foreign {
        /// The data directory.
        dir: PathBuf,
    },
    /// Another version of Keelson wrote it.
    Format {
        /// The data directory.
        dir: PathBuf,
        /// The version it has.
        found: u32,
        /// The version this one reads.
        known: u32,
    },
    /// A step on the directory failed.
    Directory {
        /// The data directory.
        dir: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The records could not be read.
    Records {
        /// The data directory.
        dir: PathBuf,
        /// What the disk said.
        source: DiskError,
    },
    /// The commit thread could not be started.
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { dir } => {
                write!(f, "data directory {} is in use by another process", dir.display())
            }
            Self::Absent { dir } => write!(f, "there is no data in {}", dir.display()),
            Self::Foreign { dir } => {
                write!(f, "directory {} holds files of something else", dir.display())
            }
            Self::Format { dir, found, known } => {
                let dir = dir.display();
                write!(f, "data directory {dir} has format {found}, this version reads {known}")?;
                if *found == FORMAT_VERSION_OLD {
                    f.write_str(": a server that starts takes it over")?;
                } else if found < known {
                    f.write_str(": restore a backup made by the version that wrote it")?;
                }
                Ok(())
            }
            Self::Directory { dir, step, .. } => {
                write!(f, "{step} data directory {}", dir.display())
            }
            Self::Records { dir, .. } => write!(f, "read records in {}", dir.display()),
            Self::Thread { .. } => f.write_str("start the commit thread"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Directory { source, .. } | Self::Thread { source } => Some(source),
            Self::Records { source, .. } => Some(source.as_ref()),
            Self::Locked { .. }
            | Self::Absent { .. }
            | Self::Foreign { .. }
            | Self::Format { .. } => None,
        }
    }
}

/// Makes the directory when it is not there, takes its lock, and checks or writes its format. One of
/// format 3 keeps it until [`write_format`].
/// The lock lasts as long as the file.
pub(super) fn claim(dir: &Path) -> Result<File, OpenError> {
    let failed = |step| move |source| OpenError::Directory { dir: dir.to_owned(), step, source };
    create(dir).map_err(failed("create"))?;
    if !is_ours(dir).map_err(failed("list"))? {
        return Err(OpenError::Foreign { dir: dir.to_owned() });
    }
    let path = dir.join(LOCK_FILE);
    let options = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let lock = options.map_err(failed("lock"))?;
    take(dir, &lock)?;
    match check_format(dir) {
        Ok(true) => {}
        Ok(false) => write_format(dir).map_err(failed("write the format of"))?,
        // The number changes when the records have been taken over.
        Err(OpenError::Format { found: FORMAT_VERSION_OLD, .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(lock)
}

/// Takes the lock of a directory that has been claimed, and writes nothing.
pub(super) fn hold(dir: &Path) -> Result<File, OpenError> {
    if !check_format(dir)? {
        return Err(OpenError::Absent { dir: dir.to_owned() });
    }
    let lock = File::open(dir.join(LOCK_FILE)).map_err(|source| {
        let (dir, step) = (dir.to_owned(), "lock");
        OpenError::Directory { dir, step, source }
    })?;
    take(dir, &lock)?;
    Ok(lock)
}

fn take(dir: &Path, lock: &File) -> Result<(), OpenError> {
    let dir = || dir.to_owned();
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { dir: dir() }),
        Err(TryLockError::Error(source)) => {
            Err(OpenError::Directory { dir: dir(), step: "lock", source })
        }
    }
}

/// Whether there is a format; the one that this version reads, if so.
fn check_format(dir: &Path) -> Result<bool, OpenError> {
    let dir = || dir.to_owned();
    match read_format(&dir()) {
        Ok(Format::None) => Ok(false),
        Ok(Format::Version(FORMAT_VERSION)) => Ok(true),
        Ok(Format::Version(found)) => {
            Err(OpenError::Format { dir: dir(), found, known: FORMAT_VERSION })
        }
        Ok(Format::Other) => Err(OpenError::Foreign { dir: dir() }),
        Err(source) => Err(OpenError::Directory { dir: dir(), step: "read the format of", source }),
    }
}

enum Format {
    None,
    Version(u32),
    Other,
}

/// The directory holds Secrets: nobody else may look into it.
fn create(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    builder.create(dir)?;
    missing.into_iter().try_for_each(|made| sync(parent(made)))
}

/// Where the directory itself is entered.
pub(super) fn parent(dir: &Path) -> &Path {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Makes durable which names the directory holds.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Empty, claimed, or left by a crash in the middle of being claimed.
fn is_ours(dir: &Path) -> io::Result<bool> {
    let mut is_ours = true;
    for entry in dir.read_dir()? {
        let name = entry?.file_name();
        if name == FORMAT_FILE {
            return Ok(true);
        }
        is_ours &= name == LOCK_FILE || name == FORMAT_FILE_NEW || name == "lost+found";
    }
    Ok(is_ours)
}

fn read_format(dir: &Path) -> io::Result<Format> {
    let mut text = Vec::new();
    match File::open(dir.join(FORMAT_FILE)) {
        Ok(file) => io::Read::read_to_end(&mut io::Read::take(file, FORMAT_BYTES_MAX), &mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Format::None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text);
    let version = text.strip_prefix(FORMAT_NAME).and_then(|rest| rest.trim().parse().ok());
    Ok(version.map_or(Format::Other, Format::Version))
}

/// Whole or not at all: written beside, synced, renamed, and the rename synced.
pub(super) fn write_format(dir: &Path) -> io::Result<()> {
    let beside = dir.join(FORMAT_FILE_NEW);
    let mut file = File::create(&beside)?;
    writeln!(file, "{FORMAT_NAME} {FORMAT_VERSION}")?;
    file.sync_all()?;
    std::fs::rename(beside, dir.join(FORMAT_FILE))?;
    sync(dir)
}
