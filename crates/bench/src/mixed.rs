//! What a cluster does all day: nodes renew leases, pods come and go, controllers list and watch.

use crate::Bench;
use crate::client::{Ask, Client, JSON};
use crate::drive::{Load, clear};
use crate::report::Report;
use crate::server::Memory;
use crate::watches::{Lines, revision};
use crate::writes::{lease_path, renewal};
use anyhow::Result;
use bytes::Bytes;
use http::Method;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// How often a node renews its lease; a kubelet does each 10 s.
const RENEWAL: Duration = Duration::from_secs(1);
/// Workers that make, run, read and delete pods.
const CHURNERS: usize = 8;
/// How long the four steps of a pod's life take, at the least.
const LIFE: Duration = Duration::from_millis(100);
/// Controllers that watch pods and list them now and then.
const CONTROLLERS: usize = 5;
const RELIST: Duration = Duration::from_secs(10);

/// The steps of a pod's life.
#[derive(Clone, Copy)]
enum Step {
    Make,
    Run,
    Read,
    Delete,
}

const STEPS: [Step; 4] = [Step::Make, Step::Run, Step::Read, Step::Delete];

fn pod_step(path: &str, worker: usize, turn: u64) -> Ask {
    let name = format!("pod-{worker}-{}", turn / STEPS.len() as u64);
    let one = format!("{path}/{name}");
    match STEPS[(turn % STEPS.len() as u64) as usize] {
        Step::Make => {
            let body = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": "bench"}},
                "spec": {"nodeName": "node-0", "automountServiceAccountToken": false,
                    "containers": [{"name": "c", "image": "registry.example.org/app:1",
                        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}});
            Ask::new(Method::POST, path, JSON, body.to_string())
        }
        Step::Run => {
            let body = json!({"status": {"phase": "Running", "podIP": "10.1.0.1",
                "conditions": [{"type": "Ready", "status": "True"}]}});
            let media = "application/strategic-merge-patch+json";
            Ask::new(Method::PATCH, format!("{one}/status"), media, body.to_string())
        }
        Step::Read => Ask::get(one),
        Step::Delete => {
            let path = format!("{one}?gracePeriodSeconds=0");
            Ask::new(Method::DELETE, path, JSON, "")
        }
    }
}

/// Asks at a pace, not as fast as it can.
async fn paced(
    bench: &Arc<Paced>,
    every: Duration,
    ask: impl Fn(u64, &[u8]) -> Ask,
    load: &mut Load,
) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut turn, mut last) = (0, Bytes::new());
    while bench.began.elapsed() < bench.span {
        let left = bench.span.saturating_sub(bench.began.elapsed());
        if tokio::time::timeout(left, ticks.tick()).await.is_err() {
            break;
        }
        let sent = Instant::now();
        match client.call(ask(turn, &last)).await {
            Ok((200..300, body)) => {
                load.latency.add(sent.elapsed());
                load.bytes += body.len() as u64;
                last = body;
            }
            Ok(_) => load.errors += 1,
            Err(_) => {
                load.errors += 1;
                client = Client::connect(&bench.target).await?;
            }
        }
        turn += 1;
    }
    Ok(())
}

/// What the workers of a mixed load share.
struct Paced {
    target: Arc<crate::target::Target>,
    began: Instant,
    span: Duration,
    events: AtomicU64,
}

/// Runs the whole cluster for a while.
async fn cluster(bench: &Bench, span: Duration) -> Result<(Load, u64)> {
    let shared = Arc::new(Paced {
        target: bench.target.clone(),
        began: Instant::now(),
        span,
        events: AtomicU64::new(0),
    });
    let (pods, leases) = (bench.path("/api/v1", "pods"), lease_path(bench));
    let mut tasks: JoinSet<Result<Load>> = JoinSet::new();
    for node in 0..bench.run.nodes {
        let (shared, path) = (shared.clone(), leases.clone());
        tasks.spawn(async move {
            let mut load = Load::default();
            let name = format!("node-{node}");
            let renew = |turn, last: &[u8]| renewal(&path, &name, turn, last);
            paced(&shared, RENEWAL, renew, &mut load).await?;
            Ok(load)
        });
    }
    for worker in 0..CHURNERS {
        let (shared, path) = (shared.clone(), pods.clone());
        tasks.spawn(async move {
            let mut load = Load::default();
            let step = |turn, _: &[u8]| pod_step(&path, worker, turn);
            paced(&shared, LIFE / STEPS.len() as u32, step, &mut load).await?;
            Ok(load)
        });
    }
    for _ in 0..CONTROLLERS {
        let (lister, watcher, path) = (shared.clone(), shared.clone(), pods.clone());
        let watched = path.clone();
        tasks.spawn(async move {
            watch(&watcher, &watched).await?;
            Ok(Load::default())
        });
        tasks.spawn(async move {
            let mut load = Load::default();
            let list = |_, _: &[u8]| Ask::get(format!("{path}?resourceVersion=0"));
            paced(&lister, RELIST, list, &mut load).await?;
            Ok(load)
        });
    }
    let mut all = Load::default();
    while let Some(task) = tasks.join_next().await {
        let load = task??;
        all.latency.merge(&load.latency);
        all.errors += load.errors;
        all.bytes += load.bytes;
    }
    all.seconds = shared.began.elapsed().as_secs_f64();
    Ok((all, shared.events.load(Ordering::Relaxed)))
}

async fn watch(shared: &Paced, path: &str) -> Result<()> {
    let mut client = Client::connect(&shared.target).await?;
    let since = revision(&mut client, path).await?;
    let left = shared.span.saturating_sub(shared.began.elapsed()).as_secs().max(1);
    let path = format!("{path}?watch=1&resourceVersion={since}&timeoutSeconds={left}");
    let mut lines = Lines::open(&mut client, path).await?;
    let see = |_: &str| {
        shared.events.fetch_add(1, Ordering::Relaxed);
    };
    while lines.read(see).await? {}
    Ok(())
}

/// Leaves nothing of a mixed load.
async fn clean(bench: &Bench) -> Result<()> {
    clear(bench, &lease_path(bench)).await?;
    clear(bench, &format!("{}?gracePeriodSeconds=0", bench.path("/api/v1", "pods"))).await
}

/// Measures the mixed load.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (load, events) = cluster(bench, bench.span()).await?;
    let title = format!("mixed, {} nodes", bench.run.nodes);
    report.add_load(&title, load.rate(), &load.latency, load.errors);
    report.add(&title, "events", "/s", events as f64 / load.seconds);
    clean(bench).await
}

/// The mixed load for `--seconds`, told minute by minute.
pub async fn soak(bench: &Bench, report: &mut Report) -> Result<()> {
    let minute = Duration::from_secs(60);
    let mut left = bench.span();
    let mut number = 0;
    while !left.is_zero() {
        let (load, events) = cluster(bench, left.min(minute)).await?;
        left = left.saturating_sub(minute);
        number += 1;
        let title = format!("soak, minute {number}");
        report.add_load(&title, load.rate(), &load.latency, load.errors);
        report.add(&title, "events", "/s", events as f64 / load.seconds);
        clean(bench).await?;
        if let Some(pid) = bench.pid {
            report.add(&title, "RSS", "MB", Memory::of(pid)?.rss);
        }
    }
    Ok(())
}
