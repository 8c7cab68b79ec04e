//! Watches: how soon, and how many, events reach many watchers.

use crate::Bench;
use crate::client::{Ask, Client, JSON};
use crate::drive::{clear, drive};
use crate::histogram::Histogram;
use crate::report::Report;
use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Workers that write.
const WRITERS: usize = 4;
/// How long watchers may still read when nobody writes any more.
const QUIET: Duration = Duration::from_millis(500);
/// What stands before the time at which an event was written.
const SENT: &str = "\"sent\":\"";

/// The lines of a watch, as they come.
pub struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    /// Watches a path.
    pub async fn open(client: &mut Client, path: String) -> Result<Lines> {
        let response = client.open(Ask::get(path)).await?;
        anyhow::ensure!(response.status() == 200, "a watch: {}", response.status());
        Ok(Lines { body: response.into_body(), rest: vec![] })
    }

    /// Hands each line that has come to `see`. False: the watch has ended.
    pub async fn read(&mut self, mut see: impl FnMut(&str)) -> Result<bool> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        let Ok(data) = frame?.into_data() else { return Ok(true) };
        self.rest.extend_from_slice(&data);
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].iter().position(|byte| *byte == b'\n') {
            see(std::str::from_utf8(&self.rest[begin..begin + length])?);
            begin += length + 1;
        }
        self.rest.drain(..begin);
        Ok(true)
    }
}

/// The revision of a collection.
pub async fn revision(client: &mut Client, path: &str) -> Result<String> {
    let list: Bytes = client.must(Ask::get(format!("{path}?limit=1"))).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let text = list["metadata"]["resourceVersion"].as_str();
    text.map(str::to_owned).context("a list without a revision")
}

/// How long ago an event was written, by the clock that wrote it.
fn age(line: &str, began: Instant) -> Option<Duration> {
    let (_, rest) = line.split_once(SENT)?;
    let nanos = rest.split('"').next()?.parse().ok()?;
    began.elapsed().checked_sub(Duration::from_nanos(nanos))
}

/// Writes as fast as the server lets it, and measures when each watcher hears of it.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (path, watchers, size) = (bench.maps(), bench.run.watchers, bench.run.size);
    let began = Instant::now();
    let mut client = Client::connect(&bench.target).await?;
    let since = revision(&mut client, &path).await?;
    let mut tasks: JoinSet<Result<(Histogram, Instant)>> = JoinSet::new();
    for mut client in crate::drive::clients(bench, watchers).await? {
        let watch = format!("{path}?watch=1&resourceVersion={since}");
        let mut lines = Lines::open(&mut client, watch).await?;
        tasks.spawn(async move {
            // Held until the watch is read: a connection ends with its last sender.
            let _client = client;
            let (mut latency, mut last) = (Histogram::default(), Instant::now());
            let mut see = |line: &str| {
                if let Some(age) = age(line, began) {
                    latency.add(age);
                    last = Instant::now();
                }
            };
            while let Ok(Ok(true)) = tokio::time::timeout(QUIET * 4, lines.read(&mut see)).await {}
            Ok((latency, last))
        });
    }
    let wrote = Instant::now();
    let made = path.clone();
    let load = drive(bench, WRITERS, bench.span(), move |worker, number, _| {
        let (name, put) = (format!("watch-{worker}"), number > 0);
        let sent = began.elapsed().as_nanos().to_string();
        let body = json!({"metadata": {"name": name},
            "data": {"sent": sent, "payload": "x".repeat(size)}});
        let (method, path) = if put {
            (Method::PUT, format!("{made}/{name}"))
        } else {
            (Method::POST, made.clone())
        };
        Some(Ask::new(method, path, JSON, body.to_string()))
    });
    let load = load.await?;
    let (mut latency, mut last) = (Histogram::default(), wrote);
    while let Some(watcher) = tasks.join_next().await {
        let (one, until) = watcher??;
        latency.merge(&one);
        last = last.max(until);
    }
    let seconds = last.saturating_duration_since(wrote).as_secs_f64();
    let title = format!("watch, {watchers} watchers, {WRITERS} writers");
    let (rate, missed) = (latency.total as f64 / seconds, {
        let due = load.latency.total * watchers as u64;
        due.saturating_sub(latency.total)
    });
    report.add_load(&title, rate, &latency, load.errors + missed);
    report.add(&title, "writes", "/s", load.rate());
    clear(bench, &path).await
}
