//! `cargo xtask bench`: builds the server and the load generator, runs all profiles against an empty
//! server, and writes docs/perf.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

const JSON: &str = "docs/perf/bench.json";
const PAGE: &str = "docs/perf/bench.md";
/// How long each profile lasts; all of it is then done in about two minutes.
const SECONDS: &str = "5";

/// What stands above the table.
const HEAD: &str = "\
# Figures of the whole server

Measured from outside, over TLS and HTTP/1.1, with `cargo xtask bench` (server and load generator on the same
machine, which they share with whatever else runs there, so that ratios are worth more than single figures). What a
profile does: `cargo run --release -p keelson-bench -- run --help`; the files are `crates/bench/src/*.rs`. A second
column takes what was measured of another server: `cargo xtask bench --compare FILE.json`.

`ready` is the time from the start of the process to the first 200 of `/readyz`, on an empty folder, keys and
certificates made anew. `RSS` and `PSS` are those after two idle seconds. Latencies of `watch` go from before the
write is sent to after its event is read.

";

/// Runs the profiles and writes the page.
pub fn run(args: &[String]) -> Result<()> {
    let compare = match args {
        [] => None,
        [flag, file] if flag == "--compare" => Some(file.as_str()),
        _ => bail!("cargo xtask bench [--compare FILE.json]"),
    };
    let packages = ["build", "--release", "-p", "keelson", "-p", "keelson-bench"];
    if !Command::new("cargo").args(packages).status()?.success() {
        bail!("the build failed");
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let programs = Path::new(&target).join("release");
    let (server, bench) = (programs.join("keelson"), programs.join("keelson-bench"));
    let commit = output(Command::new("git").args(["rev-parse", "--short", "HEAD"]))?;
    let date = output(Command::new("date").arg("+%Y-%m-%d"))?;
    let note = format!("commit {}, {}", commit.trim(), date.trim());
    let json = output(
        Command::new(&bench)
            .args(["run", "-o", "json", "--seconds", SECONDS, "--note", &note, "--spawn"])
            .arg(&server),
    )?;
    fs::create_dir_all("docs/perf")?;
    fs::write(JSON, json).context(JSON)?;
    let mut show = Command::new(&bench);
    show.args(["show", JSON, "-o", "markdown"]);
    if let Some(file) = compare {
        show.args(["--compare", file]);
    }
    fs::write(PAGE, format!("{HEAD}{}", output(&mut show)?)).context(PAGE)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("text")
}
