//! Runs commands and reports those that fail.

use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// The program of the server that the tests build.
pub const SERVER: &str = "target/debug/keelson";
/// The crates that a request goes through. Tests and attacks measure how long answers take, so they
/// are optimised a little there, as is everything from registries.
const OPTIMISED: [&str; 15] = [
    "admission",
    "apply",
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
    "streams",
];

/// Returns cargo with its arguments for the tests of the workspace and their programs. Every task
/// that needs one of these programs uses them: nothing is built twice. The compiler is the one with
/// clippy's lints, which `cargo clippy` would run without building anything; a warning is an error.
pub fn tests(subcommand: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env("CLIPPY_ARGS", "-Dwarnings");
    cargo.args(subcommand).arg("--workspace");
    for name in OPTIMISED {
        cargo.arg("--config").arg(format!("profile.dev.package.keelson-{name}.opt-level=1"));
    }
    cargo
}

/// Builds all targets: the tests, and the programs that they use.
pub fn build_tests() -> Result<()> {
    run(tests(&["test", "--quiet", "--no-run", "--all-targets"]).stdin(Stdio::null()))
}

/// Runs a command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {command:?}"))
}
