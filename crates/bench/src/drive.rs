//! The load: workers with one request in flight each, for a given time.

use crate::Bench;
use crate::bodies::member;
use crate::client::{ApiRequest, Client};
use crate::histogram::Histogram;
use crate::process::Processes;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Timeout of filling the store for one row.
pub const FILL_TIME_MAX: Duration = Duration::from_secs(120);
/// Delay before a worker connects again.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);
/// Timeout of the last requests when the time is over.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of a response that a worker keeps: enough for the resourceVersion of an object, and for a
/// Status.
pub const BODY_PREFIX_BYTES_MAX: usize = 4096;
/// Concurrent requests on one HTTP/2 connection; kube-apiserver's limit.
pub const STREAMS_MAX: usize = 100;
/// Distinct errors that are counted separately.
const NAMES_MAX: usize = 20;
/// Timeout of the `default` service account of a new namespace, which pods need.
const ACCOUNT_TIME_MAX: Duration = Duration::from_secs(10);

/// Counts of failed requests, by error.
#[derive(Clone, Debug, Default)]
pub struct Errors(BTreeMap<String, u64>);

impl Errors {
    /// Counts a request that failed: a status other than 2xx, or no response.
    pub fn add(&mut self, request: &ApiRequest, answer: &Result<(u16, u64)>, body: &[u8]) {
        let name = match answer {
            Ok((status, _)) => {
                format!(
                    "{} {status} {}",
                    request.method,
                    member(body, "reason").unwrap_or_default()
                )
            }
            Err(error) => format!("{}: {}", request.method, error.root_cause()),
        };
        self.count(name.trim_end().to_owned(), 1);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Errors) {
        other.0.iter().for_each(|(name, more)| self.count(name.clone(), *more));
    }

    /// Adds to the count of one error.
    pub fn count(&mut self, name: String, more: u64) {
        let is_new = !self.0.contains_key(&name);
        let name = if is_new && self.0.len() >= NAMES_MAX { "others".to_owned() } else { name };
        *self.0.entry(name).or_default() += more;
    }

    /// Returns the number of failed requests.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns each error with its count.
    pub fn named(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

/// The result of a load.
#[derive(Default)]
pub struct Load {
    /// Latency of the requests that succeeded.
    pub latency: Histogram,
    /// The requests that failed.
    pub errors: Errors,
    /// Bytes of all response bodies.
    pub bytes: u64,
    /// Number of requests of each worker.
    pub done: Vec<u64>,
    /// Time from the first request to the last.
    pub seconds: f64,
    /// CPU time of the server's processes, if they are known.
    pub server_cpu: Option<Duration>,
    /// CPU time of this process, which it takes from a server on the same machine.
    pub client_cpu: Option<Duration>,
}

impl Load {
    /// Returns the successful requests per second.
    pub fn rate(&self) -> f64 {
        self.latency.total() as f64 / self.seconds
    }

    /// Returns the server's CPU time per request, in milliseconds.
    pub fn server_cpu_ms(&self) -> Option<f64> {
        self.server_cpu.map(|time| self.ms_per_request(time))
    }

    /// Returns the CPU time of this process per request, in milliseconds.
    pub fn client_cpu_ms(&self) -> Option<f64> {
        self.client_cpu.map(|time| self.ms_per_request(time))
    }

    fn ms_per_request(&self, time: Duration) -> f64 {
        let requests = self.latency.total() + self.errors.total();
        time.as_secs_f64() * 1e3 / requests.max(1) as f64
    }

    /// Counts one request.
    pub fn add(
        &mut self,
        request: &ApiRequest,
        took: Duration,
        answer: &Result<(u16, u64)>,
        body: &[u8],
    ) {
        match answer {
            Ok((200..300, length)) => {
                self.latency.add(took);
                self.bytes += length;
            }
            other => self.errors.add(request, other, body),
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Load) {
        self.latency.merge(&other.latency);
        self.errors.merge(&other.errors);
        self.bytes += other.bytes;
    }
}

/// The CPU times of the server and of this process since their starts.
pub struct CpuTimes {
    server: Option<Duration>,
    own: Option<Duration>,
}

impl CpuTimes {
    /// Reads the current times.
    pub fn now(bench: &Bench) -> Result<CpuTimes> {
        let own = Processes(vec![std::process::id()]).cpu().ok();
        Ok(CpuTimes { server: bench.sample(Processes::cpu)?, own })
    }

    /// Returns the CPU times since then, of the server and of this process.
    pub fn since(&self, bench: &Bench) -> Result<(Option<Duration>, Option<Duration>)> {
        let now = CpuTimes::now(bench)?;
        let more = |now: Option<Duration>, before| Some(now?.saturating_sub(before?));
        Ok((more(now.server, self.server), more(now.own, self.own)))
    }
}

/// Returns `count` clients, each with its own HTTP/1.1 connection, or [`STREAMS_MAX`] on each
/// HTTP/2 connection.
pub async fn clients(bench: &Bench, count: usize) -> Result<Vec<Client>> {
    let mut clients: Vec<Client> = vec![];
    for number in 0..count {
        let shareable = clients.last().filter(|_| number % STREAMS_MAX != 0);
        clients.push(match shareable.and_then(Client::share) {
            Some(client) => client,
            None => Client::connect(&bench.target).await?,
        });
    }
    Ok(clients)
}

/// Lets each worker send requests until the time is over. `next` returns the next request, or
/// `None` to end; it gets the index of the worker, the number of its requests so far, and the
/// beginning of the last response.
pub async fn drive<F>(bench: &Bench, workers: usize, duration: Duration, next: F) -> Result<Load>
where
    F: Fn(usize, u64, &[u8]) -> Option<ApiRequest> + Send + Sync + 'static,
{
    let next = Arc::new(next);
    let clients = clients(bench, workers).await?;
    let cpu_times = CpuTimes::now(bench)?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let next = next.clone();
        let target = bench.target.clone();
        tasks.spawn(async move {
            let mut client = Some(client);
            let mut load = Load::default();
            let mut done = 0;
            let mut last = vec![];
            while began.elapsed() < duration
                && let Some(request) = next(number, done, &last)
            {
                let Some(connected) = &mut client else {
                    client = Client::connect(&target).await.ok();
                    tokio::time::sleep(RECONNECT_DELAY).await;
                    continue;
                };
                done += 1;
                let sent = Instant::now();
                let answer = connected.execute(&request, BODY_PREFIX_BYTES_MAX, &mut last).await;
                load.add(&request, sent.elapsed(), &answer, &last);
                if answer.is_err() {
                    client = None;
                }
            }
            (number, done, load)
        });
    }
    let mut all = Load { done: vec![0; workers], ..Load::default() };
    let until = tokio::time::Instant::from_std(began + duration + DRAIN_TIME_MAX);
    while let Some(worker) =
        tokio::time::timeout_at(until, tasks.join_next()).await.context("no answer in time")?
    {
        let (number, done, load) = worker?;
        all.merge(&load);
        all.done[number] = done;
    }
    all.seconds = began.elapsed().as_secs_f64();
    (all.server_cpu, all.client_cpu) = cpu_times.since(bench)?;
    Ok(all)
}

/// Creates `count` objects with `workers` connections. A failed request is an error. Returns false
/// if the time was over before all objects were created.
pub async fn fill<F>(
    bench: &Bench,
    count: usize,
    workers: usize,
    duration: Duration,
    make: F,
) -> Result<bool>
where
    F: Fn(usize) -> ApiRequest + Send + Sync + 'static,
{
    let made = each(bench, count, workers, duration, make).await?;
    let names: Vec<_> = made.errors.named().collect();
    ensure!(names.is_empty(), "to make {count} objects: {names:?}");
    Ok(made.latency.total() == count as u64)
}

/// Sends `count` requests with `workers` connections, until the time is over.
pub async fn each<F>(
    bench: &Bench,
    count: usize,
    workers: usize,
    duration: Duration,
    request: F,
) -> Result<Load>
where
    F: Fn(usize) -> ApiRequest + Send + Sync + 'static,
{
    drive(bench, workers, duration, move |worker, number, _| {
        let number = number as usize * workers + worker;
        (number < count).then(|| request(number))
    })
    .await
}

/// Creates the namespace of this run, and waits until pods can be created in it.
pub async fn make_namespace(bench: &Bench) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let body = json!({"metadata": {"name": bench.namespace}}).to_string();
    client.require_success(ApiRequest::post("/api/v1/namespaces", body)).await?;
    // Not an error when it never appears: a server without controllers may not need it.
    let account = ApiRequest::get(format!("{}/default", bench.path("/api/v1", "serviceaccounts")));
    let began = Instant::now();
    let mut body = vec![];
    while client.execute(&account, 0, &mut body).await?.0 != 200
        && began.elapsed() < ACCOUNT_TIME_MAX
    {
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
    Ok(())
}

/// Deletes the namespace of this run.
pub async fn drop_namespace(bench: &Bench) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    client
        .require_success(ApiRequest::delete(format!("/api/v1/namespaces/{}", bench.namespace)))
        .await?;
    Ok(())
}

/// Deletes all objects of a collection.
pub async fn clear(bench: &Bench, path: &str) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    client.require_success(ApiRequest::delete(path)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_method_status_and_reason() {
        let request = ApiRequest::get("/");
        let mut errors = Errors::default();
        let status = br#"{"kind":"Status","reason":"TooManyRequests","code":429}"#;
        errors.add(&request, &Ok((429, 10)), status);
        errors.add(&request, &Ok((429, 10)), status);
        errors.add(&request, &Ok((502, 0)), b"bad gateway");
        errors.add(&request, &Err(anyhow::anyhow!("the connection ended").context("x")), b"");
        let named: Vec<_> = errors.named().collect();
        let want =
            [("GET 429 TooManyRequests", 2), ("GET 502", 1), ("GET: the connection ended", 1)];
        assert_eq!(named, want);
        assert_eq!(errors.total(), 4);
    }

    #[test]
    fn errors_beyond_the_maximum_are_counted_together() {
        let mut errors = Errors::default();
        (0..100).for_each(|number| errors.count(format!("error {number}"), 1));
        errors.count("error 0".to_owned(), 1);
        assert_eq!(errors.total(), 101);
        let named: Vec<_> = errors.named().collect();
        assert_eq!(named.len(), NAMES_MAX + 1);
        assert!(named.contains(&("others", 80)) && named.contains(&("error 0", 2)), "{named:?}");
    }
}
