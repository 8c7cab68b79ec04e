//! What a cluster does all day: nodes renew leases, pods come and go, controllers list and watch. What is
//! there at once does not grow: a lease for each node, and one pod for each that makes pods.

use crate::Bench;
use crate::bodies::{Template, pod};
use crate::client::{Ask, Client, STRATEGIC_PATCH};
use crate::drive::{KEPT_BYTES_MAX, Load, clear};
use crate::report::Report;
use crate::target::Target;
use crate::watches::{Lines, revision};
use crate::writes::renewal;
use anyhow::Result;
use http::Method;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
/// What a pod that runs says.
const RUNNING: &str = r#"{"status":{"phase":"Running","podIP":"10.1.0.1",
    "conditions":[{"type":"Ready","status":"True"}]}}"#;

/// The steps of a pod's life.
#[derive(Clone, Copy)]
enum Step {
    Make,
    Run,
    Read,
    Delete,
}

const STEPS: [Step; 4] = [Step::Make, Step::Run, Step::Read, Step::Delete];

fn pod_step(path: &str, body: &Template, worker: usize, turn: u64) -> Ask {
    let name = format!("pod-{worker}-{}", turn / STEPS.len() as u64);
    let one = format!("{path}/{name}");
    match STEPS[(turn % STEPS.len() as u64) as usize] {
        Step::Make => Ask::post(path, body.fill(&name, turn)),
        Step::Run => Ask::new(Method::PATCH, format!("{one}/status"), STRATEGIC_PATCH, RUNNING),
        Step::Read => Ask::get(one),
        Step::Delete => Ask::delete(format!("{one}?gracePeriodSeconds=0")),
    }
}

/// A cluster at work.
pub struct Cluster {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<()>>,
}

/// What its workers share.
struct Shared {
    target: Arc<Target>,
    began: Instant,
    span: Duration,
    events: AtomicU64,
    /// What has come of requests since it was last asked.
    load: Mutex<Load>,
}

impl Cluster {
    /// Lets it work for a while.
    pub fn start(bench: &Bench, span: Duration) -> Cluster {
        let shared = Arc::new(Shared {
            target: bench.target.clone(),
            began: Instant::now(),
            span,
            events: AtomicU64::new(0),
            load: Mutex::default(),
        });
        let (pods, leases) = (bench.pods(), bench.leases());
        let mut tasks = JoinSet::new();
        for node in 0..bench.run.nodes {
            let (path, name) = (leases.clone(), format!("node-{node}"));
            let renew = move |turn, last: &[u8]| renewal(&path, &name, turn, last);
            tasks.spawn(paced(shared.clone(), RENEWAL, renew));
        }
        for worker in 0..CHURNERS {
            let (path, body) = (pods.clone(), pod(1, 0));
            let step = move |turn, _: &[u8]| pod_step(&path, &body, worker, turn);
            tasks.spawn(paced(shared.clone(), LIFE / STEPS.len() as u32, step));
        }
        for _ in 0..CONTROLLERS {
            tasks.spawn(watch(shared.clone(), pods.clone()));
            let path = format!("{pods}?resourceVersion=0");
            tasks.spawn(paced(shared.clone(), RELIST, move |_, _: &[u8]| Ask::get(path.clone())));
        }
        Cluster { shared, tasks }
    }

    /// What has come of requests since it was last asked, but for the time that took.
    pub fn take(&self) -> Load {
        std::mem::take(&mut *self.shared.load.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Events that watchers had so far.
    pub fn events(&self) -> u64 {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Result<()> {
        while let Some(task) = self.tasks.join_next().await {
            task??;
        }
        Ok(())
    }
}

impl Shared {
    fn add(&self, ask: &Ask, took: Duration, answer: &Result<(u16, u64)>, body: &[u8]) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.add(ask, took, answer, body);
    }

    fn left(&self) -> Duration {
        self.span.saturating_sub(self.began.elapsed())
    }
}

/// Asks at a pace, not as fast as it can.
async fn paced(
    shared: Arc<Shared>,
    every: Duration,
    ask: impl Fn(u64, &[u8]) -> Ask + Send,
) -> Result<()> {
    let mut client = Client::connect(&shared.target).await?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut turn, mut last) = (0, vec![]);
    while tokio::time::timeout(shared.left(), ticks.tick()).await.is_ok() {
        let (ask, sent) = (ask(turn, &last), Instant::now());
        let answer = client.skim(&ask, KEPT_BYTES_MAX, &mut last).await;
        let took = sent.elapsed();
        shared.add(&ask, took, &answer, &last);
        if answer.is_err() {
            client = Client::connect(&shared.target).await?;
        }
        turn += 1;
    }
    Ok(())
}

/// Watches as long as the cluster works; a watch that ends before is opened again.
async fn watch(shared: Arc<Shared>, path: String) -> Result<()> {
    while !shared.left().is_zero() {
        let mut client = Client::connect(&shared.target).await?;
        let since = revision(&mut client, &path).await?;
        let seconds = shared.left().as_secs().max(1);
        let path = format!("{path}?watch=1&resourceVersion={since}&timeoutSeconds={seconds}");
        let mut lines = Lines::open(client, &path).await?;
        let mut see = |_: &[u8]| {
            shared.events.fetch_add(1, Ordering::Relaxed);
        };
        while let Ok(true) =
            tokio::time::timeout(shared.left(), lines.read(&mut see)).await.unwrap_or(Ok(false))
        {
        }
    }
    Ok(())
}

/// Leaves nothing of a cluster.
pub async fn clean(bench: &Bench) -> Result<()> {
    clear(bench, &bench.leases()).await?;
    clear(bench, &format!("{}?gracePeriodSeconds=0", bench.pods())).await
}

/// Measures the mixed load.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let began = Instant::now();
    let mut cluster = Cluster::start(bench, bench.span());
    cluster.ended().await?;
    let load = Load { seconds: began.elapsed().as_secs_f64(), ..cluster.take() };
    let title = format!("mixed, {} nodes", bench.run.nodes);
    report.add_load(&title, &load);
    report.add(&title, "events", "/s", cluster.events() as f64 / load.seconds);
    clean(bench).await
}
