//! Lists of one collection, in every way that clients list.

use crate::Bench;
use crate::bodies::config_map;
use crate::client::{Ask, Client, JSON, PROTOBUF};
use crate::drive::{Load, clear, drive, fill};
use crate::report::Report;
use anyhow::Result;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Clients that list at once.
const WORKERS: usize = 4;
/// Objects that are listed, unless `--objects` says how many.
const OBJECTS: usize = 5_000;
/// Objects of a page; what client-go asks for.
const PAGE: usize = 500;
/// Objects that have the same label.
const SHARD: usize = 100;
const FILL: Duration = Duration::from_secs(600);

fn objects(bench: &Bench) -> usize {
    bench.run.objects.unwrap_or(OBJECTS)
}

/// Measures lists of `--objects` ConfigMaps.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let objects = objects(bench);
    let (path, body) = (bench.maps(), config_map(bench.run.size));
    fill(bench, objects, bench.run.connections, FILL, move |number| {
        let shard = number % objects.div_ceil(SHARD).max(1);
        Ask::post(&path, body.fill(&format!("list-{number}"), shard as u64))
    })
    .await?;
    for (what, query, accept) in [
        ("whole, JSON, cached", "?resourceVersion=0", JSON),
        ("whole, JSON, consistent", "", JSON),
        ("whole, protobuf, cached", "?resourceVersion=0", PROTOBUF),
        ("by label, JSON", "?resourceVersion=0&labelSelector=turn%3D000007", JSON),
    ] {
        let path = format!("{}{query}", bench.maps());
        let load = drive(bench, WORKERS, bench.span(), move |_, _, _| {
            Some(Ask { accept, ..Ask::get(path.clone()) })
        });
        let load = load.await?;
        let title = format!("list {objects} {what}");
        report.add_load(&title, &load);
        report.add(&title, "throughput", "MB/s", load.bytes as f64 / load.seconds / 1e6);
    }
    paged(bench, report).await?;
    clear(bench, &bench.maps()).await
}

/// Reads the collection page by page, again and again.
async fn paged(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut client = Client::connect(&bench.target).await?;
    let began = Instant::now();
    let mut walks = Load::default();
    while began.elapsed() < bench.span() {
        let walk = Instant::now();
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE}&continue={token}", bench.maps());
            let page: Value = serde_json::from_slice(&client.must(Ask::get(path)).await?)?;
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
