//! Watches: how soon, and how many, events reach many watchers, and what one costs that hears nothing.

use crate::Bench;
use crate::bodies::Template;
use crate::client::{Ask, Client, JSON};
use crate::drive::{Cores, Errors, KEPT_BYTES_MAX, Load, clear, clients};
use crate::histogram::Histogram;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use http::Method;
use memchr::{memchr, memchr_iter, memmem};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

/// How long nothing may come before watchers are taken to have missed the rest.
const QUIET: Duration = Duration::from_secs(3);
/// How often it is looked whether all has come.
const LOOK: Duration = Duration::from_millis(1);
/// Events by which writers may be ahead of the watchers' average: enough for many to go out at once, and
/// few enough that no server has forgotten them when the slowest watcher asks.
const LEAD_EVENTS_MAX: u64 = 1_000;
/// Writes that are told apart; they are numbered with six digits.
const WRITES_MAX: u64 = 1_000_000;
/// What stands before the number of the write that an event tells of.
const TURN: &[u8] = b"\"turn\":\"";

/// The lines of a watch, as they come.
pub struct Lines {
    client: Client,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl Lines {
    /// Watches a path.
    pub async fn open(mut client: Client, path: &str) -> Result<Lines> {
        let status = client.send(&Ask::get(path)).await?;
        ensure!(status == 200, "a watch: {status}");
        Ok(Lines { client, rest: vec![] })
    }

    /// Hands each line that has come to `see`. False: the watch has ended.
    pub async fn read(&mut self, see: impl FnMut(&[u8])) -> Result<bool> {
        let Some(chunk) = self.client.chunk().await? else { return Ok(false) };
        split(&mut self.rest, chunk, see);
        Ok(true)
    }

    /// How many lines ended in what has come. None: the watch has ended.
    async fn count(&mut self) -> Result<Option<u64>> {
        let chunk = self.client.chunk().await?;
        Ok(chunk.map(|chunk| memchr_iter(b'\n', chunk).count() as u64))
    }
}

/// Hands each line to `see` of which the rest before and the chunk hold all; only lines over the border of
/// two chunks are copied.
fn split(rest: &mut Vec<u8>, mut chunk: &[u8], mut see: impl FnMut(&[u8])) {
    while let Some(length) = memchr(b'\n', chunk) {
        if rest.is_empty() {
            see(&chunk[..length]);
        } else {
            rest.extend_from_slice(&chunk[..length]);
            see(rest);
            rest.clear();
        }
        chunk = &chunk[length + 1..];
    }
    rest.extend_from_slice(chunk);
}

/// The revision of a collection.
pub async fn revision(client: &mut Client, path: &str) -> Result<String> {
    let list = client.must(Ask::get(format!("{path}?limit=1"))).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let text = list["metadata"]["resourceVersion"].as_str();
    text.map(str::to_owned).context("a list without a revision")
}

/// What watchers do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum See {
    /// Count it; nothing is cheaper.
    Count,
    /// Look how old it is, too.
    Time,
}

/// Writers and watchers of one collection.
pub struct Plan {
    pub watchers: usize,
    pub writers: usize,
    /// Writes of all writers a second; none: as fast as the watchers hear of them.
    pub pace: Option<u32>,
    pub see: See,
    pub span: Duration,
}

/// What came of it.
#[derive(Default)]
pub struct Heard {
    /// Of the writes; the server's time is that until the last event.
    pub writes: Load,
    /// From before a write was sent until a watcher had its event, for each of them.
    pub each: Histogram,
    /// The same until the last watcher had it.
    pub last: Histogram,
    /// Events that watchers had.
    pub events: u64,
    /// Events that they should have had and had not.
    pub missed: u64,
    /// From the first write to the last event.
    pub seconds: f64,
}

impl Heard {
    /// Events a second.
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// Time on a core for each event, the writes included, in microseconds: the server's, and ours.
    pub fn costs(&self) -> [(&'static str, Option<f64>); 2] {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / self.events.max(1) as f64;
        let Load { cpu, own, .. } = self.writes;
        [("server CPU per event", cpu.map(each)), ("load CPU per event", own.map(each))]
    }

    /// Writes that failed, and events that did not come.
    pub fn missing(&self) -> Errors {
        let mut errors = self.writes.errors.clone();
        if self.missed > 0 {
            errors.count("missed events".to_owned(), self.missed);
        }
        errors
    }
}

/// What writers and watchers share. Times are nanoseconds since `began`.
struct Shared {
    began: Instant,
    watchers: u64,
    /// The next write's number.
    next: AtomicU64,
    /// Events that watchers had.
    heard: AtomicU64,
    /// By number: when the write was sent, and when the last watcher had its event.
    times: Vec<(AtomicU64, AtomicU64)>,
}

impl Shared {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Whether writers are so far ahead that watchers may lose events for it.
    fn is_ahead(&self) -> bool {
        let written = self.next.load(Ordering::Relaxed);
        written > self.heard.load(Ordering::Relaxed) / self.watchers.max(1) + LEAD_EVENTS_MAX
    }

    /// A watcher has an event: how old it is.
    fn hear(&self, line: &[u8]) -> Option<Duration> {
        let at = memmem::find(line, TURN)? + TURN.len();
        let digits = std::str::from_utf8(line.get(at..at + 6)?).ok()?;
        let (sent, last) = self.times.get(digits.parse::<usize>().ok()?)?;
        let now = self.now();
        last.fetch_max(now, Ordering::Relaxed);
        Some(Duration::from_nanos(now.saturating_sub(sent.load(Ordering::Relaxed))))
    }
}

/// A ConfigMap of which each write has a number, as watchers look for it.
pub fn numbered_map(payload: usize) -> Template {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{name}"},
        "data": {"payload": "x".repeat(payload), "turn": "{turn}"}});
    Template::new(&body.to_string())
}

/// Lets writers write and watchers watch.
pub async fn fan_out(bench: &Bench, body: Template, plan: Plan) -> Result<Heard> {
    let path = bench.maps();
    let mut client = Client::connect(&bench.target).await?;
    for writer in 0..plan.writers {
        client.must(Ask::post(&path, body.fill(&object(writer), 0))).await?;
    }
    let shared = Arc::new(Shared {
        began: Instant::now(),
        watchers: plan.watchers as u64,
        // The objects were made with 0; to write that again would change nothing.
        next: AtomicU64::new(1),
        heard: AtomicU64::new(0),
        times: (0..WRITES_MAX).map(|_| Default::default()).collect(),
    });
    let watch = format!("{path}?watch=1&resourceVersion={}", revision(&mut client, &path).await?);
    let (mut watchers, mut ages) = (JoinSet::new(), vec![]);
    for client in clients(bench, plan.watchers).await? {
        let lines = Lines::open(client, &watch).await?;
        let age = Arc::new(Mutex::new(Histogram::default()));
        ages.push(age.clone());
        watchers.spawn(listen(lines, shared.clone(), plan.see, age));
    }
    let (wrote, cores) = (Instant::now(), Cores::now(bench)?);
    let mut writers = JoinSet::new();
    for (number, client) in clients(bench, plan.writers).await?.into_iter().enumerate() {
        writers.spawn(write(client, number, path.clone(), body.clone(), &plan, shared.clone()));
    }
    let mut heard = Heard::default();
    while let Some(writer) = writers.join_next().await {
        heard.writes.merge(&writer??);
    }
    heard.writes.seconds = wrote.elapsed().as_secs_f64();
    let due = heard.writes.latency.total() * plan.watchers as u64;
    let (mut last, mut seen) = (Instant::now(), 0);
    while seen < due && last.elapsed() < QUIET {
        sleep(LOOK).await;
        let now = shared.heard.load(Ordering::Relaxed);
        if now > seen {
            (seen, last) = (now, Instant::now());
        }
    }
    (heard.writes.cpu, heard.writes.own) = cores.since(bench)?;
    watchers.shutdown().await;
    heard.seconds = last.duration_since(wrote).as_secs_f64();
    (heard.events, heard.missed) = (seen, due.saturating_sub(seen));
    for age in ages {
        heard.each.merge(&age.lock().unwrap_or_else(PoisonError::into_inner));
    }
    for (sent, last) in &shared.times {
        let (sent, last) = (sent.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
        if last > 0 {
            heard.last.add(Duration::from_nanos(last.saturating_sub(sent)));
        }
    }
    clear(bench, &path).await?;
    Ok(heard)
}

fn object(writer: usize) -> String {
    format!("watch-{writer}")
}

/// One watcher.
async fn listen(
    mut lines: Lines,
    shared: Arc<Shared>,
    see: See,
    ages: Arc<Mutex<Histogram>>,
) -> Result<()> {
    loop {
        let events = if see == See::Count {
            let Some(events) = lines.count().await? else { return Ok(()) };
            events
        } else {
            let mut events = 0;
            let look = |line: &[u8]| {
                events += 1;
                if let Some(age) = shared.hear(line) {
                    ages.lock().unwrap_or_else(PoisonError::into_inner).add(age);
                }
            };
            if !lines.read(look).await? {
                return Ok(());
            }
            events
        };
        shared.heard.fetch_add(events, Ordering::Relaxed);
    }
}

/// One writer, which changes one object again and again.
fn write(
    mut client: Client,
    number: usize,
    path: String,
    body: Template,
    plan: &Plan,
    shared: Arc<Shared>,
) -> impl Future<Output = Result<Load>> + Send + 'static {
    let (span, writers) = (plan.span, plan.writers as u32);
    // One after the other, evenly.
    let mut ticks = plan.pace.map(|pace| {
        let apart = Duration::from_secs(1) / pace;
        let mut ticks =
            interval_at(tokio::time::Instant::now() + apart * number as u32, apart * writers);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    async move {
        let (name, began) = (object(number), Instant::now());
        let path = format!("{path}/{name}");
        let (mut load, mut answer) = (Load::default(), vec![]);
        while began.elapsed() < span {
            match &mut ticks {
                Some(ticks) => drop(ticks.tick().await),
                None if shared.is_ahead() => {
                    sleep(LOOK).await;
                    continue;
                }
                None => {}
            }
            let turn = shared.next.fetch_add(1, Ordering::Relaxed) % WRITES_MAX;
            let ask = Ask::new(Method::PUT, &path, JSON, body.fill(&name, turn));
            let sent = Instant::now();
            shared.times[turn as usize].0.store(shared.now(), Ordering::Relaxed);
            let got = client.skim(&ask, KEPT_BYTES_MAX, &mut answer).await;
            load.add(&ask, sent.elapsed(), &got, &answer);
            got?;
        }
        Ok(load)
    }
}

/// Writes as fast as watchers hear of it, and measures when each of them does.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (watchers, writers) = (bench.run.watchers, 4);
    let (pace, see) = (bench.run.pace, See::Time);
    let plan = Plan { watchers, writers, pace, see, span: bench.span() };
    let heard = fan_out(bench, numbered_map(bench.run.size), plan).await?;
    let title = format!("watch, {watchers} watchers, {writers} writers");
    report.add(&title, "rate", "/s", heard.rate());
    report.add_latency(&title, &heard.each);
    report.add_errors(&title, &heard.missing());
    report.add(&title, "writes", "/s", heard.writes.rate());
    for (what, cost) in heard.costs() {
        if let Some(cost) = cost {
            report.add(&title, what, "us", cost);
        }
    }
    Ok(())
}

/// What one watch that hears nothing takes up of the server, in kB; none where its process is not known.
pub async fn idle(bench: &Bench, count: usize) -> Result<Option<f64>> {
    let Some(server) = &bench.processes else { return Ok(None) };
    let path = bench.maps();
    let mut client = Client::connect(&bench.target).await?;
    let watch = format!("{path}?watch=1&resourceVersion={}", revision(&mut client, &path).await?);
    // What the first one brings about is no matter of each.
    let _first = Lines::open(client, &watch).await?;
    let before = server.memory()?.rss;
    let mut open = vec![];
    for client in clients(bench, count).await? {
        open.push(Lines::open(client, &watch).await?);
    }
    sleep(bench.settle()).await;
    let more = server.memory()?.rss - before;
    Ok(Some(more * 1e3 / open.len().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_whatever_the_chunks_are() {
        let text = b"one\ntwo\n\nthree\nfo";
        for size in 1..=text.len() {
            let (mut rest, mut got) = (vec![], vec![]);
            for chunk in text.chunks(size) {
                split(&mut rest, chunk, |line| {
                    got.push(String::from_utf8_lossy(line).into_owned())
                });
            }
            assert_eq!(got, ["one", "two", "", "three"], "{size}");
            assert_eq!(rest, b"fo", "{size}");
        }
    }

    #[test]
    fn an_event_tells_when_its_write_was_sent() {
        let shared = Shared {
            began: Instant::now() - Duration::from_secs(10),
            watchers: 2,
            next: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            times: (0..10).map(|_| Default::default()).collect(),
        };
        shared.times[7].0.store(4_000_000_000, Ordering::Relaxed);
        let event = br#"{"object":{"data":{"turn":"000007"}}}"#;
        let age = shared.hear(event).expect("an age").as_secs_f64();
        assert!((6.0..7.0).contains(&age), "{age}");
        assert!(shared.times[7].1.load(Ordering::Relaxed) >= 10_000_000_000);
        for other in [&br#"{"turn":"000011"}"#[..], br#"{"turn":"00000"#, br#"{"f:turn":{}}"#] {
            assert!(shared.hear(other).is_none());
        }
    }

    #[test]
    fn writers_wait_for_watchers_to_hear() {
        let shared = Shared {
            began: Instant::now(),
            watchers: 10,
            next: AtomicU64::new(LEAD_EVENTS_MAX),
            heard: AtomicU64::new(0),
            times: vec![],
        };
        assert!(!shared.is_ahead());
        shared.next.fetch_add(1, Ordering::Relaxed);
        assert!(shared.is_ahead());
        shared.heard.store(10, Ordering::Relaxed);
        assert!(!shared.is_ahead());
    }
}
