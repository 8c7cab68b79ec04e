//! `cargo xtask fuzz`: builds the fuzzer with overflow checks and debug assertions, and runs it.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--release", "--quiet", "-p", "keelson-fuzz", "--"])
        .args(args)
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .status()
        .context("run the fuzzer")?;
    if !status.success() {
        bail!(
            "the fuzzer ended with {status}; run the seed again with --trace FILE to keep the input"
        );
    }
    Ok(())
}
