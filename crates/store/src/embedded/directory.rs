//! The data directory: ownership check, format version and lock.

use std::error::Error;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::DiskError;

/// The format version of the directory; incremented by every change that older versions cannot
/// read.
const FORMAT_VERSION: u32 = 4;
/// An older format version, which is upgraded when the store is opened.
const FORMAT_VERSION_UPGRADED: u32 = 3;
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_FILE_NEW: &str = "FORMAT.new";
const FORMAT_NAME: &str = "keelson-store";
const FORMAT_BYTES_MAX: u64 = 64;
const LOCK_FILE: &str = "LOCK";
pub(super) const RECORDS_FILE: &str = "records.redb";

/// Why a data directory could not be opened. `Display` is one line that names the directory.
#[derive(Debug)]
pub enum OpenError {
    /// Another process holds the lock of the directory.
    Locked {
        /// The data directory.
        dir: PathBuf,
    },
    /// The directory does not exist, or was never used by a store.
    Absent {
        /// The data directory.
        dir: PathBuf,
    },
    /// The directory has files that are not from a Keelson store.
    Foreign {
        /// The data directory.
        dir: PathBuf,
    },
    /// Another version of Keelson wrote the directory.
    Format {
        /// The data directory.
        dir: PathBuf,
        /// The format version of the directory.
        found: u32,
        /// The format version that this program reads.
        known: u32,
    },
    /// A step on the directory failed.
    Directory {
        /// The data directory.
        dir: PathBuf,
        /// The step that failed, as a verb.
        step: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The records could not be read.
    Records {
        /// The data directory.
        dir: PathBuf,
        /// The cause.
        source: DiskError,
    },
    /// The commit thread could not be started.
    Thread {
        /// The cause.
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
                if *found == FORMAT_VERSION_UPGRADED {
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

/// Creates the directory if it does not exist, locks it, and checks or writes its format. Format 3
/// is accepted and stays until [`write_format`]. The lock lasts as long as the returned file.
pub(super) fn claim(dir: &Path) -> Result<File, OpenError> {
    let failed = |step| move |source| OpenError::Directory { dir: dir.to_owned(), step, source };
    create(dir).map_err(failed("create"))?;
    if !is_usable(dir).map_err(failed("list"))? {
        return Err(OpenError::Foreign { dir: dir.to_owned() });
    }
    let path = dir.join(LOCK_FILE);
    let options = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let lock = options.map_err(failed("lock"))?;
    try_lock(dir, &lock)?;
    match check_format(dir) {
        Ok(true) => {}
        Ok(false) => write_format(dir).map_err(failed("write the format of"))?,
        // The format file is rewritten after the records are upgraded.
        Err(OpenError::Format { found: FORMAT_VERSION_UPGRADED, .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(lock)
}

/// Makes a directory that does not exist, or is empty, the data directory of a store. What is
/// created in it afterwards does not keep the store from using it.
pub fn prepare_directory(dir: &Path) -> Result<(), OpenError> {
    if check_format(dir).is_ok_and(|has_format| has_format) {
        return Ok(());
    }
    claim(dir).map(drop)
}

/// Locks an existing data directory without writing to it.
pub(super) fn lock_existing(dir: &Path) -> Result<File, OpenError> {
    if !check_format(dir)? {
        return Err(OpenError::Absent { dir: dir.to_owned() });
    }
    let lock = File::open(dir.join(LOCK_FILE)).map_err(|source| {
        let dir = dir.to_owned();
        let step = "lock";
        OpenError::Directory { dir, step, source }
    })?;
    try_lock(dir, &lock)?;
    Ok(lock)
}

fn try_lock(dir: &Path, lock: &File) -> Result<(), OpenError> {
    let dir = || dir.to_owned();
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { dir: dir() }),
        Err(TryLockError::Error(source)) => {
            Err(OpenError::Directory { dir: dir(), step: "lock", source })
        }
    }
}

/// Returns whether the directory has a format. Fails if it is not the current one.
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

/// Creates the directory with mode 0700, because it holds Secrets.
fn create(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    builder.create(dir)?;
    missing.into_iter().try_for_each(|created| sync(parent(created)))
}

/// Returns the parent directory; `.` for a relative path of one component.
pub(super) fn parent(dir: &Path) -> &Path {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Makes the entries of a directory durable.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Returns whether the directory is empty, is a data directory, or was left by a crash while it
/// became one.
fn is_usable(dir: &Path) -> io::Result<bool> {
    let mut is_usable = true;
    for entry in dir.read_dir()? {
        let name = entry?.file_name();
        if name == FORMAT_FILE {
            return Ok(true);
        }
        is_usable &= name == LOCK_FILE || name == FORMAT_FILE_NEW || name == "lost+found";
    }
    Ok(is_usable)
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

/// Writes the format file atomically: writes a new file, syncs it, renames it and syncs the
/// directory.
pub(super) fn write_format(dir: &Path) -> io::Result<()> {
    let new_file = dir.join(FORMAT_FILE_NEW);
    let mut file = File::create(&new_file)?;
    writeln!(file, "{FORMAT_NAME} {FORMAT_VERSION}")?;
    file.sync_all()?;
    std::fs::rename(new_file, dir.join(FORMAT_FILE))?;
    sync(dir)
}
