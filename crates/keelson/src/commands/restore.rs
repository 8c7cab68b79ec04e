//! `keelson restore`: a data folder made of a backup.

use super::output::{self, Progress};
use crate::flags::RestoreAsk;
use anyhow::{Context, Result, bail};
use keelson_store::backup::BackupReader;
use keelson_store::embedded;
use std::io::ErrorKind;
use std::path::Path;

/// Remains of an interrupted restore.
const LEFTOVER: &str = "store.restoring";

/// Restores a backup.
pub fn run(ask: &RestoreAsk) -> Result<()> {
    let dir = ask.place.dir()?;
    let was_there = must_be_empty(&dir)?;
    let mut progress = Progress::start();
    let mut backup =
        BackupReader::new(super::input(&ask.file)?).with_context(|| ask.file.clone())?;
    let restored =
        embedded::restore(&dir.join("store"), &mut backup, &mut |so_far| progress.show(&so_far));
    let seconds = progress.end();
    if restored.is_err() && !was_there {
        // Only when nothing is in it.
        let _ = std::fs::remove_dir(&dir);
    }
    let made = restored.with_context(|| ask.file.clone())?;
    output::print(&output::closing("restored", &ask.file, &made, seconds, ask.output))
}

/// Whether the folder is there; it must not hold anything.
fn must_be_empty(dir: &Path) -> Result<bool> {
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
