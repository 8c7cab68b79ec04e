//! [`SmallDisk`]: a file system in memory over a folder, which can be full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Several of etcd's logs of 64 MB, and its data.
const SIZE: &str = "size=1g";
const BALLOON: &str = "balloon";

/// A mounted file system. Dropping it unmounts it.
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts one over a folder, and copies the folder's files to it; `None` if this user may not
    /// mount. Nobody may write to the folder meanwhile.
    pub fn over(folder: &Path) -> Option<SmallDisk> {
        let files = tempfile::tempdir().expect("a folder");
        let copy = |from: &Path, to: &Path| {
            let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
            assert!(copied.is_ok_and(|status| status.success()), "cp of {}", from.display());
        };
        copy(folder, files.path());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(folder).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            return None;
        }
        let disk = SmallDisk { folder: folder.to_owned() };
        copy(files.path(), folder);
        Some(disk)
    }

    /// Writes a file until nothing is left.
    pub fn fill(&self) {
        let mut balloon = File::create(self.folder.join(BALLOON)).expect("a file");
        let zeros = vec![0; 1 << 16];
        while balloon.write_all(&zeros).is_ok() {}
    }

    /// Removes that file.
    pub fn empty(&self) {
        std::fs::remove_file(self.folder.join(BALLOON)).expect("the file is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}
