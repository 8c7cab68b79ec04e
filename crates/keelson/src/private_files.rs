//! Files and folders that only their owner may access: keys, kubeconfigs, the data folder.

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
    /// The operation: `read`, `write`, ...
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub source: io::Error,
}

impl FileError {
    fn new(action: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError { action, path: path.to_owned(), source }
    }
}

/// Writes a file with mode 0600, atomically and durably. It never follows a symlink that an
/// attacker planted: the temporary file has a random name, is created with O_EXCL and then renamed.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    write_all(dir, &[(path.to_owned(), text)])
}

/// Writes several files of one folder as [`write`] does, in this order. All are written before the
/// first sync: on most file systems that sync covers the others, too.
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

/// Reads a file; `None` when it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError::new("read", path, source)),
    }
}

/// Creates a folder with its parents, if it does not exist, and removes the access of group and
/// others to the folder and to the files in it.
pub(crate) fn ensure_private_folder(dir: &Path) -> Result<(), FileError> {
    create_folder(dir)?;
    make_private(dir, FOLDER_MODE)?;
    make_files_private(dir, |_| true)
}

/// Creates a folder with its parents, if it does not exist, and removes the access of group and
/// others to the keys in it. The folder and its other files keep their modes.
pub(crate) fn ensure_folder_with_private_keys(dir: &Path) -> Result<(), FileError> {
    create_folder(dir)?;
    make_files_private(dir, |path| path.extension().is_some_and(|extension| extension == "key"))
}

/// Creates a folder with its parents, with mode 0700, unless they exist.
pub(crate) fn create_folder(dir: &Path) -> Result<(), FileError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE);
    builder.create(dir).map_err(|source| FileError::new("create folder", dir, source))
}

fn make_files_private(dir: &Path, is_private: impl Fn(&Path) -> bool) -> Result<(), FileError> {
    let list = |source| FileError::new("list folder", dir, source);
    for entry in dir.read_dir().map_err(list)? {
        let entry = entry.map_err(list)?;
        // A symlink is skipped: its target may belong to somebody else.
        if entry.file_type().map_err(list)?.is_file() && is_private(&entry.path()) {
            make_private(&entry.path(), FILE_MODE)?;
        }
    }
    Ok(())
}

/// Sets the mode if group or others have access.
fn make_private(path: &Path, mode: u32) -> Result<(), FileError> {
    let fail = |source| FileError::new("check mode of", path, source);
    let current = fs::symlink_metadata(path).map_err(fail)?.permissions().mode();
    if current & OTHERS == 0 {
        return Ok(());
    }
    let current = format!("{:04o}", current & 0o7777);
    tracing::warn!(path = %path.display(), mode = current, "other users had access; removing it");
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("the file exists").permissions().mode() & 0o777
    }

    #[test]
    fn symlinks_with_names_of_temporary_files_are_not_followed() {
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
    fn a_symlink_with_the_name_of_the_file_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let victim = dir.path().join("victim");
        let key = dir.path().join("a.key");
        fs::write(&victim, "untouched").expect("a file");
        std::os::unix::fs::symlink(&victim, &key).expect("a link");
        write(&key, "secret").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
        assert!(!key.is_symlink());
    }

    #[test]
    fn an_existing_folder_is_made_private() {
        let dir = tempfile::tempdir().expect("a folder");
        let below = dir.path().join("pki");
        let file = dir.path().join("pki/ca.key");
        fs::create_dir(&below).expect("a folder");
        fs::write(&file, "key").expect("a file");
        fs::set_permissions(&below, Permissions::from_mode(0o755)).expect("a mode");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("a mode");
        ensure_private_folder(&below).expect("it is made private");
        assert_eq!((mode(&below), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn only_the_keys_of_a_shared_folder_are_made_private() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("a mode");
        let key = dir.path().join("ca.key");
        let certificate = dir.path().join("ca.crt");
        for file in [&key, &certificate] {
            fs::write(file, "text").expect("a file");
            fs::set_permissions(file, Permissions::from_mode(0o644)).expect("a mode");
        }
        ensure_folder_with_private_keys(dir.path()).expect("the keys are made private");
        assert_eq!((mode(dir.path()), mode(&key), mode(&certificate)), (0o755, 0o600, 0o644));
    }
}
