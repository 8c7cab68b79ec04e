//! Files and folders that only their owner may read: keys, kubeconfigs, records.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct FileError {
    /// `read`, `write`, ...
    pub action: &'static str,
    /// Which file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl FileError {
    fn new(action: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError { action, path: path.to_owned(), source }
    }
}

/// Writes a file with mode 0600: whole or not at all, durably, and never through a link that somebody
/// planted. The temporary file beside it has a random name and is made with O_EXCL.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    write_all(dir, &[(path.to_owned(), text)])
}

/// [`write`] for several files of one folder, in this order. The disk is waited for once for all of them, more
/// or less: most file systems make durable what was written before, too.
pub(crate) fn write_all(dir: &Path, files: &[(PathBuf, &str)]) -> Result<(), FileError> {
    let mut written = vec![];
    for (path, text) in files {
        let fail = |source| FileError::new("write", path, source);
        let mut file = tempfile::Builder::new()
            .prefix(".keelson-")
            .permissions(Permissions::from_mode(FILE_MODE))
            .tempfile_in(dir)
            .map_err(fail)?;
        file.write_all(text.as_bytes()).map_err(fail)?;
        written.push((file, path));
    }
    for (file, path) in &written {
        file.as_file().sync_all().map_err(|source| FileError::new("write", path, source))?;
    }
    for (file, path) in written {
        file.persist(path).map_err(|error| FileError::new("write", path, error.error))?;
    }
    let sync = File::open(dir).and_then(|dir| dir.sync_all());
    sync.map_err(|source| FileError::new("write", dir, source))
}

/// Reads a file; `None` when there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError::new("read", path, source)),
    }
}

/// Makes a folder, and those above it, for its owner alone. Of one that is there, the modes of the
/// folder and of the files in it are checked: what others may do is taken from them.
pub(crate) fn own_folder(dir: &Path) -> Result<(), FileError> {
    create(dir)?;
    tighten(dir, FOLDER_MODE)?;
    tighten_files(dir, |_| true)
}

/// The same for a folder that is not ours alone: only the keys in it are private.
pub(crate) fn shared_folder(dir: &Path) -> Result<(), FileError> {
    create(dir)?;
    tighten_files(dir, |path| path.extension().is_some_and(|ending| ending == "key"))
}

/// Makes a folder for its owner alone, and those above it, unless they are there.
pub(crate) fn create(dir: &Path) -> Result<(), FileError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE);
    builder.create(dir).map_err(|source| FileError::new("create folder", dir, source))
}

fn tighten_files(dir: &Path, is_private: impl Fn(&Path) -> bool) -> Result<(), FileError> {
    let list = |source| FileError::new("list folder", dir, source);
    for entry in dir.read_dir().map_err(list)? {
        let entry = entry.map_err(list)?;
        // The modes of what a link leads to are not ours to change.
        if entry.file_type().map_err(list)?.is_file() && is_private(&entry.path()) {
            tighten(&entry.path(), FILE_MODE)?;
        }
    }
    Ok(())
}

/// Takes from others what they may do.
fn tighten(path: &Path, mode: u32) -> Result<(), FileError> {
    let fail = |source| FileError::new("check mode of", path, source);
    let now = fs::symlink_metadata(path).map_err(fail)?.permissions().mode();
    if now & OTHERS == 0 {
        return Ok(());
    }
    let others = format!("{:04o}", now & 0o7777);
    tracing::warn!(path = %path.display(), mode = others, "others had access; taking it away");
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_planted_temporary_file_is_not_written_through() {
        let dir = tempfile::tempdir().expect("a folder");
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").expect("a file");
        let key = dir.path().join("a.key");
        for planted in ["a.tmp", "a.key.tmp"] {
            let planted = dir.path().join(planted);
            std::os::unix::fs::symlink(&victim, planted).expect("a link");
        }
        fs::write(&key, "").expect("a file");
        fs::set_permissions(&key, Permissions::from_mode(0o666)).expect("a mode");
        write(&key, "secret").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
        assert_eq!(
            (fs::read_to_string(&key).expect("a key").as_str(), mode(&key)),
            ("secret", 0o600)
        );
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let (victim, key) = (dir.path().join("victim"), dir.path().join("a.key"));
        fs::write(&victim, "untouched").expect("a file");
        std::os::unix::fs::symlink(&victim, &key).expect("a link");
        write(&key, "secret").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
        assert!(!key.is_symlink());
    }

    #[test]
    fn a_folder_that_is_there_is_made_private() {
        let dir = tempfile::tempdir().expect("a folder");
        let (below, file) = (dir.path().join("pki"), dir.path().join("pki/ca.key"));
        fs::create_dir(&below).expect("a folder");
        fs::write(&file, "key").expect("a file");
        fs::set_permissions(&below, Permissions::from_mode(0o755)).expect("a mode");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("a mode");
        own_folder(&below).expect("it is made private");
        assert_eq!((mode(&below), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn of_a_folder_that_others_use_only_the_keys_are_private() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("a mode");
        let (key, certificate) = (dir.path().join("ca.key"), dir.path().join("ca.crt"));
        for file in [&key, &certificate] {
            fs::write(file, "text").expect("a file");
            fs::set_permissions(file, Permissions::from_mode(0o644)).expect("a mode");
        }
        shared_folder(dir.path()).expect("the keys are made private");
        assert_eq!((mode(dir.path()), mode(&key), mode(&certificate)), (0o755, 0o600, 0o644));
    }
}
