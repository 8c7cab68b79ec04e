//! `cargo xtask record` and `cargo xtask replay`: records or compares the responses of a server to
//! the requests of transcripts.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs `keelson-testkit` with all arguments, including the name of the task.
pub fn run(args: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "-p", "keelson-testkit", "--"]).args(args);
    let status = cargo.status().context("run cargo")?;
    if !status.success() {
        bail!("{} failed", args.join(" "));
    }
    Ok(())
}
