//! Scale: what one more object, watch or node takes up, for the plan in docs/scale.md. The slopes
//! are those of lines through all steps (least squares).

use crate::bodies::{config_map, padded};
use crate::client::{ApiRequest, Client};
use crate::drive::{BODY_PREFIX_BYTES_MAX, Load, STREAMS_MAX, clients, fill};
use crate::etcd::{EtcdServer, NO_ETCD, resident};
use crate::report::Report;
use crate::target::Target;
use crate::watches::{WatchLines, revision};
use crate::writes::renewal;
use crate::{Bench, Run};
use anyhow::{Context, Result, ensure};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const OBJECTS: [usize; 4] = [250_000, 500_000, 1_000_000, 2_000_000];
const OBJECTS_ON_ETCD: [usize; 3] = [250_000, 500_000, 1_000_000];
/// Size of a stored object.
const SIZE: usize = 500;
const WRITERS: usize = 64;
/// Timeout of creating the objects of a step.
const FILL_TIME_MAX: Duration = Duration::from_secs(600);
/// Watches with a connection each.
const CONNECTIONS: [usize; 3] = [1_000, 4_000, 8_000];
/// Watches of which a hundred share an HTTP/2 connection.
const SHARED: [usize; 4] = [1_000, 10_000, 50_000, 100_000];
/// Nodes, each with a connection and a Lease.
const NODES: [usize; 3] = [500, 1_000, 5_000];
/// How often a kubelet renews its Lease.
const RENEWAL: Duration = Duration::from_secs(10);

/// Measures all three.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    nodes(run, report).await.context("with nodes")?;
    watches(run, report, "own connection", false, &CONNECTIONS).await.context("with watches")?;
    watches(run, report, "shared HTTP/2 connection", true, &SHARED)
        .await
        .context("with watches")?;
    objects(Bench::open(run).await?, report, "", &OBJECTS).await.context("with objects")?;
    let Some(on_etcd) = EtcdServer::open(run).await? else {
        report.add("scale", NO_ETCD, "", 0.0);
        return Ok(());
    };
    let _etcd = on_etcd.etcd;
    objects(on_etcd.bench, report, ", on etcd", &OBJECTS_ON_ETCD).await.context("on etcd")
}

/// Values at sizes, and the slope of the line through them.
#[derive(Default)]
struct Line(Vec<(f64, f64)>);

impl Line {
    fn slope(&self) -> f64 {
        let count = self.0.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.0.iter().map(of).sum::<f64>() / count;
        let size = mean(|point| point.0);
        let value = mean(|point| point.1);
        let both: f64 = self.0.iter().map(|point| (point.0 - size) * (point.1 - value)).sum();
        let square: f64 = self.0.iter().map(|point| (point.0 - size).powi(2)).sum();
        both / square
    }
}

/// Fills a store, and starts the server again at each step.
async fn objects(
    mut bench: Bench,
    report: &mut Report,
    whose: &str,
    steps: &[usize],
) -> Result<()> {
    let name = format!("scale with objects{whose}");
    let run = bench.run.clone();
    let mut client = Client::connect(&bench.target).await?;
    let body = padded(&mut client, &bench.config_maps(), SIZE, config_map).await?;
    drop(client);
    let mut line = Line::default();
    let mut there = 0;
    for size in steps.iter().filter(|size| **size <= run.objects.unwrap_or(usize::MAX)) {
        let objects = run.scaled(*size);
        let path = bench.config_maps();
        let made = body.clone();
        let before = there;
        let make = move |number: usize| {
            ApiRequest::post(&path, made.fill(&format!("scale-{}", before + number), 0))
        };
        let more = objects.saturating_sub(there);
        let began = Instant::now();
        let is_full = fill(&bench, more, WRITERS, FILL_TIME_MAX, make).await?;
        ensure!(is_full, "{objects} objects were not there after {FILL_TIME_MAX:?}");
        report.add_step(
            &name,
            objects,
            "create",
            "/s",
            more as f64 / began.elapsed().as_secs_f64(),
        );
        there = objects;
        tokio::time::sleep(bench.settle_time()).await;
        let memory = resident(&bench)?;
        line.0.push((objects as f64, memory));
        report.add_step(&name, objects, "RSS", "MB", memory);
        let Some(server) = bench.server.take() else { continue };
        let again = server.restart().await?;
        report.add_step(&name, objects, "start", "s", again.ready.as_secs_f64());
        bench.target = again.target.clone();
        bench.processes = Some(again.processes());
        bench.server = Some(again);
        tokio::time::sleep(bench.settle_time()).await;
        report.add_step(&name, objects, "RSS after the start", "MB", resident(&bench)?);
    }
    let what = format!("memory per object of 500 bytes{whose}");
    report.add("scale", &what, "kB", line.slope() * 1e3);
    bench.close().await
}

/// Opens idle watches, step by step.
async fn watches(
    run: &Arc<Run>,
    report: &mut Report,
    how: &str,
    http2: bool,
    steps: &[usize],
) -> Result<()> {
    let name = format!("scale with watches, {how}");
    let server = Bench::open(run).await?;
    let bench = server.over(http2);
    let path = bench.config_maps();
    let mut client = Client::connect(&bench.target).await?;
    let watch = format!("{path}?watch=1&resourceVersion={}", revision(&mut client, &path).await?);
    let mut line = Line::default();
    let mut open: Vec<WatchLines> = vec![];
    for step in steps {
        let count = run.scaled(*step);
        // Each is opened before the next connection: a server holds few that have not asked yet.
        for _ in 0..count.saturating_sub(open.len()).div_ceil(STREAMS_MAX) {
            for client in clients(&bench, STREAMS_MAX).await? {
                open.push(WatchLines::open(client, &watch).await?);
            }
        }
        tokio::time::sleep(bench.settle_time()).await;
        let memory = resident(&bench)?;
        line.0.push((open.len() as f64, memory));
        report.add_step(&name, open.len(), "RSS", "MB", memory);
    }
    report.add("scale", &format!("memory per watch, {how}"), "kB", line.slope() * 1e3);
    server.close().await
}

/// Nodes that renew their Leases.
async fn nodes(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let name = "scale with nodes";
    let mut memory = Line::default();
    let mut busy = Line::default();
    for step in NODES {
        let bench = Bench::open(run).await?;
        let count = run.scaled(step);
        let load = Arc::new(Mutex::new(Load::default()));
        let mut tasks = JoinSet::new();
        let until = Instant::now() + RENEWAL + bench.duration() * 4;
        for node in 0..count {
            let offset = RENEWAL.mul_f64(node as f64 / count as f64);
            let path = bench.leases();
            let target = bench.target.clone();
            tasks.spawn(node_until(target, path, node, offset, until, load.clone()));
        }
        // From now on all Leases are there, and renewed.
        tokio::time::sleep(RENEWAL).await;
        let began = Instant::now();
        let before = bench.sample(|processes| processes.cpu())?.context("--pid")?;
        tokio::time::sleep(until.saturating_duration_since(Instant::now())).await;
        let cpu =
            bench.sample(|processes| processes.cpu())?.context("--pid")?.saturating_sub(before);
        let share = cpu.as_secs_f64() / began.elapsed().as_secs_f64();
        let resident = resident(&bench)?;
        tasks.shutdown().await;
        let load = std::mem::take(&mut *load.lock().unwrap_or_else(PoisonError::into_inner));
        memory.0.push((count as f64, resident));
        busy.0.push((count as f64, share));
        report.add_step(name, count, "RSS", "MB", resident);
        report.add_step(name, count, "CPU, of one core", "%", share * 100.0);
        report.add_step(name, count, "renewal, p99", "ms", load.latency.quantile(0.99));
        report.add_errors(&format!("{name}, {count}"), &load.errors);
        bench.close().await?;
    }
    report.add("scale", "memory per node, with its connection", "kB", memory.slope() * 1e3);
    report.add("scale", "CPU per 1,000 nodes, of one core", "%", busy.slope() * 1e5);
    Ok(())
}

/// Creates and renews the Lease of a node.
async fn node_until(
    target: Arc<Target>,
    path: String,
    node: usize,
    offset: Duration,
    until: Instant,
    load: Arc<Mutex<Load>>,
) -> Result<()> {
    let name = format!("node-{node}");
    let mut last = vec![];
    let mut next = Instant::now() + offset;
    let mut turn = 0;
    tokio::time::sleep(offset).await;
    let mut client = Client::connect(&target).await?;
    while next < until {
        tokio::time::sleep_until(next.into()).await;
        let request = renewal(&path, &name, turn, &last);
        let sent = Instant::now();
        let answer = client.execute(&request, BODY_PREFIX_BYTES_MAX, &mut last).await;
        load.lock().unwrap_or_else(PoisonError::into_inner).add(
            &request,
            sent.elapsed(),
            &answer,
            &last,
        );
        turn += 1;
        next += RENEWAL;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_best_line() {
        let line = Line(vec![(0.0, 10.0), (1.0, 12.0), (2.0, 14.0)]);
        assert_eq!(line.slope(), 2.0);
        let uneven = Line(vec![(0.0, 0.0), (1.0, 3.0), (2.0, 3.0)]);
        assert_eq!(uneven.slope(), 1.5);
    }
}
