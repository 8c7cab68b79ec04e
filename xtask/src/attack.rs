//! `cargo xtask attack`: builds an optimised server and `keelson-attack`, and runs the attacks.

use crate::commands;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The program of the server.
const PROGRAM: &str = "target/attack/keelson";
/// Where it is built, together with what else is built without optimisation.
const BUILT: &str = "target/debug/keelson";
/// The longest response, in milliseconds, of the program in the place of etcd. This build of it,
/// with assertions and a little optimisation, takes two to three times as long as that of a
/// package, which stays below 50.
const ETCD_LATENCY: &str = "200";
/// The crates that a request goes through. How long its answers take counts, so they are optimised.
/// The others are those of the tests, as is everything from registries: nothing is built twice.
const OPTIMISED: [&str; 15] = [
    "admission",
    "apply",
    "auth",
    "cache",
    "cel",
    "etcd-server",
    "fairness",
    "kinds",
    "meta",
    "records",
    "registry",
    "resources",
    "schema",
    "server",
    "store",
];

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    let is_own_server =
        !args.iter().any(|arg| arg.starts_with("--kubeconfig") || arg.starts_with("--program"));
    if is_own_server {
        build()?;
    }
    let mut cargo_args = vec!["run", "--quiet", "-p", "keelson-attack", "--"];
    if is_own_server {
        cargo_args.extend(["--program", PROGRAM, "--etcd-latency", ETCD_LATENCY]);
    }
    cargo_args.extend(args.iter().map(String::as_str));
    commands::run(Command::new("cargo").args(cargo_args))
}

/// Builds the server. Its place is that of the program of the profile dev, which is built again
/// when it is next used.
fn build() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--bin", "keelson"]);
    for name in OPTIMISED {
        let package = format!("profile.dev.package.keelson-{name}");
        cargo.arg("--config").arg(format!("{package}.opt-level=1"));
        cargo.arg("--config").arg(format!("{package}.overflow-checks=false"));
    }
    commands::run(&mut cargo)?;
    std::fs::create_dir_all(Path::new(PROGRAM).parent().unwrap_or(Path::new(".")))?;
    std::fs::copy(BUILT, PROGRAM).with_context(|| format!("copy {BUILT} to {PROGRAM}"))?;
    Ok(())
}
