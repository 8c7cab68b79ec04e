//! `keelson restore`: creates a data folder from a backup, or fills an etcd cluster.

use super::output::{self, Progress};
use crate::flags::{RestoreFlags, STDIO};
use anyhow::{Context, Result, anyhow, bail};
use keelson::EtcdData;
use keelson_store::backup::BackupReader;
use keelson_store::embedded;
use std::io::ErrorKind;
use std::path::Path;

/// The temporary folder of an interrupted restore.
const LEFTOVER: &str = "store.restoring";

/// Runs `keelson restore`.
pub fn run(flags: &RestoreFlags) -> Result<()> {
    if let Some(data) = flags.etcd.data()? {
        return into_etcd(&data, flags);
    }
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

/// Writes the objects of a backup into an etcd cluster, once the whole backup has been verified.
fn into_etcd(data: &EtcdData, flags: &RestoreFlags) -> Result<()> {
    if flags.file == STDIO {
        bail!("--etcd-servers: the backup is read twice, so it must be a file");
    }
    data.check_empty().map_err(anyhow::Error::msg)?;
    let open = || {
        let input = super::open_input(&flags.file)?;
        BackupReader::new(input).with_context(|| flags.file.clone())
    };
    let mut progress = Progress::start();
    let mut verified = open()?;
    while verified.next_key().with_context(|| flags.file.clone())?.is_some() {}
    let restored = data.restore(&mut open()?, &mut |so_far| progress.show(&so_far));
    let seconds = progress.end();
    let summary = restored.map_err(|(why, written)| {
        anyhow!(
            "{why}\n{written} objects were written before; remove them (etcdctl del --prefix) before \
             the next attempt"
        )
    })?;
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
