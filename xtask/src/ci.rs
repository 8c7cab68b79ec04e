//! `cargo xtask ci`: all checks and tests that must pass before a change is merged. Installs
//! missing tools. What cannot run for lack of something outside the repository is listed at the
//! end.

use crate::commands;
use anyhow::{Context, Result, anyhow, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

/// How many seconds the tests run each fuzz target.
const FUZZ_SECONDS: &str = "5";
/// How many seconds all attacks take together.
const ATTACK_SECONDS: &str = "45";
/// The interpreter of the virtual environment with the Kubernetes client for Python.
pub const PYTHON: &str = "target/clients/bin/python";
/// The version of the Kubernetes client for Python.
pub const PYTHON_CLIENT: &str = "37.0.2";
/// The program that checks rules of Prometheus.
const PROMTOOL: &str = "target/promtool/usr/bin/promtool";
/// The file in which tests record that they did not run, see `keelson_testkit::prerequisites`.
const NOT_RUN: &str = "target/not-run.txt";
/// The name of the check of the static program in `KEELSON_REQUIRE`.
const STATIC_PROGRAM: &str = "static-program";
/// The results of the tests, as `.config/nextest.toml` says.
const JUNIT: &str = "target/nextest/ci/junit.xml";

/// Runs all checks and tests.
pub fn run() -> Result<()> {
    let mut report = Report::new()?;
    say("format")?;
    step("cargo", &["fmt", "--all", "--check"])?;
    say("tidy")?;
    crate::tidy::run()?;
    say("requirements")?;
    crate::requirements::run(&["--check".to_owned()])?;
    // Beside the builds with Rust: each leaves a processor idle at times.
    let peers = has("go").then(|| thread::spawn(|| crate::peers::run(&[])));
    install(&mut report)?;
    dependencies(&mut report)?;
    say("clippy and all targets")?;
    commands::build_tests()?;
    if let Some(peers) = peers {
        say("the rest of the stock programs, built once into target/peers")?;
        peers.join().map_err(|_| anyhow!("the thread that builds the peers panicked"))??;
    }
    say("tests")?;
    let tests = run_tests();
    report.read_tests()?;
    if tests.is_err() {
        report.print()?;
        return tests;
    }
    say("clients")?;
    report.not_run.extend(crate::clients::run(true)?);
    say("explorer")?;
    report.not_run.extend(crate::explorer::run(&[])?);
    // After the tests: their CPU load would delay responses during the attacks.
    say("attacks")?;
    crate::attack::run(&["--seconds".to_owned(), ATTACK_SECONDS.to_owned()])?;
    static_program(&mut report)?;
    say("all passed")?;
    report.print()
}

/// What ran, and what did not.
struct Report {
    not_run: Vec<String>,
    /// Tests that did not run: a part of those that passed.
    tests_not_run: usize,
    /// Tests and failures among them; `None` if the test runner does not count.
    tests: Option<(usize, usize)>,
}

impl Report {
    /// Removes what an earlier run left.
    fn new() -> Result<Self> {
        std::fs::create_dir_all("target").context("target")?;
        for left in [NOT_RUN, JUNIT] {
            if Path::new(left).exists() {
                std::fs::remove_file(left).context(left)?;
            }
        }
        Ok(Report { not_run: vec![], tests_not_run: 0, tests: None })
    }

    /// Reads what the tests left: their number, and which of them did not run.
    fn read_tests(&mut self) -> Result<()> {
        self.tests = std::fs::read_to_string(JUNIT).ok().and_then(|text| counts(&text));
        if Path::new(NOT_RUN).exists() {
            let text = std::fs::read_to_string(NOT_RUN).context(NOT_RUN)?;
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            // A test that asks for two things may be listed twice for one of them.
            lines.sort();
            lines.dedup();
            let mut tests: Vec<&str> =
                lines.iter().filter_map(|line| line.split(" (needs ").next()).collect();
            tests.dedup();
            self.tests_not_run = tests.len();
            self.not_run.extend(lines);
        }
        Ok(())
    }

    fn print(&self) -> Result<()> {
        let mut out = std::io::stdout();
        for line in &self.not_run {
            writeln!(out, "not run: {line}")?;
        }
        if let Some((all, failed)) = self.tests {
            let passed = all.saturating_sub(failed + self.tests_not_run);
            writeln!(out, "{passed} passed, {failed} failed, {} skipped", self.tests_not_run)?;
        }
        Ok(())
    }
}

/// Returns the tests and the failures among them in a JUnit file of nextest.
fn counts(junit: &str) -> Option<(usize, usize)> {
    let head = junit.split("<testsuites ").nth(1)?.split('>').next()?;
    let number = |name: &str| -> Option<usize> {
        head.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.parse().ok()
    };
    Some((number("tests")?, number("failures")? + number("errors")?))
}

fn run_tests() -> Result<()> {
    if has("cargo-nextest") {
        run_step(commands::tests(&["nextest", "run", "--no-fail-fast", "--profile", "ci"]))
    } else {
        run_step(commands::tests(&["test", "--no-fail-fast"]))
    }
}

/// Installs missing tools: kubectl and etcd from Debian's packages if they cannot be built with Go,
/// promtool, a browser, the Python and the JavaScript client, and nextest.
fn install(report: &mut Report) -> Result<()> {
    if !has("go") {
        if !has("kubectl") {
            install_package("kubectl", "kubernetes-client")?;
        }
        if !has("etcd") {
            install_package("etcd", "etcd-server")?;
        }
    }
    if !has("promtool") && !Path::new(PROMTOOL).exists() {
        // Unpacked, not installed: the package starts a service.
        say("unpacking promtool of Debian's package prometheus into target/promtool")?;
        let unpack = "mkdir -p target/promtool && cd target/promtool && apt-get download -qq prometheus \
                      && dpkg -x prometheus_*.deb . && rm prometheus_*.deb usr/bin/prometheus";
        if let Err(error) = step("sh", &["-c", unpack]) {
            say(&format!("no promtool ({error}): tests that need it do not run"))?;
        }
    }
    if has("npm") && !has(crate::explorer::NAME) {
        install_package(crate::explorer::NAME, crate::explorer::NAME)?;
    }
    if has("npm") {
        say("installing the JavaScript client by npm into tests/js")?;
        if let Err(error) = crate::clients::install_javascript() {
            say(&format!("no JavaScript client ({error}): tests that need it do not run"))?;
        }
    }
    if !Path::new(PYTHON).exists() {
        say("installing the Python client by pip into target/clients")?;
        let installed = step("python3", &["-m", "venv", "target/clients"]).and_then(|()| {
            let package = format!("kubernetes=={PYTHON_CLIENT}");
            step(PYTHON, &["-m", "pip", "install", "-q", "--disable-pip-version-check", &package])
        });
        if let Err(error) = installed {
            say(&format!("no Python client ({error}): tests that need it do not run"))?;
        }
    }
    if !has("cargo-nextest") {
        // Not optimised, it is there minutes earlier, and starts tests as fast.
        say("installing cargo-nextest")?;
        let installed =
            step("cargo", &["install", "--debug", "--locked", "--quiet", "cargo-nextest"]);
        if installed.is_err() {
            report.not_run.push("cargo-nextest; the tests ran with cargo test".to_owned());
        }
    }
    Ok(())
}

/// Installs a program from a Debian package. A failure is only printed: tests that need it do not
/// run.
fn install_package(program: &str, package: &str) -> Result<()> {
    say(&format!("installing {program} from Debian's package {package}"))?;
    let installed = step("apt-get", &["update", "-qq"])
        .and_then(|()| step("apt-get", &["install", "-y", "-qq", package]));
    if let Err(error) = installed {
        say(&format!("no {program} ({error}): tests that need it do not run"))?;
    }
    Ok(())
}

/// Checks the dependencies with cargo-deny by the rules of `deny.toml`.
fn dependencies(report: &mut Report) -> Result<()> {
    if !has("cargo-deny") {
        say("installing cargo-deny")?;
        let installed = step("cargo", &["install", "--debug", "--locked", "--quiet", "cargo-deny"]);
        if installed.is_err() {
            report.not_run.push("check of dependencies (needs cargo-deny)".to_owned());
            return Ok(());
        }
    }
    say("dependencies")?;
    step("cargo", &["deny", "check", "bans", "licenses", "sources"])?;
    if step("cargo", &["deny", "fetch", "db"]).is_ok() {
        return step("cargo", &["deny", "check", "advisories"]);
    }
    report.not_run.push("check for advisories (needs the network for their database)".to_owned());
    Ok(())
}

/// Checks that the static program serves in an empty root, which only root can enter.
fn static_program(report: &mut Report) -> Result<()> {
    let is_root = commands::output(Command::new("id").arg("-u"))?.trim() == "0";
    if is_root {
        say("static program")?;
        return crate::package::run(&["--check-static".to_owned()]);
    }
    if is_required(STATIC_PROGRAM) {
        bail!("the check of the static program needs root, and KEELSON_REQUIRE names it");
    }
    report.not_run.push("static program in an empty root (needs root)".to_owned());
    Ok(())
}

/// Returns whether `KEELSON_REQUIRE` says that something must not be missing: by its name, or by
/// `all`.
pub fn is_required(name: &str) -> bool {
    is_named(name) || is_named("all")
}

/// Returns whether `KEELSON_REQUIRE` has this word.
pub fn is_named(name: &str) -> bool {
    let required = std::env::var("KEELSON_REQUIRE").unwrap_or_default();
    required.split(',').map(str::trim).any(|word| word == name)
}

/// Returns whether a program can be run.
pub fn has(program: &str) -> bool {
    let quiet = Command::new(program)
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .status();
    quiet.is_ok()
}

/// Says what is done next, and how long everything before it took.
fn say(text: &str) -> Result<()> {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let seconds = START.elapsed().as_secs();
    writeln!(std::io::stdout(), "== {:02}:{:02} {text}", seconds / 60, seconds % 60)
        .context("write to standard output")
}

fn step(program: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args);
    run_step(command)
}

fn run_step(mut command: Command) -> Result<()> {
    let not_run: PathBuf = std::env::current_dir()?.join(NOT_RUN);
    command.env("KEELSON_FUZZ_SECONDS", FUZZ_SECONDS).env("KEELSON_NOT_RUN", not_run);
    commands::run(command.stdin(Stdio::null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_junit_file_has_the_number_of_tests() {
        let text = "<?xml version=\"1.0\"?>\n<testsuites name=\"nextest-run\" tests=\"12\" \
                    failures=\"2\" errors=\"1\" uuid=\"u\">\n<testsuite tests=\"9\"/>";
        assert_eq!(counts(text), Some((12, 3)));
        assert_eq!(counts("<testsuites"), None);
    }
}
