//! `cargo xtask fuzz`: builds the fuzzer with all checks on, and runs it in a process of its own, whose
//! death does not hide which input it was.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs the task with the words that follow its name.
pub fn run(args: &[String]) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--release", "--quiet", "-p", "keelson-fuzz", "--"])
        .args(args)
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .status()
        .context("run the fuzzer")?;
    if !status.success() {
        bail!("the fuzzer ended with {status}; with --trace FILE the same seed keeps the input");
    }
    Ok(())
}
