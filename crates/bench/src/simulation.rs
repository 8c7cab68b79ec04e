//! `--simulate`: how long workloads take until they are available, and what idle nodes and many
//! pods cost. Each measurement starts a server of its own.

use crate::bodies::Template;
use crate::client::{APPLY_PATCH, ApiRequest, Client};
use crate::drive::each;
use crate::features::open_with;
use crate::process::Processes;
use crate::start::quantile;
use crate::watches::{WatchLines, revision};
use crate::{Bench, Run};
use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Deployments that are applied one after the other, and their pods and nodes.
const ONE_BY_ONE: usize = 21;
const FEW_PODS: usize = 3;
const FEW_NODES: usize = 3;
/// Deployments that are applied at once, and their pods and nodes.
const MANY: usize = 100;
const MANY_PODS: usize = 10;
const MANY_NODES: usize = 20;
/// Nodes without pods.
const IDLE_NODES: usize = 100;
/// Servers with them, and without.
const IDLE_PAIRS: usize = 5;
/// A large cluster: nodes, Deployments and the pods of each of them.
const LARGE_NODES: usize = 5_000;
const LARGE_DEPLOYMENTS: usize = 500;
const LARGE_PODS: usize = 100;
/// Connections of the applies.
const WORKERS: usize = 16;
/// Timeouts until workloads are available.
const AVAILABLE_TIME_MAX: Duration = Duration::from_secs(60);
const LARGE_TIME_MAX: Duration = Duration::from_secs(600);

/// The figures of workloads.
pub struct WorkloadFigures {
    /// Milliseconds from an apply of a Deployment until it is available, of each.
    pub each_ms: Vec<f64>,
    /// Seconds until all of many are available.
    pub many_seconds: f64,
}

/// What a server with idle nodes needs over one without.
pub struct IdleFigures {
    /// Processor time in milliseconds per second.
    pub cpu_ms: f64,
    /// Resident memory in MB.
    pub rss: f64,
}

/// The figures of a large cluster.
pub struct LargeFigures {
    /// Resident memory in MB when all pods run.
    pub rss: Option<f64>,
    /// Seconds from the first apply until all pods run.
    pub seconds: f64,
}

async fn open(run: &Arc<Run>, nodes: usize) -> Result<Bench> {
    open_with(run, &format!("--simulate --simulate-nodes={nodes}")).await
}

/// Measures Deployments, first one after the other and then many at once.
pub async fn workloads(run: &Arc<Run>) -> Result<WorkloadFigures> {
    let bench = open(run, FEW_NODES).await?;
    let mut each_ms = vec![];
    for number in 0..run.scaled(ONE_BY_ONE) {
        let took = available(&bench, number..number + 1, FEW_PODS, AVAILABLE_TIME_MAX).await?;
        each_ms.push(took.as_secs_f64() * 1e3);
    }
    bench.close().await?;
    let bench = open(run, MANY_NODES).await?;
    let many = available(&bench, 0..run.scaled(MANY), MANY_PODS, AVAILABLE_TIME_MAX).await?;
    bench.close().await?;
    Ok(WorkloadFigures { each_ms, many_seconds: many.as_secs_f64() })
}

/// Measures idle nodes against servers without nodes, all at the same time: the medians of pairs,
/// because two servers with the same flags differ by a quarter of a megabyte.
pub async fn idle(run: &Arc<Run>) -> Result<IdleFigures> {
    let mut servers = vec![];
    for _ in 0..IDLE_PAIRS {
        servers.push([open(run, 0).await?, open(run, IDLE_NODES).await?]);
    }
    let first = &servers[0][0];
    // At full length 10 seconds, so that what follows the start of ten servers is over.
    tokio::time::sleep(first.duration() * 2).await;
    let began = Instant::now();
    let before = more_of_pairs(&servers, run_time_ms)?;
    // At full length 25 seconds, in which each node renews its Lease once.
    tokio::time::sleep(first.duration() * 5).await;
    let after = more_of_pairs(&servers, run_time_ms)?;
    let seconds = began.elapsed().as_secs_f64();
    let spent: Vec<f64> =
        after.iter().zip(&before).map(|(after, before)| (after - before) / seconds).collect();
    let rss = more_of_pairs(&servers, |bench| {
        Ok(bench.sample(Processes::memory)?.map(|memory| memory.rss))
    })?;
    for bench in servers.into_iter().flatten() {
        bench.close().await?;
    }
    Ok(IdleFigures { cpu_ms: quantile(&spent, 0.5), rss: quantile(&rss, 0.5) })
}

fn run_time_ms(bench: &Bench) -> Result<Option<f64>> {
    Ok(bench.sample(Processes::run_time)?.map(|time| time.as_secs_f64() * 1e3))
}

/// Returns by how much a figure is higher with nodes than without, of each pair of servers that run
/// on this machine.
fn more_of_pairs(
    servers: &[[Bench; 2]],
    figure: impl Fn(&Bench) -> Result<Option<f64>>,
) -> Result<Vec<f64>> {
    let mut all = vec![];
    for [without, with] in servers {
        if let Some(without) = figure(without)?
            && let Some(with) = figure(with)?
        {
            all.push(with - without);
        }
    }
    Ok(all)
}

/// Measures 50,000 pods on 5,000 nodes.
pub async fn large(run: &Arc<Run>) -> Result<LargeFigures> {
    let bench = open(run, run.scaled(LARGE_NODES)).await?;
    let all = run.scaled(LARGE_DEPLOYMENTS);
    let took = available(&bench, 0..all, LARGE_PODS, LARGE_TIME_MAX).await?;
    tokio::time::sleep(bench.settle_time()).await;
    let rss = bench.sample(Processes::memory)?.map(|memory| memory.rss);
    bench.close().await?;
    Ok(LargeFigures { rss, seconds: took.as_secs_f64() })
}

/// Applies Deployments and returns the time until all of their pods are available.
async fn available(
    bench: &Bench,
    numbers: std::ops::Range<usize>,
    replicas: usize,
    timeout: Duration,
) -> Result<Duration> {
    let path = bench.path("/apis/apps/v1", "deployments");
    let mut client = Client::connect(&bench.target).await?;
    let since = revision(&mut client, &path).await?;
    let watch = format!("{path}?watch=1&resourceVersion={since}");
    let mut lines = WatchLines::open(client, &watch).await?;
    let count = numbers.len();
    let first = numbers.start;
    let body = deployment(replicas);
    let apply = move |number: usize| {
        let name = format!("simulated-{}", first + number);
        let body = body.fill(&name, 0);
        let path = format!("{path}/{name}?fieldManager=bench");
        ApiRequest::new(Method::PATCH, path, APPLY_PATCH, body)
    };
    let began = Instant::now();
    let applied = each(bench, count, WORKERS.min(count), timeout, apply);
    let mut there = HashSet::new();
    let watched = async {
        while there.len() < count {
            let is_open = lines.read(|line| there.extend(available_name(line, replicas))).await?;
            ensure!(is_open, "the watch has ended");
        }
        anyhow::Ok(began.elapsed())
    };
    let watched = tokio::time::timeout(timeout, watched);
    let (applied, took) = tokio::join!(applied, watched);
    let applied = applied?;
    let errors: Vec<_> = applied.errors.named().collect();
    ensure!(errors.is_empty(), "{errors:?}");
    let Ok(took) = took else { anyhow::bail!("not available after {timeout:?}") };
    took
}

/// Returns the name of the Deployment of a watch event if all its pods are available.
fn available_name(line: &[u8], replicas: usize) -> Option<String> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let object = &event["object"];
    let is_available = object["status"]["availableReplicas"] == replicas
        && object["status"]["conditions"]
            .as_array()?
            .iter()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "True");
    is_available.then(|| object["metadata"]["name"].as_str().map(str::to_owned))?
}

fn deployment(replicas: usize) -> Template {
    let labels = json!({"app": "{name}"});
    let made = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "{name}"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "registry.example.org/app:1",
                "ports": [{"containerPort": 80}]}]}}}});
    Template::new(&made.to_string())
}

impl WorkloadFigures {
    /// Returns the median of the Deployments that were applied one after the other.
    pub fn median_ms(&self) -> f64 {
        quantile(&self.each_ms, 0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_available_when_its_condition_and_all_replicas_say_so() {
        let check = |status: Value, want: Option<&str>| {
            let event = json!({"type": "MODIFIED", "object": {"metadata": {"name": "a"},
                "status": status}});
            let name = available_name(event.to_string().as_bytes(), 3);
            assert_eq!(name.as_deref(), want, "{event}");
        };
        let conditions = |status: &str| json!([{"type": "Available", "status": status}]);
        check(json!({"availableReplicas": 3, "conditions": conditions("True")}), Some("a"));
        check(json!({"availableReplicas": 2, "conditions": conditions("True")}), None);
        check(json!({"availableReplicas": 3, "conditions": conditions("False")}), None);
        check(json!({}), None);
        assert_eq!(available_name(b"{", 3), None);
    }
}
