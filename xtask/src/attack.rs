//! `cargo xtask attack`: builds a server and `keelson-attack`, and runs the attacks.

use crate::commands;
use anyhow::Result;
use std::process::Command;

/// The program that attacks.
const ATTACK: &str = "target/debug/keelson-attack";
/// The longest responses, in milliseconds, of the server and of the program in the place of etcd.
/// The build of tests, with assertions, overflow checks and a little optimisation, takes two to
/// four times as long as that of a package, which stays below 50.
const LATENCY: &str = "250";
const ETCD_LATENCY: &str = "300";

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    commands::build_tests()?;
    let mut attack = Command::new(ATTACK);
    let is_own_server =
        !args.iter().any(|arg| arg.starts_with("--kubeconfig") || arg.starts_with("--program"));
    if is_own_server {
        attack.args(["--program", commands::SERVER]);
        attack.args(["--latency", LATENCY, "--etcd-latency", ETCD_LATENCY]);
    }
    commands::run(attack.args(args))
}
