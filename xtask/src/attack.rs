//! `cargo xtask attack`: builds a server that is optimised well enough, and the attacks, and runs them.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Where the server is that is attacked.
const PROGRAM: &str = "target/attack/keelson";

/// Runs the task with the words that follow its name.
pub fn run(args: &[String]) -> Result<()> {
    let is_own =
        !args.iter().any(|arg| arg.starts_with("--kubeconfig") || arg.starts_with("--program"));
    if is_own {
        cargo(&["build", "--quiet", "--profile", "attack", "-p", "keelson"])?;
    }
    let mut words = vec!["run", "--quiet", "-p", "keelson-attack", "--"];
    if is_own {
        words.extend(["--program", PROGRAM]);
    }
    words.extend(args.iter().map(String::as_str));
    cargo(&words)
}

fn cargo(words: &[&str]) -> Result<()> {
    let status = Command::new("cargo").args(words).status().context("run cargo")?;
    if !status.success() {
        bail!("cargo {} ended with {status}", words.join(" "));
    }
    Ok(())
}
