//! `cargo xtask ci`: all checks and tests that must pass before a change is merged. Installs missing
//! tools.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many seconds the tests run each fuzz target.
const FUZZ_SECONDS: &str = "30";
/// How many seconds all attacks take together.
const ATTACK_SECONDS: &str = "60";
/// The interpreter of the virtual environment with the Kubernetes client for Python.
const PYTHON: &str = "target/clients/bin/python";
/// The version of the Kubernetes client for Python.
const PYTHON_CLIENT: &str = "37.0.2";

/// Runs all checks and tests.
pub fn run() -> Result<()> {
    say("format")?;
    step("cargo", &["fmt", "--all", "--check"])?;
    say("tidy")?;
    crate::tidy::run()?;
    say("requirements")?;
    crate::requirements::run(&["--check".to_owned()])?;
    install()?;
    dependencies()?;
    say("clippy")?;
    step("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    say("tests")?;
    if has("cargo-nextest") {
        step("cargo", &["nextest", "run", "--workspace", "--no-fail-fast"])?;
    } else {
        step("cargo", &["test", "--workspace", "--no-fail-fast"])?;
    }
    // After the tests: their CPU load would delay responses during the attacks.
    say("attacks")?;
    crate::attack::run(&["--seconds".to_owned(), ATTACK_SECONDS.to_owned()])
}

/// Installs missing tools: kubectl and the Python client for the tests with stock clients, etcd for the
/// tests of the etcd store, and nextest.
fn install() -> Result<()> {
    if !has("kubectl") {
        install_package("kubectl", "kubernetes-client")?;
    }
    if !has("etcd") {
        install_package("etcd", "etcd-server")?;
    }
    if !Path::new(PYTHON).exists() {
        say("installing the Python client by pip into target/clients")?;
        let installed = step("python3", &["-m", "venv", "target/clients"]).and_then(|()| {
            let package = format!("kubernetes=={PYTHON_CLIENT}");
            step(PYTHON, &["-m", "pip", "install", "-q", "--disable-pip-version-check", &package])
        });
        if let Err(error) = installed {
            say(&format!(
                "no Python client ({error}): the test that drives it will say that it skips"
            ))?;
        }
    }
    if !has("cargo-nextest") {
        say("installing cargo-nextest")?;
        if step("cargo", &["install", "--locked", "--quiet", "cargo-nextest"]).is_err() {
            say("no cargo-nextest: the tests run with cargo test")?;
        }
    }
    Ok(())
}

/// Installs a program from a Debian package. A failure is only printed: tests skip without it.
fn install_package(program: &str, package: &str) -> Result<()> {
    say(&format!("installing {program} from Debian's package {package}"))?;
    let installed = step("apt-get", &["update", "-qq"])
        .and_then(|()| step("apt-get", &["install", "-y", "-qq", package]));
    if let Err(error) = installed {
        say(&format!("no {program} ({error}): the tests that drive it will say that they skip"))?;
    }
    Ok(())
}

/// Checks the dependencies with cargo-deny by the rules of `deny.toml`.
fn dependencies() -> Result<()> {
    if !has("cargo-deny") {
        say("installing cargo-deny")?;
        step("cargo", &["install", "--debug", "--locked", "--quiet", "cargo-deny"])?;
    }
    say("dependencies")?;
    step("cargo", &["deny", "check", "bans", "licenses", "sources"])?;
    if step("cargo", &["deny", "fetch", "db"]).is_ok() {
        step("cargo", &["deny", "check", "advisories"])
    } else {
        say("cannot download the advisory database: advisories are not checked")
    }
}

fn has(program: &str) -> bool {
    let quiet = Command::new(program)
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .status();
    quiet.is_ok()
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "== {text}").context("write to standard output")
}

fn step(program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program)
        .args(args)
        .env("KEELSON_FUZZ_SECONDS", FUZZ_SECONDS)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("run {program}"))?;
    if !status.success() {
        bail!("{program} {} failed", args.join(" "));
    }
    Ok(())
}
