//! The budget: the agreed limits of latency, throughput, CPU and memory, row by row, and their
//! measurement.

use crate::bodies::{Template, config_map, lease, lease_patch, padded, pod};
use crate::client::{APPLY_PATCH, ApiRequest, Client, MERGE_PATCH, STRATEGIC_PATCH};
use crate::definitions;
use crate::drive::{FILL_TIME_MAX, Load, clear, drive, fill};
use crate::far;
use crate::features::{self, Feature, Provider};
use crate::process::Processes;
use crate::report::{Kind, Report};
use crate::start::{quantile, starts};
use crate::watches::{FanOut, FanOutPlan, Measure, fan_out, idle, numbered_config_map};
use crate::{Bench, Run, accounts, simulation, webhooks};
use anyhow::{Context, Result};
use clap::ValueEnum;
use http::Method;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Connections of most rows.
pub const MANY: usize = 64;
/// Connections of rows with large requests.
const SOME: usize = 16;
/// Starts of the server for one row.
const STARTS: usize = 5;
/// Lists by a single client.
pub const LISTS: u64 = 11;
/// Lists by each of several clients.
const LISTS_EACH: u64 = 3;
/// Pods of [`Row::Stored`].
const STORED: usize = 100_000;
/// Size of listed and stored Pods.
pub const POD_BYTES: usize = 3_700;
/// CustomResourceDefinitions of the CRD rows, and their sizes.
const DEFINITIONS: usize = 1_000;
const CRD_BYTES: usize = 16_000;
const LARGE_CRD_BYTES: usize = 92_000;
/// Definitions of [`Row::CrdReady`].
const PROBES: usize = 200;
/// Requests for each OpenAPI document.
const DOCUMENTS: usize = 11;
/// Bytes of a watch event around its object.
pub const FRAME_BYTES: usize = 28;

/// The rows of the budget.
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
    Fairness,
    Audit,
    AuditObjects,
    Tracing,
    Watched,
    AesGcm,
    Secretbox,
    Kms,
    EncryptedStart,
    Flood,
    Crd,
    LargeCrd,
    CrdReady,
    CrdIndex,
    CrdDocument,
    SocketTrips,
    SpdyTrips,
    Stdin,
    StdinCpu,
    Port,
    PortCpu,
    PassedThrough,
    Translated,
    BehindGet,
    BehindCpu,
    BehindAdded,
    Available,
    AllAvailable,
    IdleNodesCpu,
    IdleNodesMemory,
    LargeMemory,
    LargeTime,
}

/// What a request may take when a rate may be 5, or 15, percent less.
const RATE_LESS_5: f64 = 1.0 / 0.95;
const RATE_LESS_15: f64 = 1.0 / 0.85;

/// The title, unit and limit of each row. The limits apply to a server that shares two cores with
/// the load generator.
const ROWS: [(Row, &str, &str, Option<f64>); 59] = [
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
    (Row::Fairness, "get, CPU with fairness over without", "x", Some(1.02)),
    (Row::Audit, "create, time with audit of metadata over without", "x", Some(RATE_LESS_5)),
    (Row::AuditObjects, "create, time with audit of objects over without", "x", Some(RATE_LESS_15)),
    (Row::Tracing, "get and create, CPU with 1 % traced over without", "x", Some(1.02)),
    (Row::Watched, "get and create, time with fairness, audit, tracing", "x", Some(RATE_LESS_5)),
    (
        Row::AesGcm,
        "create, time with Pods encrypted by aesgcm over in clear",
        "x",
        Some(RATE_LESS_5),
    ),
    (
        Row::Secretbox,
        "create, time with Pods encrypted by secretbox over in clear",
        "x",
        Some(RATE_LESS_5),
    ),
    (
        Row::Kms,
        "create, time with Pods encrypted by a KMS plug-in over in clear",
        "x",
        Some(RATE_LESS_5),
    ),
    (Row::EncryptedStart, "start with 100,000 encrypted Pods over in clear", "x", Some(1.2)),
    (Row::Flood, "get of a tenant while another floods with lists, p99", "ms", Some(50.0)),
    // 1.25 times the JSON, plus 40 kB.
    (Row::Crd, "memory per CRD of 16 KB, idle", "kB", Some(60.0)),
    (Row::LargeCrd, "memory per CRD of 92 KB, idle", "kB", Some(155.0)),
    (Row::CrdReady, "CRD created until its resource answers, beside 1,000, p99", "ms", Some(5.0)),
    (Row::CrdIndex, "index of OpenAPI v3, 1,000 CRDs, p50", "ms", Some(10.0)),
    (Row::CrdDocument, "OpenAPI v3 of one group version, 1,000 CRDs, p50", "ms", Some(10.0)),
    // Of a node in the process of the load generator, which runs `cat` and `wc`.
    (Row::SocketTrips, "exec, round trips of 32 bytes, WebSocket to SPDY", "/s", None),
    (Row::SpdyTrips, "exec, round trips of 32 bytes, SPDY passed through", "/s", None),
    (Row::Stdin, "stdin of an exec, WebSocket to SPDY", "MB/s", None),
    (Row::StdinCpu, "server CPU per MB of such a stdin", "ms", None),
    (Row::Port, "port-forward of one connection, SPDY passed through", "MB/s", None),
    (Row::PortCpu, "server CPU per MB of such a port", "ms", None),
    (Row::PassedThrough, "one idle port-forward, passed through", "kB", None),
    (Row::Translated, "one idle exec, WebSocket to SPDY", "kB", None),
    (Row::BehindGet, "get from a server behind, 64 connections", "/s", None),
    (Row::BehindCpu, "server CPU per get from a server behind", "ms", None),
    (Row::BehindAdded, "get from a server behind over asking it, 1 connection, p50", "ms", None),
    // Of servers with `--simulate`.
    (
        Row::Available,
        "apply of a Deployment of 3 pods until it is available, p50",
        "ms",
        Some(20.0),
    ),
    (Row::AllAvailable, "100 Deployments of 10 pods until all are available", "s", Some(2.0)),
    (Row::IdleNodesCpu, "100 idle simulated nodes, server CPU per second", "ms", Some(1.0)),
    (Row::IdleNodesMemory, "100 idle simulated nodes, extra memory", "MB", Some(2.0)),
    (Row::LargeMemory, "resident memory, 5,000 nodes with 50,000 running pods", "MB", Some(1000.0)),
    (Row::LargeTime, "apply of 500 Deployments until these 50,000 pods run", "s", None),
];

/// The reasons why a row has no value.
const NO_PROCESS: &str = "not measured: the server's process is not known (--pid)";
pub const NO_PROGRAM: &str = "not measured: --spawn names no program to start";
const TOO_SLOW: &str = "not measured: the store took too long to be filled";
const ELSEWHERE: &str = "counted by `cargo run --release -p keelson --example allocations`";

/// The values measured so far.
struct BudgetRun<'a> {
    run: &'a Arc<Run>,
    values: HashMap<Row, Result<f64, &'static str>>,
    report: &'a mut Report,
}

/// Rows that are measured together, on servers of their own with only the objects that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    Starts,
    SmallObjects,
    Patches,
    UsersAndWebhooks,
    Features,
    Encryption,
    Flood,
    Lists,
    Stored,
    ListOfNone,
    IdleWatches,
    Watches,
    Definitions,
    Streams,
    Aggregation,
    Simulation,
}

/// Measures all rows, or those of one group.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let mut budget = BudgetRun { run, values: HashMap::new(), report };
    for group in Group::value_variants() {
        if run.only.is_none_or(|only| only == *group) {
            budget.measure(*group).await.with_context(|| format!("{group:?}"))?;
        }
    }
    budget.write();
    Ok(())
}

impl BudgetRun<'_> {
    fn set(&mut self, row: Row, value: f64) {
        self.values.insert(row, Ok(value));
    }

    async fn measure(&mut self, group: Group) -> Result<()> {
        match group {
            Group::Starts => self.starts().await,
            Group::SmallObjects => self.small_objects().await,
            Group::Patches => self.patches().await,
            Group::UsersAndWebhooks => self.users_and_webhooks().await,
            Group::Features => self.features().await,
            Group::Encryption => self.encryption().await,
            Group::Flood => self.flood().await,
            Group::Lists => self.lists().await,
            Group::Stored => self.stored().await,
            Group::ListOfNone => self.list_of_none().await,
            Group::IdleWatches => self.idle_watches().await,
            Group::Watches => self.watches().await,
            Group::Definitions => self.definitions().await,
            Group::Streams => self.streams().await,
            Group::Aggregation => self.aggregation().await,
            Group::Simulation => self.simulation().await,
        }
    }

    /// Sets a value that needs access to the server's process.
    fn set_if_known(&mut self, row: Row, value: Option<f64>) {
        self.values.insert(row, value.ok_or(NO_PROCESS));
    }

    /// Sets the rate of a load, and reports its errors.
    fn set_rate(&mut self, row: Row, load: &Load) {
        self.set(row, load.rate());
        self.report.add_errors(&format!("budget, {row:?}"), &load.errors);
    }

    /// Reports the cost of events, and the missing ones.
    fn add_fan_out(&mut self, row: Row, result: &FanOut) {
        let title = format!("budget, {row:?}");
        for (what, cost) in result.costs() {
            if let Some(cost) = cost {
                self.report.add(&title, what, "us", cost);
            }
        }
        self.report.add_errors(&title, &result.missing());
    }

    /// Scales a number of objects or watchers by `--scale`.
    fn scaled(&self, count: usize) -> usize {
        self.run.scaled(count)
    }

    fn write(self) {
        for (row, what, unit, budget) in ROWS {
            // The limits apply to the full scale only.
            let budget = budget.filter(|_| self.run.scale == 1.0);
            let (value, note) = match self.values.get(&row) {
                Some(Ok(value)) => (Some(*value), ""),
                Some(Err(note)) => (None, *note),
                None if self.run.only.is_some() => continue,
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
        let path = bench.config_maps();
        let body = config_map(5_000);
        let objects = self.scaled(100_000);
        let make = move |number| ApiRequest::post(&path, body.fill(&format!("kept-{number}"), 0));
        let is_full = fill(&bench, objects, MANY, FILL_TIME_MAX, make).await?;
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
        let duration = bench.duration();
        for (row, workers) in [(Row::CreateOne, 1), (Row::CreateMap, MANY)] {
            let load =
                creates(&bench, bench.config_maps(), workers, config_map(1024), duration).await?;
            self.set_rate(row, &load);
            if row == Row::CreateOne {
                self.set(row, load.latency.quantile(0.5));
            }
        }
        let body = pod(1, 1600_usize.saturating_sub(pod(1, 0).fill(&object(10, 1000), 0).len()));
        let pods = bench.pods();
        let load = creates(&bench, pods.clone(), MANY, body, duration).await?;
        self.set_rate(Row::CreatePod, &load);
        self.set_if_known(Row::CpuCreate, load.server_cpu_ms());
        let made = load.done;
        let get = move |worker: usize, number: u64| {
            ApiRequest::get(format!("{pods}/{}", object(worker, number % made[worker].max(1))))
        };
        let load = drive(&bench, MANY, duration, move |w, n, _| Some(get(w, n))).await?;
        self.set_rate(Row::GetPod, &load);
        self.set_if_known(Row::CpuGet, load.server_cpu_ms());
        let leases = bench.leases();
        let body = lease();
        let patch = lease_patch();
        let load = patched(&bench, leases, MANY, MERGE_PATCH, body, patch).await?;
        self.set_rate(Row::PatchLease, &load);
        bench.close().await
    }

    async fn patches(&mut self) -> Result<()> {
        self.values.insert(Row::Allocated, Err(ELSEWHERE));
        let bench = Bench::open(self.run).await?;
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &bench.pods(), 10_000, |padding| pod(4, padding)).await?;
        let patch = Template::new(
            r#"{"metadata":{"annotations":{"turn":"{turn}"}},
            "spec":{"containers":[{"name":"c0","image":"registry.example.org/app:{turn}"}]}}"#,
        );
        let load = patched(&bench, bench.pods(), SOME, STRATEGIC_PATCH, body, patch).await?;
        self.set_rate(Row::PatchPod, &load);
        self.set_if_known(Row::CpuPatch, load.server_cpu_ms());
        let patch = Template::new(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{name}"},
            "data":{"turn":"{turn}"}}"#,
        );
        let config_maps = bench.config_maps();
        let load = patched(&bench, config_maps, SOME, APPLY_PATCH, config_map(1024), patch).await?;
        self.set_rate(Row::Apply, &load);
        bench.close().await
    }

    async fn users_and_webhooks(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let (ratio, load) = accounts::rate(&bench, SOME).await?;
        self.set(Row::Account, ratio);
        self.report.add_errors("budget, Account", &load.errors);
        let (cost, load) = webhooks::cost(&bench, SOME).await?;
        self.set_if_known(Row::Webhook, cost);
        self.report.add_errors("budget, Webhook", &load.errors);
        bench.close().await
    }

    /// Measures each feature on against off, on a pair of servers.
    async fn features(&mut self) -> Result<()> {
        for (row, feature) in [
            (Row::Fairness, Feature::Fairness),
            (Row::Audit, Feature::Audit("Metadata")),
            (Row::AuditObjects, Feature::Audit("RequestResponse")),
            (Row::Tracing, Feature::Tracing),
            (Row::Watched, Feature::Watched),
        ] {
            self.feature(row, feature).await?;
        }
        Ok(())
    }

    /// Measures values that are encrypted against values in clear.
    async fn encryption(&mut self) -> Result<()> {
        for (row, provider) in [
            (Row::AesGcm, Provider::AesGcm),
            (Row::Secretbox, Provider::Secretbox),
            (Row::Kms, Provider::Kms),
        ] {
            self.feature(row, Feature::Encryption(provider)).await?;
        }
        let start = features::encrypted_start(self.run).await?;
        self.values.insert(Row::EncryptedStart, start.ok_or(NO_PROGRAM));
        Ok(())
    }

    async fn feature(&mut self, row: Row, feature: Feature) -> Result<()> {
        let (ratios, load) = features::ratios(self.run, feature).await?;
        let of_row = match row {
            Row::Fairness => ratios.get.cpu,
            Row::Tracing => ratios.both.cpu,
            Row::Watched => ratios.both.time,
            _ => ratios.create.time,
        };
        self.values.insert(row, of_row.ok_or(NO_PROGRAM));
        let profile = format!("budget, {row:?}");
        for (what, ratio) in [("get", ratios.get), ("create", ratios.create), ("both", ratios.both)]
        {
            for (of, value) in [("CPU", ratio.cpu), ("time", ratio.time)] {
                if let Some(value) = value {
                    self.report.add(&profile, &format!("{what}, {of}"), "x", value);
                }
            }
        }
        self.report.add_errors(&profile, &load.errors);
        Ok(())
    }

    async fn streams(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let figures = far::streams(&bench).await?;
        self.set(Row::SocketTrips, figures.socket_trips);
        self.set(Row::SpdyTrips, figures.spdy_trips);
        self.set(Row::Stdin, figures.stdin_rate);
        self.set(Row::Port, figures.port_rate);
        self.set_if_known(Row::StdinCpu, figures.stdin_cpu_ms);
        self.set_if_known(Row::PortCpu, figures.port_cpu_ms);
        self.set_if_known(Row::PassedThrough, figures.passed_through_kb);
        self.set_if_known(Row::Translated, figures.translated_kb);
        bench.close().await
    }

    async fn aggregation(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let figures = far::behind(&bench, MANY).await?;
        self.set_rate(Row::BehindGet, &figures.load);
        self.set_if_known(Row::BehindCpu, figures.load.server_cpu_ms());
        self.set(Row::BehindAdded, figures.added_ms);
        bench.close().await
    }

    /// Measures servers that simulate a cluster.
    async fn simulation(&mut self) -> Result<()> {
        if self.run.program().is_none() {
            let rows = [Row::Available, Row::AllAvailable, Row::IdleNodesCpu, Row::IdleNodesMemory];
            for row in rows.into_iter().chain([Row::LargeMemory, Row::LargeTime]) {
                self.values.insert(row, Err(NO_PROGRAM));
            }
            return Ok(());
        }
        let figures = simulation::workloads(self.run).await?;
        self.set(Row::Available, figures.median_ms());
        self.report.add("budget, Available", "max", "ms", quantile(&figures.each_ms, 1.0));
        self.set(Row::AllAvailable, figures.many_seconds);
        let idle = simulation::idle(self.run).await?;
        self.set(Row::IdleNodesCpu, idle.cpu_ms);
        self.set(Row::IdleNodesMemory, idle.rss);
        let large = simulation::large(self.run).await?;
        self.set_if_known(Row::LargeMemory, large.rss);
        self.set(Row::LargeTime, large.seconds);
        Ok(())
    }

    async fn flood(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let flooded = features::flood(&bench).await?;
        self.set(Row::Flood, flooded.during.quantile(0.99));
        for (what, latency) in [("alone", &flooded.alone), ("during the flood", &flooded.during)] {
            for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
                let what = format!("{name}, {what}");
                self.report.add("budget, Flood", &what, "ms", latency.quantile(share));
            }
        }
        self.report.add_errors("budget, Flood", &flooded.load.errors);
        bench.close().await
    }

    async fn lists(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let pods = bench.pods();
        let objects = self.scaled(10_000);
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &pods, POD_BYTES, |padding| pod(1, padding)).await?;
        let path = pods.clone();
        let make = move |number| ApiRequest::post(&path, body.fill(&format!("pod-{number}"), 0));
        let is_full = fill(&bench, objects, MANY, FILL_TIME_MAX, make).await?;
        anyhow::ensure!(is_full, "{objects} pods were not there after {FILL_TIME_MAX:?}");
        tokio::time::sleep(bench.settle_time()).await;
        let (length, more, load) = lists(&bench, &pods, 1, LISTS).await?;
        self.set(Row::ListTime, load.latency.quantile(0.5));
        self.report.add("budget, ListTime", "length", "MB", length as f64 / 1e6);
        self.set_if_known(Row::ListMemory, more);
        self.set_if_known(Row::CpuList, load.server_cpu_ms());
        self.report.add_errors("budget, ListTime", &load.errors);
        let (_, more, load) = lists(&bench, &pods, 16, LISTS_EACH).await?;
        self.set_if_known(Row::ListsMemory, more);
        self.report.add_errors("budget, ListsMemory", &load.errors);
        bench.close().await
    }

    /// Measures the memory per stored Pod, with so many Pods that fixed costs do not matter.
    async fn stored(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let pods = bench.pods();
        let objects = self.scaled(STORED);
        let mut client = Client::connect(&bench.target).await?;
        let body = padded(&mut client, &pods, POD_BYTES, |padding| pod(1, padding)).await?;
        // Warm up: the memory of the connections must not count.
        let config_maps = bench.config_maps();
        let map = config_map(1024);
        let make =
            move |number| ApiRequest::post(&config_maps, map.fill(&format!("first-{number}"), 0));
        fill(&bench, MANY * 10, MANY, FILL_TIME_MAX, make).await?;
        clear(&bench, &bench.config_maps()).await?;
        tokio::time::sleep(bench.settle_time()).await;
        let before = bench.sample(Processes::memory)?;
        let path = pods.clone();
        let make = move |number| ApiRequest::post(&path, body.fill(&format!("pod-{number}"), 0));
        if !fill(&bench, objects, MANY, FILL_TIME_MAX, make).await? {
            self.values.insert(Row::Stored, Err(TOO_SLOW));
            return bench.close().await;
        }
        tokio::time::sleep(bench.settle_time()).await;
        let growth = bench
            .sample(Processes::memory)?
            .zip(before)
            .map(|(after, before)| after.rss - before.rss);
        let (length, _, load) = lists(&bench, &pods, 1, 1).await?;
        self.set_if_known(Row::Stored, growth.map(|growth| growth * 1e6 / length as f64));
        self.report.add_errors("budget, Stored", &load.errors);
        bench.close().await
    }

    async fn list_of_none(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let path = bench.config_maps();
        let body = config_map(100);
        let objects = self.scaled(300_000);
        let make = move |number| ApiRequest::post(&path, body.fill(&format!("none-{number}"), 0));
        if !fill(&bench, objects, MANY, FILL_TIME_MAX, make).await? {
            self.values.insert(Row::ListNone, Err(TOO_SLOW));
            return bench.close().await;
        }
        let path = format!("{}?labelSelector=turn%3Dnever", bench.config_maps());
        let load =
            drive(&bench, 1, bench.duration(), move |_, _, _| Some(ApiRequest::get(&path))).await?;
        self.set(Row::ListNone, load.latency.quantile(0.5));
        self.report.add_errors("budget, ListNone", &load.errors);
        bench.close().await
    }

    async fn definitions(&mut self) -> Result<()> {
        let count = self.scaled(DEFINITIONS);
        for (row, bytes) in [(Row::Crd, CRD_BYTES), (Row::LargeCrd, LARGE_CRD_BYTES)] {
            let bench = Bench::open(self.run).await?;
            let each = definitions::memory(&bench, bytes, count).await?;
            self.set_if_known(row, each);
            if row == Row::LargeCrd {
                self.beside_definitions(&bench).await?;
            }
            definitions::clear(&bench, count).await?;
            bench.close().await?;
        }
        Ok(())
    }

    /// Measures requests to a server with many definitions.
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
            self.set_if_known(row, each);
            bench.close().await?;
        }
        Ok(())
    }

    async fn watches(&mut self) -> Result<()> {
        let bench = Bench::open(self.run).await?;
        let mut client = Client::connect(&bench.target).await?;
        let size = 1_000 - FRAME_BYTES;
        let body = padded(&mut client, &bench.config_maps(), size, numbered_config_map).await?;
        let some = self.scaled(200);
        let many = self.scaled(1000);
        for (row, watchers) in [(Row::FanOutSome, some), (Row::FanOutMany, many)] {
            let pace = None;
            let measure = Measure::Count;
            let duration = bench.duration();
            let plan = FanOutPlan { watchers, writers: MANY, pace, measure, duration };
            let result = fan_out(&bench, body.clone(), plan).await?;
            self.set(row, result.rate());
            self.add_fan_out(row, &result);
        }
        let pace = Some(100);
        let measure = Measure::Latency;
        let duration = bench.duration();
        let plan = FanOutPlan { watchers: many, writers: 4, pace, measure, duration };
        let result = fan_out(&bench, body, plan).await?;
        self.set(Row::Last, result.last.quantile(0.99));
        for (what, part) in [("p50", 0.5), ("p90", 0.9), ("p99.9", 0.999)] {
            let what = format!("{what} to the last watcher");
            self.report.add("budget, Last", &what, "ms", result.last.quantile(part));
        }
        let each = result.each.quantile(0.5);
        self.report.add("budget, Last", "p50 to each watcher", "ms", each);
        self.add_fan_out(Row::Last, &result);
        bench.close().await
    }
}

fn object(worker: usize, number: u64) -> String {
    format!("budget-{worker}-{number}")
}

/// Creates objects for the given time.
async fn creates(
    bench: &Bench,
    path: String,
    workers: usize,
    body: Template,
    duration: Duration,
) -> Result<Load> {
    // Names must differ between loads.
    let offset = if workers == 1 { MANY } else { 0 };
    let create = move |worker: usize, number| {
        Some(ApiRequest::post(&path, body.fill(&object(worker + offset, number), number)))
    };
    drive(bench, workers, duration, move |worker, number, _| create(worker, number)).await
}

/// Creates an object for each worker, which then patches it again and again.
async fn patched(
    bench: &Bench,
    path: String,
    workers: usize,
    media: &'static str,
    body: Template,
    patch: Template,
) -> Result<Load> {
    let made = path.clone();
    let make = move |number| ApiRequest::post(&made, body.fill(&object(number, 0), 0));
    fill(bench, workers, workers, FILL_TIME_MAX, make).await?;
    let query = if media == APPLY_PATCH { "?fieldManager=bench&force=true" } else { "" };
    drive(bench, workers, bench.duration(), move |worker, number, _| {
        let name = object(worker, 0);
        let body = patch.fill(&name, number + 1);
        Some(ApiRequest::new(Method::PATCH, format!("{path}/{name}{query}"), media, body))
    })
    .await
}

/// Lists a collection `each` times per worker. Returns the length of the list in bytes, the peak of
/// the server's memory over the memory before in MB, and the load.
pub async fn lists(
    bench: &Bench,
    path: &str,
    workers: usize,
    each: u64,
) -> Result<(u64, Option<f64>, Load)> {
    bench.sample(Processes::reset_peak)?;
    let before = bench.sample(Processes::peak)?;
    let path = path.to_owned();
    let list = move |_, number, _: &[u8]| (number < each).then(|| ApiRequest::get(&path));
    let load = drive(bench, workers, FILL_TIME_MAX, list).await?;
    let after = bench.sample(Processes::peak)?;
    let more = after.zip(before).map(|(after, before)| after - before);
    Ok((load.bytes / load.latency.total().max(1), more, load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_in_the_table_once() {
        let rows: HashSet<Row> = ROWS.iter().map(|(row, ..)| *row).collect();
        assert_eq!(rows.len(), ROWS.len());
        // The last variant's discriminant is the number of variants less one.
        assert_eq!(Row::LargeTime as usize + 1, ROWS.len());
        let whats: HashSet<&str> = ROWS.iter().map(|(_, what, ..)| *what).collect();
        assert_eq!(whats.len(), ROWS.len());
    }
}
