//! The budget: what was agreed on what a server may take, line by line, and what it takes.

use crate::bodies::{Template, config_map, lease, lease_patch, padded, pod};
use crate::client::{APPLY_PATCH, Ask, Client, MERGE_PATCH, STRATEGIC_PATCH};
use crate::definitions;
use crate::drive::{FILL, Load, clear, drive, fill};
use crate::process::Processes;
use crate::report::{Kind, Report};
use crate::start::{quantile, starts};
use crate::watches::{Heard, Plan, See, fan_out, idle, numbered_map};
use crate::{Bench, Run, accounts, webhooks};
use anyhow::{Context, Result};
use http::Method;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Connections of most lines, and of those whose requests are larger.
pub const MANY: usize = 64;
const SOME: usize = 16;
/// Times that a server is started for one line.
const STARTS: usize = 5;
/// Lists of one client, and of each of many.
pub const LISTS: u64 = 11;
const LISTS_EACH: u64 = 3;
/// Pods of the line that says what one takes up, and bytes of those that are listed or kept.
const STORED: usize = 100_000;
pub const POD_BYTES: usize = 3_700;
/// Definitions of custom resources that are made, their bytes, those whose first objects are waited for, and how often a
/// document is asked for.
const DEFINITIONS: usize = 1_000;
const CRD_BYTES: usize = 16_000;
const LARGE_CRD_BYTES: usize = 92_000;
const PROBES: usize = 200;
const DOCUMENTS: usize = 11;
/// What a watch event has around its object.
pub const FRAME_BYTES: usize = 28;

/// The lines of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Row {
    Ready,
    Idle,
    Restart,
    CreateOne,
    CreateMap,
    CreatePod,
    GetPod,
    PatchLease,
    PatchPod,
    Apply,
    Allocated,
    ListTime,
    ListMemory,
    ListsMemory,
    ListNone,
    FanOutSome,
    FanOutMany,
    Last,
    Watch,
    SharedWatch,
    Stored,
    CpuGet,
    CpuCreate,
    CpuPatch,
    CpuList,
    Account,
    Webhook,
    Crd,
    LargeCrd,
    CrdReady,
    CrdIndex,
    CrdDocument,
}

/// What each is called, its unit, and what it may be, for servers that share two cores with the load.
const ROWS: [(Row, &str, &str, Option<f64>); 32] = [
    (Row::Ready, "start to /readyz, empty store, certificates included", "ms", Some(50.0)),
    (Row::Idle, "resident memory, idle", "MB", Some(20.0)),
    (Row::Restart, "start with 100,000 objects of 5 KB", "ms", Some(1000.0)),
    (Row::CreateOne, "create ConfigMap 1 KB, 1 connection, p50", "ms", Some(0.5)),
    (Row::CreateMap, "create ConfigMap 1 KB, 64 connections", "/s", Some(10_000.0)),
    (Row::CreatePod, "create Pod (1.6 KB body), 64 connections", "/s", Some(6_000.0)),
    (Row::GetPod, "get Pod, 64 connections", "/s", Some(40_000.0)),
    (Row::PatchLease, "merge-patch a Lease, 64 connections", "/s", Some(12_000.0)),
    (Row::PatchPod, "strategic-merge patch of a 10 KB Pod, 16 connections", "/s", Some(4_000.0)),
    (Row::Apply, "server-side apply, small change, 16 connections", "/s", Some(4_000.0)),
    (Row::Allocated, "bytes allocated per PATCH / wire size", "x", Some(10.0)),
    (Row::ListTime, "list 10,000 Pods (37 MB of JSON), whole, p50", "ms", Some(80.0)),
    (Row::ListMemory, "extra memory of such a list", "MB", Some(1.0)),
    (Row::ListsMemory, "extra memory of 16 such lists at once", "MB", Some(8.0)),
    (Row::ListNone, "consistent list, selector matches none of 300,000, p50", "ms", Some(15.0)),
    (Row::FanOutSome, "watch fan-out, 200 watchers, 1 KB events", "/s", Some(300_000.0)),
    (Row::FanOutMany, "watch fan-out, 1,000 watchers, 1 KB events", "/s", Some(300_000.0)),
    (Row::Last, "commit to last of 1,000 watchers, 100 events/s, p99", "ms", Some(25.0)),
    (Row::Watch, "one idle watch, own connection", "kB", Some(24.0)),
    (Row::SharedWatch, "one idle watch, shared HTTP/2 connection", "kB", None),
    (Row::Stored, "memory per stored Pod of 100,000, over its JSON", "x", Some(1.25)),
    (Row::CpuGet, "server CPU per get of a Pod", "ms", Some(0.09)),
    (Row::CpuCreate, "server CPU per create of a Pod", "ms", Some(0.15)),
    (Row::CpuPatch, "server CPU per patch of a 10 KB Pod", "ms", Some(0.32)),
    (Row::CpuList, "server CPU per list of 10,000 Pods", "ms", Some(100.0)),
    (Row::Account, "get Pod, administrator's rate over a service account's", "x", Some(1.11)),
    (Row::Webhook, "server CPU per call of an admission webhook", "ms", Some(0.15)),
    // A quarter more than the JSON, and 40 kB.
    (Row::Crd, "memory per CRD of 16 KB, idle", "kB", Some(60.0)),
    (Row::LargeCrd, "memory per CRD of 92 KB, idle", "kB", Some(155.0)),
    (Row::CrdReady, "CRD created until its resource answers, beside 1,000, p99", "ms", Some(5.0)),
    (Row::CrdIndex, "index of OpenAPI v3, 1,000 CRDs, p50", "ms", Some(10.0)),
    (Row::CrdDocument, "OpenAPI v3 of one group version, 1,000 CRDs, p50", "ms", Some(10.0)),
];

/// Why there is no value.
const NO_PROCESS: &str = "not measured: the server's process is not known (--pid)";
pub const NO_PROGRAM: &str = "not measured: --spawn names no program to start";
const TOO_SLOW: &str = "not measured: the store took too long to be filled";
const ELSEWHERE: &str = "counted by `cargo run --release -p keelson --example allocations`";

/// What has been measured so far, of a store that may be smaller than it ought to be.
struct Sheet<'a> {
    run: &'a Arc<Run>,
    values: HashMap<Row, Result<f64, &'static str>>,
    report: &'a mut Report,
}

/// Measures all lines, each on a server that holds what the line says and no more.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let mut sheet = Sheet { run, values: HashMap::new(), report };
    sheet.values.insert(Row::Allocated, Err(ELSEWHERE));
    sheet.starts().await.context("starts")?;
    sheet.small_objects().await.context("small objects")?;
    sheet.patches().await.context("patches")?;
    sheet.users_and_webhooks().await.context("users and webhooks")?;
    sheet.lists().await.context("lists")?;
    sheet.stored().await.context("stored Pods")?;
    sheet.list_of_none().await.context("a list of nothing")?;
    sheet.idle_watches().await.context("idle watches")?;
    sheet.watches().await.context("watches")?;
    sheet.definitions().await.context("definitions")?;
    sheet.write();
    Ok(())
}

impl Sheet<'_> {
    fn set(&mut self, row: Row, value: f64) {
        self.values.insert(row, Ok(value));
    }

    /// A figure that only the server's process tells.
    fn set_known(&mut self, row: Row, value: Option<f64>) {
        self.values.insert(row, value.ok_or(NO_PROCESS));
    }

    /// A figure of a load whose errors are not to be overlooked.
    fn set_rate(&mut self, row: Row, load: &Load) {
        self.set(row, load.rate());
        self.report.add_errors(&format!("budget, {row:?}"), &load.errors);
    }

    /// What events cost, and those that did not come.
    fn add_heard(&mut self, row: Row, heard: &Heard) {
        let title = format!("budget, {row:?}");
        for (what, cost) in heard.costs() {
            if let Some(cost) = cost {
                self.report.add(&title, what, "us", cost);
            }
        }
        self.report.add_errors(&title, &heard.missing());
    }

    /// A number of objects or watchers.
    fn scaled(&self, count: usize) -> usize {
        self.run.scaled(count)
    }

    fn write(self) {
        for (row, what, unit, budget) in ROWS {
            // What a smaller store takes says nothing of the budget.
            let budget = budget.filter(|_| self.run.scale == 1.0);
            let (value, note) = match self.values.get(&row) {
                Some(Ok(value)) => (Some(*value), ""),
                Some(Err(note)) => (None, *note),
                None => (None, NO_PROCESS),
            };
            let kind = Kind::Budget { budget, note: note.to_owned() };
            self.report.push("budget", what, unit, value, kind);
        }
    }

    async fn starts(&mut self) -> Result<()> {
        let Some(program) = self.run.program() else {
            for row in [Row::Ready, Row::Idle, Row::Restart] {
                self.values.insert(row, Err(NO_PROGRAM));
            }
            return Ok(());
        };
        let all = starts(&program, self.run.starts.min(STARTS)).await?;
        self.set(Row::Ready, quantile(&all.ready, 0.5));
        self.set(Row::Idle, quantile(&all.rss, 0.5));
        let mut bench = Bench::open(self.run).await?;
        let (path, body) = (bench.maps(), config_map(5_000));
        let objects = self.scaled(100_000);
        let make = move |number| Ask::post(&path, body.fill(&format!("kept-{number}"), 0));
        let is_full = fill(&bench, objects, MANY, FILL, make).await?;
        let mut server = bench.server.take();
        let mut ready = vec![];
        for _ in 0..STARTS {
            let Some(running) = server.take() else { break };
            let again = running.restart().await?;
            ready.push(again.ready.as_secs_f64() * 1e3);
            server = Some(again);
        }
        let value = if is_full { Ok(quantile(&ready, 0.5)) } else { Err(TOO_SLOW) };
        self.values.insert(Row::Restart, value);
        Ok(())
    }

    async fn small_objects(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let span = bench.span();
        for (row, workers) in [(Row::CreateOne, 1), (Row::CreateMap, MANY)] {
            let load = creates(&bench, bench.maps(), workers, config_map(1024), span).await?;
            self.set_rate(row, &load);
            if row == Row::CreateOne {
                self.set(row, load.latency.quantile(0.5));
            }
        }
        let body = pod(1, 1600_usize.saturating_sub(pod(1, 0).fill(&object(10, 1000), 0).len()));
        let pods = bench.pods();
        let load = creates(&bench, pods.clone(), MANY, body, span).await?;
        self.set_rate(Row::CreatePod, &load);
        self.set_known(Row::CpuCreate, load.cpu_each());
        let made = load.done;
        let get = move |worker: usize, number: u64| {
            Ask::get(format!("{pods}/{}", object(worker, number % made[worker].max(1))))
        };
        let load = drive(&bench, MANY, span, move |w, n, _| Some(get(w, n))).await?;
        self.set_rate(Row::GetPod, &load);
        self.set_known(Row::CpuGet, load.cpu_each());
        let (leases, body, patch) = (bench.leases(), lease(), lease_patch());
        let load = patched(&bench, leases, MANY, MERGE_PATCH, body, patch).await?;
        self.set_rate(Row::PatchLease, &load);
        bench.close().await
    }

    async fn patches(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &bench.pods(), 10_000, |padding| pod(4, padding)).await?;
        let patch = Template::new(
            r#"{"metadata":{"annotations":{"turn":"{turn}"}},
            "spec":{"containers":[{"name":"c0","image":"registry.example.org/app:{turn}"}]}}"#,
        );
        let load = patched(&bench, bench.pods(), SOME, STRATEGIC_PATCH, body, patch).await?;
        self.set_rate(Row::PatchPod, &load);
        self.set_known(Row::CpuPatch, load.cpu_each());
        let patch = Template::new(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{name}"},
            "data":{"turn":"{turn}"}}"#,
        );
        let maps = bench.maps();
        let load = patched(&bench, maps, SOME, APPLY_PATCH, config_map(1024), patch).await?;
        self.set_rate(Row::Apply, &load);
        bench.close().await
    }

    async fn users_and_webhooks(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let (ratio, load) = accounts::rate(&bench, SOME).await?;
        self.set(Row::Account, ratio);
        self.report.add_errors("budget, Account", &load.errors);
        let (cost, load) = webhooks::cost(&bench, SOME).await?;
        self.set_known(Row::Webhook, cost);
        self.report.add_errors("budget, Webhook", &load.errors);
        bench.close().await
    }

    async fn lists(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let (pods, objects) = (bench.pods(), self.scaled(10_000));
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &pods, POD_BYTES, |padding| pod(1, padding)).await?;
        let path = pods.clone();
        let make = move |number| Ask::post(&path, body.fill(&format!("pod-{number}"), 0));
        let is_full = fill(&bench, objects, MANY, FILL, make).await?;
        anyhow::ensure!(is_full, "{objects} pods were not there after {FILL:?}");
        tokio::time::sleep(bench.settle()).await;
        let (length, more, load) = lists(&bench, &pods, 1, LISTS).await?;
        self.set(Row::ListTime, load.latency.quantile(0.5));
        self.report.add("budget, ListTime", "length", "MB", length as f64 / 1e6);
        self.set_known(Row::ListMemory, more);
        self.set_known(Row::CpuList, load.cpu_each());
        self.report.add_errors("budget, ListTime", &load.errors);
        let (_, more, load) = lists(&bench, &pods, 16, LISTS_EACH).await?;
        self.set_known(Row::ListsMemory, more);
        self.report.add_errors("budget, ListsMemory", &load.errors);
        bench.close().await
    }

    /// So many Pods that what the server takes up once, as soon as it is written to, is little of it.
    async fn stored(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let (pods, objects) = (bench.pods(), self.scaled(STORED));
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &pods, POD_BYTES, |padding| pod(1, padding)).await?;
        // What many connections take up when they first come is not what objects take up.
        let (maps, map) = (bench.maps(), config_map(1024));
        let make = move |number| Ask::post(&maps, map.fill(&format!("first-{number}"), 0));
        fill(&bench, MANY * 10, MANY, FILL, make).await?;
        clear(&bench, &bench.maps()).await?;
        tokio::time::sleep(bench.settle()).await;
        let before = bench.seen(Processes::memory)?;
        let path = pods.clone();
        let make = move |number| Ask::post(&path, body.fill(&format!("pod-{number}"), 0));
        if !fill(&bench, objects, MANY, FILL, make).await? {
            self.values.insert(Row::Stored, Err(TOO_SLOW));
            return bench.close().await;
        }
        tokio::time::sleep(bench.settle()).await;
        let growth = bench.seen(Processes::memory)?.zip(before);
        let growth = growth.map(|(after, before)| after.rss - before.rss);
        let (length, _, load) = lists(&bench, &pods, 1, 1).await?;
        self.set_known(Row::Stored, growth.map(|growth| growth * 1e6 / length as f64));
        self.report.add_errors("budget, Stored", &load.errors);
        bench.close().await
    }

    async fn list_of_none(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let (path, body, objects) = (bench.maps(), config_map(100), self.scaled(300_000));
        let make = move |number| Ask::post(&path, body.fill(&format!("none-{number}"), 0));
        if !fill(&bench, objects, MANY, FILL, make).await? {
            self.values.insert(Row::ListNone, Err(TOO_SLOW));
            return bench.close().await;
        }
        let path = format!("{}?labelSelector=turn%3Dnever", bench.maps());
        let load = drive(&bench, 1, bench.span(), move |_, _, _| Some(Ask::get(&path))).await?;
        self.set(Row::ListNone, load.latency.quantile(0.5));
        self.report.add_errors("budget, ListNone", &load.errors);
        bench.close().await
    }

    async fn definitions(&mut self) -> Result<()> {
        let count = self.scaled(DEFINITIONS);
        for (row, bytes) in [(Row::Crd, CRD_BYTES), (Row::LargeCrd, LARGE_CRD_BYTES)] {
            let bench = Bench::open(self.run).await?;
            let each = definitions::memory(&bench, bytes, count).await?;
            self.set_known(row, each);
            if row == Row::LargeCrd {
                self.beside_definitions(&bench).await?;
            }
            definitions::clear(&bench, count).await?;
            bench.close().await?;
        }
        Ok(())
    }

    /// What is asked of a server that has many.
    async fn beside_definitions(&mut self, bench: &Bench) -> Result<()> {
        let served = definitions::served(bench, self.scaled(PROBES).max(1)).await?;
        self.set(Row::CrdReady, quantile(&served, 0.99));
        for (what, share) in [("p50", 0.5), ("max", 1.0)] {
            self.report.add("budget, CrdReady", what, "ms", quantile(&served, share));
        }
        let document = definitions::document_path(bench);
        for (row, path) in [(Row::CrdIndex, "/openapi/v3"), (Row::CrdDocument, &document)] {
            let times = definitions::document_times(bench, path, DOCUMENTS).await?;
            self.set(row, quantile(&times, 0.5));
            self.report.add(&format!("budget, {row:?}"), "max", "ms", quantile(&times, 1.0));
        }
        Ok(())
    }

    async fn idle_watches(&mut self) -> Result<()> {
        for (row, http2) in [(Row::Watch, false), (Row::SharedWatch, true)] {
            let bench = Bench::open(self.run).await?;
            let each = idle(&bench.over(http2), self.scaled(1000)).await?;
            self.set_known(row, each);
            bench.close().await?;
        }
        Ok(())
    }

    async fn watches(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let mut client = Client::connect(&bench.target).await?;
        let size = 1_000 - FRAME_BYTES;
        let body = padded(&mut client, &bench.maps(), size, numbered_map).await?;
        let (some, many) = (self.scaled(200), self.scaled(1000));
        for (row, watchers) in [(Row::FanOutSome, some), (Row::FanOutMany, many)] {
            let (pace, see, span) = (None, See::Count, bench.span());
            let plan = Plan { watchers, writers: MANY, pace, see, span };
            let heard = fan_out(&bench, body.clone(), plan).await?;
            self.set(row, heard.rate());
            self.add_heard(row, &heard);
        }
        let (pace, see, span) = (Some(100), See::Time, bench.span());
        let plan = Plan { watchers: many, writers: 4, pace, see, span };
        let heard = fan_out(&bench, body, plan).await?;
        self.set(Row::Last, heard.last.quantile(0.99));
        for (what, part) in [("p50", 0.5), ("p90", 0.9), ("p99.9", 0.999)] {
            let what = format!("{what} to the last watcher");
            self.report.add("budget, Last", &what, "ms", heard.last.quantile(part));
        }
        let each = heard.each.quantile(0.5);
        self.report.add("budget, Last", "p50 to each watcher", "ms", each);
        self.add_heard(Row::Last, &heard);
        bench.close().await
    }
}

fn object(worker: usize, number: u64) -> String {
    format!("budget-{worker}-{number}")
}

/// Makes as many objects as there is time for.
async fn creates(
    bench: &Bench,
    path: String,
    workers: usize,
    body: Template,
    span: Duration,
) -> Result<Load> {
    // Names of one load are not those of another.
    let offset = if workers == 1 { MANY } else { 0 };
    let create = move |worker: usize, number| {
        Some(Ask::post(&path, body.fill(&object(worker + offset, number), number)))
    };
    drive(bench, workers, span, move |worker, number, _| create(worker, number)).await
}

/// Makes an object for each worker, and lets it patch that.
async fn patched(
    bench: &Bench,
    path: String,
    workers: usize,
    media: &'static str,
    body: Template,
    patch: Template,
) -> Result<Load> {
    let made = path.clone();
    let make = move |number| Ask::post(&made, body.fill(&object(number, 0), 0));
    fill(bench, workers, workers, FILL, make).await?;
    let query = if media == APPLY_PATCH { "?fieldManager=bench&force=true" } else { "" };
    drive(bench, workers, bench.span(), move |worker, number, _| {
        let name = object(worker, 0);
        let body = patch.fill(&name, number + 1);
        Some(Ask::new(Method::PATCH, format!("{path}/{name}{query}"), media, body))
    })
    .await
}

/// Lists a collection whole: how long it is, and how much more memory the server had at its peak than
/// before.
pub async fn lists(
    bench: &Bench,
    path: &str,
    workers: usize,
    each: u64,
) -> Result<(u64, Option<f64>, Load)> {
    bench.seen(Processes::forget_peak)?;
    let before = bench.seen(Processes::peak)?;
    let path = path.to_owned();
    let list = move |_, number, _: &[u8]| (number < each).then(|| Ask::get(&path));
    let load = drive(bench, workers, FILL, list).await?;
    let after = bench.seen(Processes::peak)?;
    let more = after.zip(before).map(|(after, before)| after - before);
    Ok((load.bytes / load.latency.total().max(1), more, load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_stands_once_in_the_table() {
        let rows: HashSet<Row> = ROWS.iter().map(|(row, ..)| *row).collect();
        assert_eq!(rows.len(), ROWS.len());
        // The last variant's number tells how many there are.
        assert_eq!(Row::CrdDocument as usize + 1, ROWS.len());
        let whats: HashSet<&str> = ROWS.iter().map(|(_, what, ..)| *what).collect();
        assert_eq!(whats.len(), ROWS.len());
    }
}
