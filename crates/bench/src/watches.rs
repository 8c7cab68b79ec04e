//! Watches: rate and latency of events to many watchers, and the memory of an idle watch.

use crate::Bench;
use crate::bodies::Template;
use crate::client::{ApiRequest, Client, JSON};
use crate::drive::{BODY_PREFIX_BYTES_MAX, CpuTimes, Errors, Load, clear, clients};
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

/// After this time without events the missing ones count as missed.
const QUIET_TIME_MAX: Duration = Duration::from_secs(3);
/// Interval of the checks whether all events have arrived.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum of events that writers are ahead of the average watcher: enough for many to be sent at
/// once, and few enough that they are still in the server's history for the slowest watcher.
const LEAD_EVENTS_MAX: u64 = 1_000;
/// Writes are numbered with six digits.
const WRITES_MAX: u64 = 1_000_000;
/// The text before the number of the write in an event.
const TURN: &[u8] = b"\"turn\":\"";

/// The lines of a watch.
pub struct WatchLines {
    client: Client,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
}

impl WatchLines {
    /// Opens a watch.
    pub async fn open(mut client: Client, path: &str) -> Result<WatchLines> {
        let status = client.send(&ApiRequest::get(path)).await?;
        ensure!(status == 200, "a watch: {status}");
        Ok(WatchLines { client, rest: vec![] })
    }

    /// Reads once and calls `on_line` with each complete line. Returns false when the watch has
    /// ended.
    pub async fn read(&mut self, on_line: impl FnMut(&[u8])) -> Result<bool> {
        let Some(chunk) = self.client.chunk().await? else { return Ok(false) };
        split(&mut self.rest, chunk, on_line);
        Ok(true)
    }

    /// Reads once and returns the number of complete lines; `None` when the watch has ended.
    async fn count(&mut self) -> Result<Option<u64>> {
        let chunk = self.client.chunk().await?;
        Ok(chunk.map(|chunk| memchr_iter(b'\n', chunk).count() as u64))
    }
}

/// Calls `on_line` with each complete line of `rest` and `chunk`. Only lines that duration chunks
/// are copied.
fn split(rest: &mut Vec<u8>, mut chunk: &[u8], mut on_line: impl FnMut(&[u8])) {
    while let Some(length) = memchr(b'\n', chunk) {
        if rest.is_empty() {
            on_line(&chunk[..length]);
        } else {
            rest.extend_from_slice(&chunk[..length]);
            on_line(rest);
            rest.clear();
        }
        chunk = &chunk[length + 1..];
    }
    rest.extend_from_slice(chunk);
}

/// Returns the resourceVersion of a collection.
pub async fn revision(client: &mut Client, path: &str) -> Result<String> {
    let list = client.require_success(ApiRequest::get(format!("{path}?limit=1"))).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let text = list["metadata"]["resourceVersion"].as_str();
    text.map(str::to_owned).context("a list without a revision")
}

/// What watchers measure of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Nothing; they count it.
    Count,
    /// Its latency.
    Latency,
}

/// Writers and watchers of one collection.
pub struct FanOutPlan {
    pub watchers: usize,
    pub writers: usize,
    /// Writes of all writers per second; `None`: as fast as the watchers receive the events.
    pub pace: Option<u32>,
    pub measure: Measure,
    pub duration: Duration,
}

/// The result of [`fan_out`].
#[derive(Default)]
pub struct FanOut {
    /// The writes. The CPU times are those until the last event.
    pub writes: Load,
    /// Time from sending a write until a watcher received the event, for each watcher.
    pub each: Histogram,
    /// Time from sending a write until the last watcher received the event.
    pub last: Histogram,
    /// Events that watchers received.
    pub events: u64,
    /// Events that did not arrive.
    pub missed: u64,
    /// Time from the first write to the last event.
    pub seconds: f64,
}

impl FanOut {
    /// Returns the events per second.
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// Returns the CPU time per event in microseconds, writes included, of the server and of this
    /// process.
    pub fn costs(&self) -> [(&'static str, Option<f64>); 2] {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / self.events.max(1) as f64;
        let Load { server_cpu, client_cpu, .. } = self.writes;
        [
            ("server CPU per event", server_cpu.map(each)),
            ("load CPU per event", client_cpu.map(each)),
        ]
    }

    /// Returns the failed writes and the missed events.
    pub fn missing(&self) -> Errors {
        let mut errors = self.writes.errors.clone();
        if self.missed > 0 {
            errors.count("missed events".to_owned(), self.missed);
        }
        errors
    }
}

/// The state that writers and watchers share. Times are nanoseconds since `began`.
struct Shared {
    began: Instant,
    watchers: u64,
    /// Number of the next write.
    next: AtomicU64,
    /// Events that watchers have received.
    received: AtomicU64,
    /// For each write: when it was sent, and when the last watcher received the event.
    times: Vec<(AtomicU64, AtomicU64)>,
}

impl Shared {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Whether writers must wait, so that no watcher falls behind the server's history.
    fn is_ahead(&self) -> bool {
        let render = self.next.load(Ordering::Relaxed);
        render > self.received.load(Ordering::Relaxed) / self.watchers.max(1) + LEAD_EVENTS_MAX
    }

    /// Records an event, and returns its latency.
    fn record(&self, line: &[u8]) -> Option<Duration> {
        let at = memmem::find(line, TURN)? + TURN.len();
        let digits = std::str::from_utf8(line.get(at..at + 6)?).ok()?;
        let (sent, last) = self.times.get(digits.parse::<usize>().ok()?)?;
        let now = self.now();
        last.fetch_max(now, Ordering::Relaxed);
        Some(Duration::from_nanos(now.saturating_sub(sent.load(Ordering::Relaxed))))
    }
}

/// Returns a ConfigMap that contains the number of its write.
pub fn numbered_config_map(payload: usize) -> Template {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{name}"},
        "data": {"payload": "x".repeat(payload), "turn": "{turn}"}});
    Template::new(&body.to_string())
}

/// Runs writers and watchers, and measures the events.
pub async fn fan_out(bench: &Bench, body: Template, plan: FanOutPlan) -> Result<FanOut> {
    let path = bench.config_maps();
    let mut client = Client::connect(&bench.target).await?;
    for writer in 0..plan.writers {
        client.require_success(ApiRequest::post(&path, body.fill(&object(writer), 0))).await?;
    }
    let shared = Arc::new(Shared {
        began: Instant::now(),
        watchers: plan.watchers as u64,
        // The objects were created with 0: writing it again would be no change.
        next: AtomicU64::new(1),
        received: AtomicU64::new(0),
        times: (0..WRITES_MAX).map(|_| Default::default()).collect(),
    });
    let watch = format!("{path}?watch=1&resourceVersion={}", revision(&mut client, &path).await?);
    let mut watchers = JoinSet::new();
    let mut ages = vec![];
    for client in clients(bench, plan.watchers).await? {
        let lines = WatchLines::open(client, &watch).await?;
        let age = Arc::new(Mutex::new(Histogram::default()));
        ages.push(age.clone());
        watchers.spawn(listen(lines, shared.clone(), plan.measure, age));
    }
    let wrote = Instant::now();
    let cpu_times = CpuTimes::now(bench)?;
    let mut writers = JoinSet::new();
    for (number, client) in clients(bench, plan.writers).await?.into_iter().enumerate() {
        writers.spawn(write(client, number, path.clone(), body.clone(), &plan, shared.clone()));
    }
    let mut result = FanOut::default();
    while let Some(writer) = writers.join_next().await {
        result.writes.merge(&writer??);
    }
    result.writes.seconds = wrote.elapsed().as_secs_f64();
    let due = result.writes.latency.total() * plan.watchers as u64;
    let mut last = Instant::now();
    let mut sample = 0;
    while sample < due && last.elapsed() < QUIET_TIME_MAX {
        sleep(POLL_INTERVAL).await;
        let now = shared.received.load(Ordering::Relaxed);
        if now > sample {
            (sample, last) = (now, Instant::now());
        }
    }
    (result.writes.server_cpu, result.writes.client_cpu) = cpu_times.since(bench)?;
    watchers.shutdown().await;
    result.seconds = last.duration_since(wrote).as_secs_f64();
    (result.events, result.missed) = (sample, due.saturating_sub(sample));
    for age in ages {
        result.each.merge(&age.lock().unwrap_or_else(PoisonError::into_inner));
    }
    for (sent, last) in &shared.times {
        let sent = sent.load(Ordering::Relaxed);
        let last = last.load(Ordering::Relaxed);
        if last > 0 {
            result.last.add(Duration::from_nanos(last.saturating_sub(sent)));
        }
    }
    clear(bench, &path).await?;
    Ok(result)
}

fn object(writer: usize) -> String {
    format!("watch-{writer}")
}

/// Runs a watcher.
async fn listen(
    mut lines: WatchLines,
    shared: Arc<Shared>,
    measure: Measure,
    ages: Arc<Mutex<Histogram>>,
) -> Result<()> {
    loop {
        let events = if measure == Measure::Count {
            let Some(events) = lines.count().await? else { return Ok(()) };
            events
        } else {
            let mut events = 0;
            let on_line = |line: &[u8]| {
                events += 1;
                if let Some(age) = shared.record(line) {
                    ages.lock().unwrap_or_else(PoisonError::into_inner).add(age);
                }
            };
            if !lines.read(on_line).await? {
                return Ok(());
            }
            events
        };
        shared.received.fetch_add(events, Ordering::Relaxed);
    }
}

/// Runs a writer, which updates one object again and again.
fn write(
    mut client: Client,
    number: usize,
    path: String,
    body: Template,
    plan: &FanOutPlan,
    shared: Arc<Shared>,
) -> impl Future<Output = Result<Load>> + Send + 'static {
    let duration = plan.duration;
    let writers = plan.writers as u32;
    // The writes of all writers are spread evenly.
    let mut ticks = plan.pace.map(|pace| {
        let run_standalone = Duration::from_secs(1) / pace;
        let mut ticks = interval_at(
            tokio::time::Instant::now() + run_standalone * number as u32,
            run_standalone * writers,
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    async move {
        let name = object(number);
        let began = Instant::now();
        let path = format!("{path}/{name}");
        let mut load = Load::default();
        let mut answer = vec![];
        while began.elapsed() < duration {
            match &mut ticks {
                Some(ticks) => drop(ticks.tick().await),
                None if shared.is_ahead() => {
                    sleep(POLL_INTERVAL).await;
                    continue;
                }
                None => {}
            }
            let turn = shared.next.fetch_add(1, Ordering::Relaxed) % WRITES_MAX;
            let request = ApiRequest::new(Method::PUT, &path, JSON, body.fill(&name, turn));
            let sent = Instant::now();
            shared.times[turn as usize].0.store(shared.now(), Ordering::Relaxed);
            let got = client.execute(&request, BODY_PREFIX_BYTES_MAX, &mut answer).await;
            load.add(&request, sent.elapsed(), &got, &answer);
            got?;
        }
        Ok(load)
    }
}

/// Measures the latency of events.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let watchers = bench.run.watchers;
    let writers = 4;
    let pace = bench.run.pace;
    let measure = Measure::Latency;
    let plan = FanOutPlan { watchers, writers, pace, measure, duration: bench.duration() };
    let result = fan_out(bench, numbered_config_map(bench.run.size), plan).await?;
    let title = format!("watch, {watchers} watchers, {writers} writers");
    report.add(&title, "rate", "/s", result.rate());
    report.add_latency(&title, &result.each);
    report.add_errors(&title, &result.missing());
    report.add(&title, "writes", "/s", result.writes.rate());
    for (what, cost) in result.costs() {
        if let Some(cost) = cost {
            report.add(&title, what, "us", cost);
        }
    }
    Ok(())
}

/// Returns the server's memory per idle watch, in kB; `None` when its process is not known.
pub async fn idle(bench: &Bench, count: usize) -> Result<Option<f64>> {
    let Some(server) = &bench.processes else { return Ok(None) };
    let path = bench.config_maps();
    let mut client = Client::connect(&bench.target).await?;
    let watch = format!("{path}?watch=1&resourceVersion={}", revision(&mut client, &path).await?);
    // The first watch is not counted: it has one-time costs.
    let _first = WatchLines::open(client, &watch).await?;
    let before = server.memory()?.rss;
    let mut open = vec![];
    for client in clients(bench, count).await? {
        open.push(WatchLines::open(client, &watch).await?);
    }
    sleep(bench.settle_time()).await;
    let more = server.memory()?.rss - before;
    Ok(Some(more * 1e3 / open.len().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_span_chunks() {
        let text = b"one\ntwo\n\nthree\nfo";
        for size in 1..=text.len() {
            let mut rest = vec![];
            let mut got = vec![];
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
    fn an_event_has_the_age_of_its_write() {
        let shared = Shared {
            began: Instant::now() - Duration::from_secs(10),
            watchers: 2,
            next: AtomicU64::new(0),
            received: AtomicU64::new(0),
            times: (0..10).map(|_| Default::default()).collect(),
        };
        shared.times[7].0.store(4_000_000_000, Ordering::Relaxed);
        let event = br#"{"object":{"data":{"turn":"000007"}}}"#;
        let age = shared.record(event).expect("an age").as_secs_f64();
        assert!((6.0..7.0).contains(&age), "{age}");
        assert!(shared.times[7].1.load(Ordering::Relaxed) >= 10_000_000_000);
        for other in [&br#"{"turn":"000011"}"#[..], br#"{"turn":"00000"#, br#"{"f:turn":{}}"#] {
            assert!(shared.record(other).is_none());
        }
    }

    #[test]
    fn writers_wait_for_watchers() {
        let shared = Shared {
            began: Instant::now(),
            watchers: 10,
            next: AtomicU64::new(LEAD_EVENTS_MAX),
            received: AtomicU64::new(0),
            times: vec![],
        };
        assert!(!shared.is_ahead());
        shared.next.fetch_add(1, Ordering::Relaxed);
        assert!(shared.is_ahead());
        shared.received.store(10, Ordering::Relaxed);
        assert!(!shared.is_ahead());
    }
}
