//! `cargo xtask bench` and `cargo xtask soak`: build the server and the load generator, measure
//! empty servers, and write the pages in docs/perf.

use crate::commands;
use crate::package;
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const JSON: &str = "docs/perf/bench.json";
const PAGE: &str = "docs/perf/bench.md";
/// The figures of kube-apiserver, and the picture of both.
const BESIDE_JSON: &str = "docs/perf/kube-apiserver.json";
const PICTURE: &str = "docs/images/figures.svg";
const SOAK_PAGE: &str = "docs/perf/soak.md";
/// How long a soak lasts.
const SOAK_SECONDS: &str = "1200";

/// The text of the page before the tables.
const HEAD: &str = "\
# Figures of the whole server

Measured over TLS and HTTP/1.1 by `cargo xtask bench`. The server and the load generator share one machine with
whatever else runs there, so compare ratios rather than single figures. `cargo run --profile dist -p keelson-bench -- run
--help` describes the profiles; the code is in `crates/bench/src/`. `cargo xtask bench --compare FILE.json` adds a
column with the results of another server.

Times are wall-clock times at the client; MB and kB are powers of ten. `ready` is the time from the start of the process
to the first 200 of `/readyz`; the data folder is empty, so keys and certificates are created. The start with objects
follows an orderly shutdown. `RSS` and `PSS` are measured after two idle seconds. Extra memory is the peak of the
resident memory while lists are read, minus the resident memory before. Server CPU and load CPU are the CPU times of the
server and of the load generator for each request. The latency of a watch is the time from before the write is sent
until its event has been read; in a fan-out, writers write as fast as the watchers receive events. Both programs hold
1,000 connections at once, so the limit of open files (`ulimit -n`) must be above 1,024.

";
const SOAK_HEAD: &str = "\
# Twenty minutes of a small cluster

Written by `cargo xtask soak`. Nodes renew leases, pods are created and deleted, and controllers watch and list, while
the number of objects stays the same. A burst follows at the end, over three times as many connections as keep the
server busy. The run fails in these cases:

- a request of the steady load fails
- memory grows by more than 5 % after the first third
- the 99th percentile (the median of its minutes) in the last third is more than twice that in the first third
- one second after the burst, the 99th percentile is more than twice its level before the burst

";

/// Measures all profiles and writes docs/perf/bench.json and bench.md.
pub fn run(args: &[String]) -> Result<()> {
    let compare = match args {
        [] => None,
        [flag, file] if flag == "--compare" => Some(file.as_str()),
        _ => bail!("cargo xtask bench [--compare FILE.json]"),
    };
    let programs = build()?;
    let mut bench = bench_run(&programs, &["-o", "json"])?;
    let json = commands::output(bench.stderr(Stdio::inherit()))?;
    fs::create_dir_all("docs/perf")?;
    fs::write(JSON, json).context(JSON)?;
    let mut show = Command::new(&programs.bench);
    show.args(["show", JSON, "-o", "markdown"]);
    if let Some(file) = compare {
        show.args(["--compare", file]);
    }
    fs::write(PAGE, format!("{HEAD}{}", commands::output(&mut show)?)).context(PAGE)?;
    beside(&programs)
}

/// Measures a stock kube-apiserver on a stock etcd, if `cargo xtask peers` has built them, and
/// draws the picture of both. Without them the picture has kube-apiserver's last figures.
fn beside(programs: &Programs) -> Result<()> {
    let peers = Path::new("target/peers");
    let server = peers.join("kube-apiserver");
    let etcd = peers.join("etcd");
    if server.exists() && etcd.exists() {
        let dir = std::env::temp_dir().join(format!("keelson-bench-etcd-{}", std::process::id()));
        let listen = |port: u16| format!("http://127.0.0.1:{port}");
        let [clients, members] = free_ports()?;
        let clients = listen(clients);
        let members = listen(members);
        let mut etcd = Command::new(&etcd);
        etcd.arg("--data-dir").arg(&dir).args([
            "--log-level=error",
            "--listen-client-urls",
            &clients,
        ]);
        etcd.args(["--advertise-client-urls", &clients, "--listen-peer-urls", &members]);
        etcd.args(["--initial-advertise-peer-urls", &members]);
        etcd.args(["--initial-cluster", &format!("default={members}")]);
        let mut etcd = etcd.stdout(Stdio::null()).spawn().context("etcd")?;
        let measured = measure_reference(programs, &server, &clients);
        // Whatever the measurement says, etcd is stopped; it may have ended by itself.
        let _ = etcd.kill();
        let _ = etcd.wait();
        fs::remove_dir_all(&dir).context("the folder of etcd")?;
        fs::write(BESIDE_JSON, measured?).context(BESIDE_JSON)?;
    }
    let mut chart = Command::new(&programs.bench);
    let picture = commands::output(chart.args(["chart", JSON, BESIDE_JSON]))?;
    fs::write(PICTURE, picture).context(PICTURE)
}

/// Returns the figures of kube-apiserver as JSON.
fn measure_reference(programs: &Programs, server: &Path, etcd_url: &str) -> Result<String> {
    let args = format!(
        "--etcd-servers {etcd_url} --secure-port {{port}} --cert-dir {{dir}}/certs \
         --token-auth-file {{tokens}} --authorization-mode RBAC \
         --service-account-issuer https://kubernetes.default.svc \
         --service-account-key-file {{public-key}} --service-account-signing-key-file {{key}} \
         --service-cluster-ip-range 10.0.0.0/24"
    );
    let mut bench = Command::new(&programs.bench);
    bench.args(["run", "start", "create", "get", "patch", "apply", "list", "watch", "-o", "json"]);
    bench.args(["--starts", "3", "--note", "kube-apiserver", "--spawn"]).arg(server);
    commands::output(bench.args(["--spawn-args", &args]).stderr(Stdio::inherit()))
}

/// Returns two ports that nobody listens on.
fn free_ports() -> Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let [one, other] = &listeners;
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

/// Runs the soak and writes docs/perf/soak.md, also when the soak fails.
pub fn soak(args: &[String]) -> Result<()> {
    let seconds = match args {
        [] => SOAK_SECONDS,
        [flag, seconds] if flag == "--seconds" => seconds,
        _ => bail!("cargo xtask soak [--seconds N]"),
    };
    let programs = build()?;
    let mut soak = bench_run(&programs, &["soak", "-o", "markdown", "--seconds", seconds])?;
    let output = soak.stderr(Stdio::inherit()).output().context("keelson-bench")?;
    if !output.stdout.is_empty() {
        let page = String::from_utf8(output.stdout).context("output of keelson-bench")?;
        fs::create_dir_all("docs/perf")?;
        fs::write(SOAK_PAGE, format!("{SOAK_HEAD}{page}")).context(SOAK_PAGE)?;
    }
    if !output.status.success() {
        bail!("the soak failed; its results so far are in {SOAK_PAGE}");
    }
    Ok(())
}

/// Paths of the built programs.
struct Programs {
    server: PathBuf,
    bench: PathBuf,
}

fn build() -> Result<Programs> {
    // First the program alone, as for packages: together with the load generator it would be built
    // with features that only that selects, and with symbols that the order of its functions does
    // not name.
    let server = package::build()?;
    let args = ["build", "--profile", "dist", "-p", "keelson-bench"];
    commands::run(Command::new("cargo").args(args))?;
    Ok(Programs { bench: server.with_file_name("keelson-bench"), server })
}

/// Returns the command `keelson-bench run`, which starts the server and notes commit and date in
/// its results.
fn bench_run(programs: &Programs, args: &[&str]) -> Result<Command> {
    let commit = commands::output(Command::new("git").args(["rev-parse", "--short", "HEAD"]))?;
    let date = commands::output(Command::new("date").arg("+%Y-%m-%d"))?;
    let note = format!("commit {}, {}", commit.trim(), date.trim());
    let mut command = Command::new(&programs.bench);
    command.arg("run").args(args).args(["--note", &note, "--spawn"]).arg(&programs.server);
    Ok(command)
}
