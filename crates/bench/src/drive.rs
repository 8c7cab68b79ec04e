//! Workers that each have one request under way, for a while.

use crate::Bench;
use crate::client::{Ask, Client, JSON};
use crate::histogram::Histogram;
use anyhow::Result;
use bytes::Bytes;
use http::Method;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a worker waits before it connects again.
const RECONNECT: Duration = Duration::from_millis(20);

/// What came of a load.
#[derive(Default)]
pub struct Load {
    /// Of the requests that succeeded.
    pub latency: Histogram,
    /// Requests that did not.
    pub errors: u64,
    /// Of answers' bodies.
    pub bytes: u64,
    /// How many requests each worker did.
    pub done: Vec<u64>,
    /// From the first request to the last.
    pub seconds: f64,
}

impl Load {
    /// Successes a second.
    pub fn rate(&self) -> f64 {
        self.latency.total as f64 / self.seconds
    }
}

/// As many clients as there are workers: of one connection each, or all of one.
pub async fn clients(bench: &Bench, count: usize) -> Result<Vec<Client>> {
    let mut clients: Vec<Client> = vec![];
    for _ in 0..count {
        let shared = clients.first().and_then(Client::share);
        clients.push(match shared {
            Some(client) => client,
            None => Client::connect(&bench.target).await?,
        });
    }
    Ok(clients)
}

/// Lets every worker ask what `ask(worker, how many before, the last answer)` says until the time is
/// over, or there is nothing more to ask.
pub async fn drive<F>(bench: &Bench, workers: usize, span: Duration, ask: F) -> Result<Load>
where
    F: Fn(usize, u64, &[u8]) -> Option<Ask> + Send + Sync + 'static,
{
    let ask = Arc::new(ask);
    let clients = clients(bench, workers).await?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let (ask, target) = (ask.clone(), bench.target.clone());
        tasks.spawn(async move {
            let mut client = Some(client);
            let mut load = Load::default();
            let (mut done, mut last) = (0, Bytes::new());
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
                match connected.call(asked).await {
                    Ok((200..300, body)) => {
                        load.latency.add(sent.elapsed());
                        load.bytes += body.len() as u64;
                        last = body;
                    }
                    Ok(_) => load.errors += 1,
                    Err(_) => {
                        load.errors += 1;
                        client = None;
                    }
                }
            }
            (number, done, load)
        });
    }
    let mut all = Load { done: vec![0; workers], ..Load::default() };
    while let Some(worker) = tasks.join_next().await {
        let (number, done, load) = worker?;
        all.latency.merge(&load.latency);
        all.errors += load.errors;
        all.bytes += load.bytes;
        all.done[number] = done;
    }
    all.seconds = began.elapsed().as_secs_f64();
    Ok(all)
}

/// The namespace of this run's objects.
pub async fn make_namespace(bench: &Bench) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let body = json!({"metadata": {"name": bench.namespace}}).to_string();
    client.must(Ask::new(Method::POST, "/api/v1/namespaces", JSON, body)).await?;
    Ok(())
}

/// Deletes it and what is in it.
pub async fn drop_namespace(bench: &Bench) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let path = format!("/api/v1/namespaces/{}", bench.namespace);
    client.must(Ask::new(Method::DELETE, path, JSON, "")).await?;
    Ok(())
}

/// Deletes all objects of a collection.
pub async fn clear(bench: &Bench, path: &str) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    client.must(Ask::new(Method::DELETE, path, JSON, "")).await?;
    Ok(())
}
