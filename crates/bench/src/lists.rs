//! Lists of one collection: whole, by label and by page; JSON and protobuf; cached and consistent.

use crate::Bench;
use crate::bodies::config_map;
use crate::client::{ApiRequest, Client, JSON, PROTOBUF};
use crate::drive::{Load, clear, drive, fill};
use crate::report::Report;
use anyhow::Result;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Concurrent clients.
const WORKERS: usize = 4;
/// Default of `--objects`.
const OBJECTS: usize = 5_000;
/// Objects of a page; client-go's default.
const PAGE: usize = 500;
/// Objects with the same label.
const SHARD: usize = 100;
const FILL_TIME_MAX: Duration = Duration::from_secs(600);

fn objects(bench: &Bench) -> usize {
    bench.run.objects.unwrap_or(OBJECTS)
}

/// Measures lists of `--objects` ConfigMaps.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let objects = objects(bench);
    let path = bench.config_maps();
    let body = config_map(bench.run.size);
    fill(bench, objects, bench.run.connections, FILL_TIME_MAX, move |number| {
        let shard = number % objects.div_ceil(SHARD).max(1);
        ApiRequest::post(&path, body.fill(&format!("list-{number}"), shard as u64))
    })
    .await?;
    for (what, query, accept) in [
        ("whole, JSON, cached", "?resourceVersion=0", JSON),
        ("whole, JSON, consistent", "", JSON),
        ("whole, protobuf, cached", "?resourceVersion=0", PROTOBUF),
        ("by label, JSON", "?resourceVersion=0&labelSelector=turn%3D000007", JSON),
    ] {
        let path = format!("{}{query}", bench.config_maps());
        let load = drive(bench, WORKERS, bench.duration(), move |_, _, _| {
            Some(ApiRequest { accept, ..ApiRequest::get(path.clone()) })
        })
        .await?;
        let title = format!("list {objects} {what}");
        report.add_load(&title, &load);
        report.add(&title, "throughput", "MB/s", load.bytes as f64 / load.seconds / 1e6);
    }
    paged(bench, report).await?;
    clear(bench, &bench.config_maps()).await
}

/// Lists the collection page by page, again and again.
async fn paged(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let began = Instant::now();
    let mut walks = Load::default();
    while began.elapsed() < bench.duration() {
        let walk = Instant::now();
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE}&continue={token}", bench.config_maps());
            let page: Value =
                serde_json::from_slice(&client.require_success(ApiRequest::get(path)).await?)?;
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
        walks.latency.add(walk.elapsed());
    }
    walks.seconds = began.elapsed().as_secs_f64();
    let title = format!("list {} by pages of {PAGE}, one client", objects(bench));
    report.add_load(&title, &walks);
    Ok(())
}
