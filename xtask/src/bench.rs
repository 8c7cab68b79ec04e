//! `cargo xtask bench` and `cargo xtask soak`: build the server and the load generator, measure empty
//! servers, and write docs/perf.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const JSON: &str = "docs/perf/bench.json";
const PAGE: &str = "docs/perf/bench.md";
const SOAK_PAGE: &str = "docs/perf/soak.md";
/// How long a soak lasts.
const SOAK_SECONDS: &str = "1200";

/// What stands above the tables.
const HEAD: &str = "\
# Figures of the whole server

Measured from outside, over TLS and HTTP/1.1, with `cargo xtask bench` (server and load generator on the same
machine, which they share with whatever else runs there, so that ratios are worth more than single figures). What a
profile does: `cargo run --release -p keelson-bench -- run --help`; the files are `crates/bench/src/*.rs`. A second
column takes what was measured of another server: `cargo xtask bench --compare FILE.json`.

Times are wall-clock times as the client sees them, MB and kB are powers of ten. `ready` is the time from the start of
the process to the first 200 of `/readyz`, on an empty folder, keys and certificates made anew; the start with objects
follows an orderly end. `RSS` and `PSS` are those after two idle seconds; extra memory is the peak of the resident memory
while lists are read, less what was resident before. Server CPU is the time that the server's threads had on a core, and
load CPU that of the load generator, which the server could not have; both are for each request. Latencies of watches go
from before the write is sent to after its event is read; in a fan-out, writers write as fast as the watchers hear of
it. Both programs hold 1,000 connections at once; a limit of 1,024 open files (`ulimit -n`) is not enough for that.

";
const SOAK_HEAD: &str = "\
# Twenty minutes of a small cluster

Written by `cargo xtask soak`: nodes renew leases, pods come and go, controllers watch and list, while the data that is
there at once stays the same. In the end a burst comes over three times the connections that keep the server busy. The
run fails when a request of the steady load fails, when memory grows by more than 5 % after the first third, when the
99th percentile (the median of its minutes) is in the last third more than twice what it was in the first, or when it is
not back at twice its level a second after the burst.

";

/// Measures all profiles, and writes the page.
pub fn run(args: &[String]) -> Result<()> {
    let compare = match args {
        [] => None,
        [flag, file] if flag == "--compare" => Some(file.as_str()),
        _ => bail!("cargo xtask bench [--compare FILE.json]"),
    };
    let programs = build()?;
    let mut all = measure(&programs, &["-o", "json"])?;
    let json = output(all.stderr(Stdio::inherit()))?;
    fs::create_dir_all("docs/perf")?;
    fs::write(JSON, json).context(JSON)?;
    let mut show = Command::new(&programs.bench);
    show.args(["show", JSON, "-o", "markdown"]);
    if let Some(file) = compare {
        show.args(["--compare", file]);
    }
    fs::write(PAGE, format!("{HEAD}{}", output(&mut show)?)).context(PAGE)
}

/// Runs the mixed load for long; the page is written even when a promise did not hold.
pub fn soak(args: &[String]) -> Result<()> {
    let seconds = match args {
        [] => SOAK_SECONDS,
        [flag, seconds] if flag == "--seconds" => seconds,
        _ => bail!("cargo xtask soak [--seconds N]"),
    };
    let programs = build()?;
    let mut soak = measure(&programs, &["soak", "-o", "markdown", "--seconds", seconds])?;
    let done = soak.stderr(Stdio::inherit()).output().context("keelson-bench")?;
    if !done.stdout.is_empty() {
        let page = String::from_utf8(done.stdout).context("text")?;
        fs::create_dir_all("docs/perf")?;
        fs::write(SOAK_PAGE, format!("{SOAK_HEAD}{page}")).context(SOAK_PAGE)?;
    }
    if !done.status.success() {
        bail!("the soak failed; what there is of it: {SOAK_PAGE}");
    }
    Ok(())
}

struct Programs {
    server: PathBuf,
    bench: PathBuf,
}

fn build() -> Result<Programs> {
    let packages = ["build", "--release", "-p", "keelson", "-p", "keelson-bench"];
    if !Command::new("cargo").args(packages).status()?.success() {
        bail!("the build failed");
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let programs = Path::new(&target).join("release");
    Ok(Programs { server: programs.join("keelson"), bench: programs.join("keelson-bench") })
}

/// The load generator, told what to start and of which commit and day it is.
fn measure(programs: &Programs, args: &[&str]) -> Result<Command> {
    let commit = output(Command::new("git").args(["rev-parse", "--short", "HEAD"]))?;
    let date = output(Command::new("date").arg("+%Y-%m-%d"))?;
    let note = format!("commit {}, {}", commit.trim(), date.trim());
    let mut command = Command::new(&programs.bench);
    command.arg("run").args(args).args(["--note", &note, "--spawn"]).arg(&programs.server);
    Ok(command)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("text")
}
