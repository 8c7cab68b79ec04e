//! Command line flags. Those that serve have the names and meanings of kube-apiserver's flags, and
//! are read as it reads them (`pflag`); `groups` lists them with what they do here.

mod cli;
pub mod configure;
mod go_files;
pub mod go_values;
mod groups;
pub mod help;
mod manifests;
pub mod pflag;
mod setup;
mod step;
pub mod table;
#[cfg(test)]
mod tests;
mod version;

use anyhow::{Context, Result};
pub use cli::{
    BackupFlags, CheckFlags, Cli, Command, EncryptionCommand, EncryptionFlags, EnvtestFlags,
    KubeconfigFlags, RestoreFlags, ResultFormat, STDIO, SimulationCommand, SimulationFlags,
    SummaryFormat, UiFlags, VersionFlags,
};
use keelson_meta::time::GoDuration;
pub use manifests::{FindingsFormat, LintFlags, ValidateFlags};
use std::path::PathBuf;
use std::time::Duration;

/// Returns the data folder: the given one or the default.
pub fn data_dir(given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir.clone());
    }
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("XDG_DATA_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/share")))
        .map(|base| base.join("keelson"))
        .context("--data-dir: neither XDG_DATA_HOME nor HOME is set; name a folder")
}

/// Parses a duration in Go's notation.
fn duration(flag: &str, text: &str, example: &str) -> Result<Duration> {
    let nanos = GoDuration::parse(text)
        .ok()
        .and_then(|parsed| u64::try_from(parsed.0).ok())
        .with_context(|| format!("{flag}: {text:?} is not like {example}"))?;
    Ok(Duration::from_nanos(nanos))
}
