//! `keelson restore`: creates a data folder from a backup.

use super::output::{self, Progress};
use crate::flags::RestoreFlags;
use anyhow::{Context, Result, bail};
use keelson_store::backup::BackupReader;
use keelson_store::embedded;
use std::io::ErrorKind;
use std::path::Path;

/// The temporary folder of an interrupted restore.
const LEFTOVER: &str = "store.restoring";

/// Runs `keelson restore`.
pub fn run(flags: &RestoreFlags) -> Result<()> {
    let dir = flags.data.dir()?;
    let existed = check_empty(&dir)?;
    let mut progress = Progress::start();
    let mut backup =
        BackupReader::new(super::open_input(&flags.file)?).with_context(|| flags.file.clone())?;
    let restored =
        embedded::restore(&dir.join("store"), &mut backup, &mut |so_far| progress.show(&so_far));
    let seconds = progress.end();
    if restored.is_err() && !existed {
        // Fails when the folder is not empty, which is intended.
        let _ = std::fs::remove_dir(&dir);
    }
    let summary = restored.with_context(|| flags.file.clone())?;
    output::print(&output::summary("restored", &flags.file, &summary, seconds, flags.output))
}

/// Returns whether the folder exists. It is an error when it is not empty.
fn check_empty(dir: &Path) -> Result<bool> {
    let entries = match dir.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("--data-dir: {}", dir.display())),
    };
    for entry in entries {
        let name = entry.with_context(|| format!("--data-dir: {}", dir.display()))?.file_name();
        if name != LEFTOVER && name != "lost+found" {
            bail!(
                "--data-dir: {} is not empty; a backup is restored into a new one",
                dir.display()
            );
        }
    }
    Ok(true)
}
