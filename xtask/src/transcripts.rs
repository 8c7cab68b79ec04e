//! `cargo xtask record` and `cargo xtask replay`: record the answers of a kube-apiserver to the requests of
//! transcripts, or compare those of any server with them.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs `keelson-testkit` with all arguments, including the name of the task.
pub fn run(args: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "-p", "keelson-testkit", "--"]).args(args);
    let status = cargo.status().context("run cargo")?;
    if !status.success() {
        bail!("{} found something amiss", args.join(" "));
    }
    Ok(())
}
