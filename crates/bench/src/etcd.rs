//! A server whose data is in etcd: what was agreed on for it, line by line, and what it takes.

use crate::bodies::{config_map, padded, pod};
use crate::budget::{FRAME_BYTES, LISTS, MANY, NO_PROGRAM, POD_BYTES, lists};
use crate::client::{Ask, Client, JSON};
use crate::drive::{FILL, Load, drive, each, fill};
use crate::process::Processes;
use crate::report::{Kind, Report};
use crate::server::{Ended, free_ports};
use crate::watches::{Plan, See, fan_out, numbered_map};
use crate::{Bench, Run};
use anyhow::{Context, Result, ensure};
use http::Method;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// What stands before each line.
const NAME: &str = "on etcd";
/// How many objects are there when memory is looked at.
const FEW: usize = 24_000;
const MORE: usize = 100_000;
/// Changes of objects, one after the other, while memory is looked at.
const CHANGES: usize = 100_000;
const PODS: usize = 10_000;
const WATCHERS: usize = 200;
/// What a server may take for each byte of the objects that are there, and beside them in MB.
const EACH_BYTE: f64 = 1.25;
const MEMORY: f64 = 40.0;
const NO_ETCD: &str = "not measured: there is no such etcd program (--etcd)";

/// Measures all lines, each part on an etcd and a server of its own.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    if run.spawn.is_none() {
        return not_measured(report, NO_PROGRAM);
    }
    for part in [Part::Objects, Part::Pods, Part::Watches] {
        let Some(Place { bench, _etcd }) = Place::open(run).await? else {
            return not_measured(report, NO_ETCD);
        };
        let mut lines = Lines { run, report };
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

/// What has an etcd of its own.
#[derive(Clone, Copy, Debug)]
enum Part {
    Objects,
    Pods,
    Watches,
}

/// One line that says why there are no others.
fn not_measured(report: &mut Report, why: &str) -> Result<()> {
    let kind = Kind::Budget { budget: None, note: why.to_owned() };
    report.push(NAME, NAME, "", None, kind);
    Ok(())
}

/// An etcd with nothing in it, and the server on it.
struct Place {
    bench: Bench,
    _etcd: Etcd,
}

impl Place {
    /// None: there is no etcd to start.
    async fn open(run: &Arc<Run>) -> Result<Option<Place>> {
        let Some(etcd) = Etcd::start(&run.etcd)? else { return Ok(None) };
        let spawn_args = format!("{} --etcd-servers {}", run.spawn_args, etcd.url);
        // The server waits for etcd.
        let bench = Bench::open(&Arc::new(Run { spawn_args, ..(**run).clone() })).await?;
        Ok(Some(Place { bench, _etcd: etcd }))
    }
}

/// A cluster of one member, as it is without further flags. It ends with this value.
struct Etcd {
    url: String,
    _running: Ended,
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
            Ok(child) => Ok(Some(Etcd { url, _running: Ended(child), _dir: dir })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("--etcd: {}", program.display())),
        }
    }
}

struct Lines<'a> {
    run: &'a Run,
    report: &'a mut Report,
}

impl Lines<'_> {
    /// A line with its budget, which a smaller store is not held against.
    fn set(&mut self, what: &str, unit: &str, value: f64, budget: f64) {
        let budget = Some(budget).filter(|_| self.run.scale == 1.0);
        let kind = Kind::Budget { budget, note: String::new() };
        self.report.push(NAME, &format!("{NAME}: {what}"), unit, Some(value), kind);
    }

    /// A line of a load, with all that is known of it below.
    fn set_load(&mut self, what: &str, load: &Load, budget: f64) {
        self.set(what, "/s", load.rate(), budget);
        self.report.add_load(&format!("{NAME}, {what}"), load);
    }

    /// ConfigMaps are created, and changed again and again.
    async fn objects(&mut self, bench: &Bench) -> Result<()> {
        tokio::time::sleep(bench.settle()).await;
        self.set("resident memory, idle", "MB", resident(bench)?, MEMORY);
        let (few, more) = (self.run.scaled(FEW), self.run.scaled(MORE));
        let load = creates(bench, 0, few).await?;
        let what = "create ConfigMap 1 KB, 64 connections (reference 1,260/s)";
        self.set_load(what, &load, 3_780.0);
        self.memory(bench, "24,000 creates of 1 KB").await?;
        let load = creates(bench, few, more.saturating_sub(few)).await?;
        self.report.add_errors(&format!("{NAME}, more creates"), &load.errors);
        self.memory(bench, "100,000 creates of 1 KB").await?;
        bench.seen(Processes::forget_peak)?;
        let load = changes(bench, more, self.run.scaled(CHANGES)).await?;
        self.report.add_load(&format!("{NAME}, update"), &load);
        let peak = bench.seen(Processes::peak)?.unwrap_or(f64::NAN);
        self.report.add(NAME, "highest resident memory during 100,000 updates", "MB", peak);
        self.memory(bench, "100,000 updates of 1 KB").await
    }

    /// What is resident beside what the objects that are there may take.
    async fn memory(&mut self, bench: &Bench, after: &str) -> Result<()> {
        tokio::time::sleep(bench.settle()).await;
        let resident = resident(bench)?;
        let (length, _, load) = lists(bench, &bench.maps(), 1, 1).await?;
        ensure!(load.errors.total() == 0, "the objects are not listed");
        let data = length as f64 / 1e6;
        self.report.add(NAME, &format!("objects after {after}"), "MB", data);
        self.report.add(NAME, &format!("resident memory after {after}"), "MB", resident);
        let what = format!("resident memory less 1.25 times the objects, after {after}");
        self.set(&what, "MB", resident - data * EACH_BYTE, MEMORY);
        Ok(())
    }

    /// Pods are read, one by one and all at once.
    async fn pods(&mut self, bench: &Bench) -> Result<()> {
        let (pods, objects) = (bench.pods(), self.run.scaled(PODS));
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &pods, POD_BYTES, |padding| pod(1, padding)).await?;
        let path = pods.clone();
        let make = move |number| Ask::post(&path, body.fill(&object(number), 0));
        ensure!(fill(bench, objects, MANY, FILL, make).await?, "no {objects} pods in {FILL:?}");
        let path = pods.clone();
        let get = move |worker: usize, number: u64| {
            let number = (number as usize * MANY + worker) % objects;
            Some(Ask::get(format!("{path}/{}", object(number))))
        };
        let load = drive(bench, MANY, bench.span(), move |w, n, _| get(w, n)).await?;
        self.set_load("get Pod, 64 connections (reference 2,500/s)", &load, 25_000.0);
        for (how, query) in [("consistent", ""), ("resourceVersion=0", "?resourceVersion=0")] {
            let (_, _, load) = lists(bench, &format!("{pods}{query}"), 1, LISTS).await?;
            let what = format!("list 10,000 Pods whole, {how}, p50 (reference 500-800 ms)");
            self.set(&what, "ms", load.latency.quantile(0.5), 80.0);
            self.report.add_errors(&format!("{NAME}, {what}"), &load.errors);
        }
        Ok(())
    }

    /// Changes are told to many watchers.
    async fn watches(&mut self, bench: &Bench) -> Result<()> {
        let mut client = Client::connect(&bench.target).await?;
        let size = 1_000 - FRAME_BYTES;
        let body = padded(&mut client, &bench.maps(), size, numbered_map).await?;
        let (watchers, span) = (self.run.scaled(WATCHERS), bench.span());
        let plan = Plan { watchers, writers: MANY, pace: None, see: See::Count, span };
        let heard = fan_out(bench, body, plan).await?;
        let what = "watch fan-out, 200 watchers, 1 KB events (reference 41,000-54,000/s)";
        self.set(what, "/s", heard.rate(), 410_000.0);
        let title = format!("{NAME}, watch fan-out");
        self.report.add(&title, "writes", "/s", heard.writes.rate());
        for (what, cost) in heard.costs() {
            if let Some(cost) = cost {
                self.report.add(&title, what, "us", cost);
            }
        }
        self.report.add_errors(&title, &heard.missing());
        Ok(())
    }
}

fn object(number: usize) -> String {
    format!("on-etcd-{number}")
}

fn resident(bench: &Bench) -> Result<f64> {
    let memory = bench.seen(Processes::memory)?;
    Ok(memory.context("the server's process is not known")?.rss)
}

/// Makes so many objects, numbered from `first` on.
async fn creates(bench: &Bench, first: usize, count: usize) -> Result<Load> {
    let (path, body) = (bench.maps(), config_map(1024));
    let make = move |number| Ask::post(&path, body.fill(&object(first + number), 0));
    each(bench, count, MANY, FILL, make).await
}

/// Changes objects one after the other.
async fn changes(bench: &Bench, objects: usize, count: usize) -> Result<Load> {
    let (path, body) = (bench.maps(), config_map(1024));
    each(bench, count, MANY, FILL, move |number| {
        let name = object(number % objects);
        // Not what the object was made with, which would be no change.
        let turn = 1 + (number / objects) as u64;
        Ask::new(Method::PUT, format!("{path}/{name}"), JSON, body.fill(&name, turn))
    })
    .await
}
