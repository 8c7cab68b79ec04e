//! Workers that each have one request under way, for a while.

use crate::Bench;
use crate::bodies::member;
use crate::client::{Ask, Client};
use crate::histogram::Histogram;
use crate::process::Processes;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a store may take to be filled for one line.
pub const FILL: Duration = Duration::from_secs(120);
/// How long a worker waits before it connects again.
const RECONNECT: Duration = Duration::from_millis(20);
/// How long the last requests may take when the time is over.
const REST: Duration = Duration::from_secs(60);
/// What a worker keeps of an answer: enough for the revision of an object, and for a Status.
pub const KEPT_BYTES_MAX: usize = 4096;
/// Requests that one connection of HTTP/2 carries at once; kube-apiserver's limit.
const STREAMS_MAX: usize = 100;
/// Kinds of errors that are told apart.
const NAMES_MAX: usize = 20;
/// How long the account of a new namespace may take, without which it takes no pods.
const ACCOUNT_WAIT: Duration = Duration::from_secs(10);

/// Requests that did not succeed, by what came instead.
#[derive(Clone, Debug, Default)]
pub struct Errors(BTreeMap<String, u64>);

impl Errors {
    /// Counts what a request got: an answer that is no success, or none.
    pub fn add(&mut self, ask: &Ask, answer: &Result<(u16, u64)>, body: &[u8]) {
        let name = match answer {
            Ok((status, _)) => {
                format!("{} {status} {}", ask.method, member(body, "reason").unwrap_or_default())
            }
            Err(error) => format!("{}: {}", ask.method, error.root_cause()),
        };
        self.count(name.trim_end().to_owned(), 1);
    }

    /// Counts all that others counted.
    pub fn merge(&mut self, other: &Errors) {
        other.0.iter().for_each(|(name, more)| self.count(name.clone(), *more));
    }

    /// Counts more of one name.
    pub fn count(&mut self, name: String, more: u64) {
        let is_new = !self.0.contains_key(&name);
        let name = if is_new && self.0.len() >= NAMES_MAX { "others".to_owned() } else { name };
        *self.0.entry(name).or_default() += more;
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each name, and how often.
    pub fn named(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

/// What came of a load.
#[derive(Default)]
pub struct Load {
    /// Of the requests that succeeded.
    pub latency: Histogram,
    /// Requests that did not.
    pub errors: Errors,
    /// Of answers' bodies.
    pub bytes: u64,
    /// How many requests each worker did.
    pub done: Vec<u64>,
    /// From the first request to the last.
    pub seconds: f64,
    /// What the server's processes took, where they are known.
    pub cpu: Option<Duration>,
    /// What this process took, which the server could not have on the same machine.
    pub own: Option<Duration>,
}

impl Load {
    /// Successes a second.
    pub fn rate(&self) -> f64 {
        self.latency.total() as f64 / self.seconds
    }

    /// The server's time for each request, in milliseconds.
    pub fn cpu_each(&self) -> Option<f64> {
        self.cpu.map(|time| self.each(time))
    }

    /// Our own time for each request, in milliseconds.
    pub fn own_each(&self) -> Option<f64> {
        self.own.map(|time| self.each(time))
    }

    fn each(&self, time: Duration) -> f64 {
        let requests = self.latency.total() + self.errors.total();
        time.as_secs_f64() * 1e3 / requests.max(1) as f64
    }

    /// Counts what came of one request.
    pub fn add(&mut self, ask: &Ask, took: Duration, answer: &Result<(u16, u64)>, body: &[u8]) {
        match answer {
            Ok((200..300, length)) => {
                self.latency.add(took);
                self.bytes += length;
            }
            other => self.errors.add(ask, other, body),
        }
    }

    /// Counts all that another one counted.
    pub fn merge(&mut self, other: &Load) {
        self.latency.merge(&other.latency);
        self.errors.merge(&other.errors);
        self.bytes += other.bytes;
    }
}

/// The time on cores that the server and this process had so far.
pub struct Cores {
    server: Option<Duration>,
    own: Option<Duration>,
}

impl Cores {
    /// Until now.
    pub fn now(bench: &Bench) -> Result<Cores> {
        let own = Processes(vec![std::process::id()]).cpu().ok();
        Ok(Cores { server: bench.seen(Processes::cpu)?, own })
    }

    /// How much more it is by now: the server's, and ours.
    pub fn since(&self, bench: &Bench) -> Result<(Option<Duration>, Option<Duration>)> {
        let now = Cores::now(bench)?;
        let more = |now: Option<Duration>, before| Some(now?.saturating_sub(before?));
        Ok((more(now.server, self.server), more(now.own, self.own)))
    }
}

/// As many clients as there are workers: of one connection each, or as many to a connection as it carries.
pub async fn clients(bench: &Bench, count: usize) -> Result<Vec<Client>> {
    let mut clients: Vec<Client> = vec![];
    for number in 0..count {
        let with_room = clients.last().filter(|_| number % STREAMS_MAX != 0);
        clients.push(match with_room.and_then(Client::share) {
            Some(client) => client,
            None => Client::connect(&bench.target).await?,
        });
    }
    Ok(clients)
}

/// Lets every worker ask what `ask(worker, how many before, the beginning of the last answer)` says until
/// the time is over, or there is nothing more to ask.
pub async fn drive<F>(bench: &Bench, workers: usize, span: Duration, ask: F) -> Result<Load>
where
    F: Fn(usize, u64, &[u8]) -> Option<Ask> + Send + Sync + 'static,
{
    let ask = Arc::new(ask);
    let clients = clients(bench, workers).await?;
    let cores = Cores::now(bench)?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let (ask, target) = (ask.clone(), bench.target.clone());
        tasks.spawn(async move {
            let mut client = Some(client);
            let (mut load, mut done, mut last) = (Load::default(), 0, vec![]);
            while began.elapsed() < span
                && let Some(asked) = ask(number, done, &last)
            {
                let Some(connected) = &mut client else {
                    client = Client::connect(&target).await.ok();
                    tokio::time::sleep(RECONNECT).await;
                    continue;
                };
                done += 1;
                let sent = Instant::now();
                let answer = connected.skim(&asked, KEPT_BYTES_MAX, &mut last).await;
                load.add(&asked, sent.elapsed(), &answer, &last);
                if answer.is_err() {
                    client = None;
                }
            }
            (number, done, load)
        });
    }
    let mut all = Load { done: vec![0; workers], ..Load::default() };
    let until = tokio::time::Instant::from_std(began + span + REST);
    while let Some(worker) =
        tokio::time::timeout_at(until, tasks.join_next()).await.context("no answer in time")?
    {
        let (number, done, load) = worker?;
        all.merge(&load);
        all.done[number] = done;
    }
    all.seconds = began.elapsed().as_secs_f64();
    (all.cpu, all.own) = cores.since(bench)?;
    Ok(all)
}

/// Makes `count` objects with as many connections as are given, each once; an error ends it. False: the
/// time was over before they were all there.
pub async fn fill<F>(
    bench: &Bench,
    count: usize,
    workers: usize,
    span: Duration,
    make: F,
) -> Result<bool>
where
    F: Fn(usize) -> Ask + Send + Sync + 'static,
{
    let made = each(bench, count, workers, span, make).await?;
    let names: Vec<_> = made.errors.named().collect();
    ensure!(names.is_empty(), "to make {count} objects: {names:?}");
    Ok(made.latency.total() == count as u64)
}

/// Asks `count` requests with as many connections as are given, each once, as long as there is time.
pub async fn each<F>(
    bench: &Bench,
    count: usize,
    workers: usize,
    span: Duration,
    ask: F,
) -> Result<Load>
where
    F: Fn(usize) -> Ask + Send + Sync + 'static,
{
    drive(bench, workers, span, move |worker, number, _| {
        let number = number as usize * workers + worker;
        (number < count).then(|| ask(number))
    })
    .await
}

/// The namespace of this run's objects, ready to take pods.
pub async fn make_namespace(bench: &Bench) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let body = json!({"metadata": {"name": bench.namespace}}).to_string();
    client.must(Ask::post("/api/v1/namespaces", body)).await?;
    // A server whose loops do not run makes no accounts; it may want none either.
    let account = Ask::get(format!("{}/default", bench.path("/api/v1", "serviceaccounts")));
    let (began, mut body) = (Instant::now(), vec![]);
    while client.skim(&account, 0, &mut body).await?.0 != 200 && began.elapsed() < ACCOUNT_WAIT {
        tokio::time::sleep(RECONNECT).await;
    }
    Ok(())
}

/// Deletes it and what is in it.
pub async fn drop_namespace(bench: &Bench) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    client.must(Ask::delete(format!("/api/v1/namespaces/{}", bench.namespace))).await?;
    Ok(())
}

/// Deletes all objects of a collection.
pub async fn clear(bench: &Bench, path: &str) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    client.must(Ask::delete(path)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_what_the_server_said() {
        let (ask, mut errors) = (Ask::get("/"), Errors::default());
        let status = br#"{"kind":"Status","reason":"TooManyRequests","code":429}"#;
        errors.add(&ask, &Ok((429, 10)), status);
        errors.add(&ask, &Ok((429, 10)), status);
        errors.add(&ask, &Ok((502, 0)), b"bad gateway");
        errors.add(&ask, &Err(anyhow::anyhow!("the connection ended").context("x")), b"");
        let named: Vec<_> = errors.named().collect();
        let want =
            [("GET 429 TooManyRequests", 2), ("GET 502", 1), ("GET: the connection ended", 1)];
        assert_eq!(named, want);
        assert_eq!(errors.total(), 4);
    }

    #[test]
    fn no_more_names_are_kept_than_the_maximum() {
        let mut errors = Errors::default();
        (0..100).for_each(|number| errors.count(format!("error {number}"), 1));
        errors.count("error 0".to_owned(), 1);
        assert_eq!(errors.total(), 101);
        let named: Vec<_> = errors.named().collect();
        assert_eq!(named.len(), NAMES_MAX + 1);
        assert!(named.contains(&("others", 80)) && named.contains(&("error 0", 2)), "{named:?}");
    }
}
