//! A server with its data in etcd: the agreed limits, line by line, and their measurement.

use crate::bodies::{config_map, padded, pod};
use crate::budget::{FRAME_BYTES, LISTS, MANY, NO_PROGRAM, POD_BYTES, lists};
use crate::client::{ApiRequest, Client, JSON};
use crate::drive::{FILL_TIME_MAX, Load, drive, each, fill};
use crate::process::Processes;
use crate::report::{Kind, Report};
use crate::server::{KillOnDrop, free_ports};
use crate::watches::{FanOutPlan, Measure, fan_out, numbered_config_map};
use crate::{Bench, Run};
use anyhow::{Context, Result, ensure};
use http::Method;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// The prefix of each line.
const NAME: &str = "on etcd";
/// Numbers of objects at which memory is measured.
const OBJECTS_FIRST: usize = 24_000;
const OBJECTS_TOTAL: usize = 100_000;
/// Updates during which memory is measured.
const CHANGES: usize = 100_000;
const PODS: usize = 10_000;
const WATCHERS: usize = 200;
/// Limits of resident memory: per byte of the stored objects, and in addition in MB.
const MEMORY_PER_BYTE_MAX: f64 = 1.25;
const MEMORY_EXTRA_MAX_MB: f64 = 40.0;
pub const NO_ETCD: &str = "not measured: there is no such etcd program (--etcd)";

/// Measures all lines. Each part has an etcd and a server of its own.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    if run.spawn.is_none() {
        return not_measured(report, NO_PROGRAM);
    }
    for part in [Part::Objects, Part::Pods, Part::Watches] {
        let Some(EtcdServer { bench, etcd: _etcd }) = EtcdServer::open(run).await? else {
            return not_measured(report, NO_ETCD);
        };
        let mut lines = WatchLines { run, report };
        let measured = match part {
            Part::Objects => lines.objects(&bench).await,
            Part::Pods => lines.pods(&bench).await,
            Part::Watches => lines.watches(&bench).await,
        };
        measured.with_context(|| format!("{NAME}: {part:?}"))?;
        bench.close().await?;
    }
    Ok(())
}

/// The parts of the measurement.
#[derive(Clone, Copy, Debug)]
enum Part {
    Objects,
    Pods,
    Watches,
}

/// Reports a single line with the reason.
fn not_measured(report: &mut Report, why: &str) -> Result<()> {
    let kind = Kind::Budget { budget: None, note: why.to_owned() };
    report.push(NAME, NAME, "", None, kind);
    Ok(())
}

/// An empty etcd, and a server that uses it.
pub struct EtcdServer {
    pub bench: Bench,
    pub etcd: Etcd,
}

impl EtcdServer {
    /// Starts both; `None` when the etcd program does not exist.
    pub async fn open(run: &Arc<Run>) -> Result<Option<EtcdServer>> {
        let Some(etcd) = Etcd::start(&run.etcd)? else { return Ok(None) };
        let spawn_args = format!("{} --etcd-servers {}", run.spawn_args, etcd.url);
        // The server waits for etcd.
        let bench = Bench::open(&Arc::new(Run { spawn_args, ..(**run).clone() })).await?;
        Ok(Some(EtcdServer { bench, etcd }))
    }
}

/// An etcd cluster of one member, with default flags. It is killed on drop.
pub struct Etcd {
    url: String,
    _running: KillOnDrop,
    _dir: TempDir,
}

impl Etcd {
    fn start(program: &Path) -> Result<Option<Etcd>> {
        let dir = TempDir::new()?;
        let [url, peers] = free_ports()?.map(|port| format!("http://127.0.0.1:{port}"));
        let started = Command::new(program)
            .args(["--name", "bench", "--log-level", "error", "--data-dir"])
            .arg(dir.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("bench={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Ok(Some(Etcd { url, _running: KillOnDrop(child), _dir: dir })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("--etcd: {}", program.display())),
        }
    }
}

struct WatchLines<'a> {
    run: &'a Run,
    report: &'a mut Report,
}

impl WatchLines<'_> {
    /// Adds a line with its limit, which applies to the full scale only.
    fn set(&mut self, what: &str, unit: &str, value: f64, budget: f64) {
        let budget = Some(budget).filter(|_| self.run.scale == 1.0);
        let kind = Kind::Budget { budget, note: String::new() };
        self.report.push(NAME, &format!("{NAME}: {what}"), unit, Some(value), kind);
    }

    /// Adds a line for a load, and the details of the load.
    fn set_load(&mut self, what: &str, load: &Load, budget: f64) {
        self.set(what, "/s", load.rate(), budget);
        self.report.add_load(&format!("{NAME}, {what}"), load);
    }

    /// Measures creates and updates of ConfigMaps, and the memory after them.
    async fn objects(&mut self, bench: &Bench) -> Result<()> {
        tokio::time::sleep(bench.settle_time()).await;
        self.set("resident memory, idle", "MB", resident(bench)?, MEMORY_EXTRA_MAX_MB);
        let few = self.run.scaled(OBJECTS_FIRST);
        let more = self.run.scaled(OBJECTS_TOTAL);
        let load = creates(bench, 0, few).await?;
        let what = "create ConfigMap 1 KB, 64 connections (reference 1,260/s)";
        self.set_load(what, &load, 3_780.0);
        self.memory(bench, "24,000 creates of 1 KB").await?;
        let load = creates(bench, few, more.saturating_sub(few)).await?;
        self.report.add_errors(&format!("{NAME}, more creates"), &load.errors);
        self.memory(bench, "100,000 creates of 1 KB").await?;
        bench.sample(Processes::reset_peak)?;
        let load = changes(bench, more, self.run.scaled(CHANGES)).await?;
        self.report.add_load(&format!("{NAME}, update"), &load);
        let peak = bench.sample(Processes::peak)?.unwrap_or(f64::NAN);
        self.report.add(NAME, "highest resident memory during 100,000 updates", "MB", peak);
        self.memory(bench, "100,000 updates of 1 KB").await
    }

    /// Adds the resident memory in excess of the limit for the stored objects.
    async fn memory(&mut self, bench: &Bench, after: &str) -> Result<()> {
        tokio::time::sleep(bench.settle_time()).await;
        let resident = resident(bench)?;
        let (length, _, load) = lists(bench, &bench.config_maps(), 1, 1).await?;
        ensure!(load.errors.total() == 0, "the objects are not listed");
        let data = length as f64 / 1e6;
        self.report.add(NAME, &format!("objects after {after}"), "MB", data);
        self.report.add(NAME, &format!("resident memory after {after}"), "MB", resident);
        let what = format!("resident memory less 1.25 times the objects, after {after}");
        self.set(&what, "MB", resident - data * MEMORY_PER_BYTE_MAX, MEMORY_EXTRA_MAX_MB);
        Ok(())
    }

    /// Measures gets and lists of Pods.
    async fn pods(&mut self, bench: &Bench) -> Result<()> {
        let pods = bench.pods();
        let objects = self.run.scaled(PODS);
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &pods, POD_BYTES, |padding| pod(1, padding)).await?;
        let path = pods.clone();
        let make = move |number| ApiRequest::post(&path, body.fill(&object(number), 0));
        ensure!(
            fill(bench, objects, MANY, FILL_TIME_MAX, make).await?,
            "no {objects} pods in {FILL_TIME_MAX:?}"
        );
        let path = pods.clone();
        let get = move |worker: usize, number: u64| {
            let number = (number as usize * MANY + worker) % objects;
            Some(ApiRequest::get(format!("{path}/{}", object(number))))
        };
        let load = drive(bench, MANY, bench.duration(), move |w, n, _| get(w, n)).await?;
        self.set_load("get Pod, 64 connections (reference 2,500/s)", &load, 25_000.0);
        for (how, query) in [("consistent", ""), ("resourceVersion=0", "?resourceVersion=0")] {
            let (_, _, load) = lists(bench, &format!("{pods}{query}"), 1, LISTS).await?;
            let what = format!("list 10,000 Pods whole, {how}, p50 (reference 500-800 ms)");
            self.set(&what, "ms", load.latency.quantile(0.5), 80.0);
            self.report.add_errors(&format!("{NAME}, {what}"), &load.errors);
        }
        Ok(())
    }

    /// Measures the fan-out of events to many watchers.
    async fn watches(&mut self, bench: &Bench) -> Result<()> {
        let mut client = Client::connect(&bench.target).await?;
        let size = 1_000 - FRAME_BYTES;
        let body = padded(&mut client, &bench.config_maps(), size, numbered_config_map).await?;
        let watchers = self.run.scaled(WATCHERS);
        let duration = bench.duration();
        let plan =
            FanOutPlan { watchers, writers: MANY, pace: None, measure: Measure::Count, duration };
        let result = fan_out(bench, body, plan).await?;
        let what = "watch fan-out, 200 watchers, 1 KB events (reference 41,000-54,000/s)";
        self.set(what, "/s", result.rate(), 410_000.0);
        let title = format!("{NAME}, watch fan-out");
        self.report.add(&title, "writes", "/s", result.writes.rate());
        for (what, cost) in result.costs() {
            if let Some(cost) = cost {
                self.report.add(&title, what, "us", cost);
            }
        }
        self.report.add_errors(&title, &result.missing());
        Ok(())
    }
}

fn object(number: usize) -> String {
    format!("on-etcd-{number}")
}

/// Returns the resident memory of the server, in MB.
pub fn resident(bench: &Bench) -> Result<f64> {
    let memory = bench.sample(Processes::memory)?;
    Ok(memory.context("the server's process is not known")?.rss)
}

/// Creates `count` objects, numbered from `first`.
async fn creates(bench: &Bench, first: usize, count: usize) -> Result<Load> {
    let path = bench.config_maps();
    let body = config_map(1024);
    let make = move |number| ApiRequest::post(&path, body.fill(&object(first + number), 0));
    each(bench, count, MANY, FILL_TIME_MAX, make).await
}

/// Updates objects one after the other.
async fn changes(bench: &Bench, objects: usize, count: usize) -> Result<Load> {
    let path = bench.config_maps();
    let body = config_map(1024);
    each(bench, count, MANY, FILL_TIME_MAX, move |number| {
        let name = object(number % objects);
        // Turn 0 is the created object: writing it again would be no change.
        let turn = 1 + (number / objects) as u64;
        ApiRequest::new(Method::PUT, format!("{path}/{name}"), JSON, body.fill(&name, turn))
    })
    .await
}
