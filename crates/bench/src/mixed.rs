//! The mixed load of a cluster: nodes renew leases, pods are created and deleted, controllers list
//! and watch. The number of objects stays constant: a lease per node, and a pod per pod worker.

use crate::Bench;
use crate::bodies::{Template, pod};
use crate::client::{ApiRequest, Client, STRATEGIC_PATCH};
use crate::drive::{BODY_PREFIX_BYTES_MAX, Load, clear};
use crate::report::Report;
use crate::target::Target;
use crate::watches::{WatchLines, revision};
use crate::writes::renewal;
use anyhow::Result;
use http::Method;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Interval of lease renewals; a kubelet's is 10 s.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Workers that create, run, get and delete pods.
const POD_WORKERS: usize = 8;
/// Minimum duration of the four steps of a pod's life.
const POD_LIFETIME: Duration = Duration::from_millis(100);
/// Controllers that watch pods, and list them at an interval.
const CONTROLLERS: usize = 5;
const RELIST_INTERVAL: Duration = Duration::from_secs(10);
/// The status patch of a running pod.
const RUNNING: &str = r#"{"status":{"phase":"Running","podIP":"10.1.0.1",
    "conditions":[{"type":"Ready","status":"True"}]}}"#;

/// The steps of a pod's life.
#[derive(Clone, Copy)]
enum Step {
    Create,
    Run,
    Get,
    Delete,
}

const STEPS: [Step; 4] = [Step::Create, Step::Run, Step::Get, Step::Delete];

fn pod_step(path: &str, body: &Template, worker: usize, turn: u64) -> ApiRequest {
    let name = format!("pod-{worker}-{}", turn / STEPS.len() as u64);
    let one = format!("{path}/{name}");
    match STEPS[(turn % STEPS.len() as u64) as usize] {
        Step::Create => ApiRequest::post(path, body.fill(&name, turn)),
        Step::Run => {
            ApiRequest::new(Method::PATCH, format!("{one}/status"), STRATEGIC_PATCH, RUNNING)
        }
        Step::Get => ApiRequest::get(one),
        Step::Delete => ApiRequest::delete(format!("{one}?gracePeriodSeconds=0")),
    }
}

/// The running mixed load.
pub struct Cluster {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<()>>,
}

/// The state that all workers share.
struct Shared {
    target: Arc<Target>,
    began: Instant,
    duration: Duration,
    events: AtomicU64,
    /// The results since the last [`Cluster::take`].
    load: Mutex<Load>,
}

impl Cluster {
    /// Starts the load for the given time.
    pub fn start(bench: &Bench, duration: Duration) -> Cluster {
        let shared = Arc::new(Shared {
            target: bench.target.clone(),
            began: Instant::now(),
            duration,
            events: AtomicU64::new(0),
            load: Mutex::default(),
        });
        let pods = bench.pods();
        let leases = bench.leases();
        let mut tasks = JoinSet::new();
        for node in 0..bench.run.nodes {
            let path = leases.clone();
            let name = format!("node-{node}");
            let renew = move |turn, last: &[u8]| renewal(&path, &name, turn, last);
            tasks.spawn(paced(shared.clone(), RENEWAL_INTERVAL, renew));
        }
        for worker in 0..POD_WORKERS {
            let path = pods.clone();
            let body = pod(1, 0);
            let step = move |turn, _: &[u8]| pod_step(&path, &body, worker, turn);
            tasks.spawn(paced(shared.clone(), POD_LIFETIME / STEPS.len() as u32, step));
        }
        for _ in 0..CONTROLLERS {
            tasks.spawn(watch(shared.clone(), pods.clone()));
            let path = format!("{pods}?resourceVersion=0");
            tasks.spawn(paced(shared.clone(), RELIST_INTERVAL, move |_, _: &[u8]| {
                ApiRequest::get(path.clone())
            }));
        }
        Cluster { shared, tasks }
    }

    /// Returns the results since the last call, without `seconds`.
    pub fn take(&self) -> Load {
        std::mem::take(&mut *self.shared.load.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of events that watchers have received.
    pub fn events(&self) -> u64 {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// Waits until the load has ended.
    pub async fn ended(&mut self) -> Result<()> {
        while let Some(task) = self.tasks.join_next().await {
            task??;
        }
        Ok(())
    }
}

impl Shared {
    fn add(&self, request: &ApiRequest, took: Duration, answer: &Result<(u16, u64)>, body: &[u8]) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.add(request, took, answer, body);
    }

    fn left(&self) -> Duration {
        self.duration.saturating_sub(self.began.elapsed())
    }
}

/// Sends requests at an interval.
async fn paced(
    shared: Arc<Shared>,
    interval: Duration,
    next: impl Fn(u64, &[u8]) -> ApiRequest + Send,
) -> Result<()> {
    let mut client = Client::connect(&shared.target).await?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turn = 0;
    let mut last = vec![];
    while tokio::time::timeout(shared.left(), ticks.tick()).await.is_ok() {
        let request = next(turn, &last);
        let sent = Instant::now();
        let answer = client.execute(&request, BODY_PREFIX_BYTES_MAX, &mut last).await;
        let took = sent.elapsed();
        shared.add(&request, took, &answer, &last);
        if answer.is_err() {
            client = Client::connect(&shared.target).await?;
        }
        turn += 1;
    }
    Ok(())
}

/// Watches until the load ends. A watch that ends early is opened again.
async fn watch(shared: Arc<Shared>, path: String) -> Result<()> {
    while !shared.left().is_zero() {
        let mut client = Client::connect(&shared.target).await?;
        let since = revision(&mut client, &path).await?;
        let seconds = shared.left().as_secs().max(1);
        let path = format!("{path}?watch=1&resourceVersion={since}&timeoutSeconds={seconds}");
        let mut lines = WatchLines::open(client, &path).await?;
        let mut on_line = |_: &[u8]| {
            shared.events.fetch_add(1, Ordering::Relaxed);
        };
        while let Ok(true) =
            tokio::time::timeout(shared.left(), lines.read(&mut on_line)).await.unwrap_or(Ok(false))
        {
        }
    }
    Ok(())
}

/// Deletes the objects of the load.
pub async fn clean(bench: &Bench) -> Result<()> {
    clear(bench, &bench.leases()).await?;
    clear(bench, &format!("{}?gracePeriodSeconds=0", bench.pods())).await
}

/// Measures the mixed load.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let began = Instant::now();
    let mut cluster = Cluster::start(bench, bench.duration());
    cluster.ended().await?;
    let load = Load { seconds: began.elapsed().as_secs_f64(), ..cluster.take() };
    let title = format!("mixed, {} nodes", bench.run.nodes);
    report.add_load(&title, &load);
    report.add(&title, "events", "/s", cluster.events() as f64 / load.seconds);
    clean(bench).await
}
