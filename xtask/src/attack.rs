//! `cargo xtask attack`: builds an optimised server and `keelson-attack`, and runs the attacks.

use crate::commands;
use anyhow::Result;
use std::process::Command;

/// The program of the server.
const PROGRAM: &str = "target/attack/keelson";

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    let is_own_server =
        !args.iter().any(|arg| arg.starts_with("--kubeconfig") || arg.starts_with("--program"));
    if is_own_server {
        let build = ["build", "--quiet", "--profile", "attack", "-p", "keelson"];
        commands::run(Command::new("cargo").args(build))?;
    }
    let mut cargo_args = vec!["run", "--quiet", "-p", "keelson-attack", "--"];
    if is_own_server {
        cargo_args.extend(["--program", PROGRAM]);
    }
    cargo_args.extend(args.iter().map(String::as_str));
    commands::run(Command::new("cargo").args(cargo_args))
}
