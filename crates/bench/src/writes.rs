//! Writes and gets of small objects, one verb at a time.

use crate::bodies::{config_map, lease, renewed_lease};
use crate::client::{APPLY_PATCH, ApiRequest, JSON, MERGE_PATCH};
use crate::drive::{Load, clear, drive, fill};
use crate::report::Report;
use crate::{Bench, Profile};
use anyhow::Result;
use http::Method;
use std::time::Duration;

/// Objects of each worker.
const OBJECTS: u64 = 100;
/// Timeout of loads that end by themselves.
const UNBOUNDED: Duration = Duration::from_secs(600);

/// Returns the name of an object of a worker.
fn name(worker: usize, number: u64) -> String {
    format!("bench-{worker}-{number}")
}

/// Creates the objects of each worker.
async fn prepare(bench: &Bench) -> Result<()> {
    let path = bench.config_maps();
    let body = config_map(bench.run.size);
    let workers = bench.run.connections;
    fill(bench, workers * OBJECTS as usize, workers, UNBOUNDED, move |number| {
        let worker = number % workers;
        let number = (number / workers) as u64;
        ApiRequest::post(&path, body.fill(&name(worker, number), number))
    })
    .await
    .map(drop)
}

/// Measures one verb.
pub async fn run(bench: &Bench, profile: Profile, report: &mut Report) -> Result<()> {
    let workers = bench.run.connections;
    let duration = bench.duration();
    let size = bench.run.size;
    let path = bench.config_maps();
    let body = config_map(size);
    let one =
        move |worker: usize, number: u64| format!("{path}/{}", name(worker, number % OBJECTS));
    let (verb, load): (&str, Load) = match profile {
        Profile::Get => {
            prepare(bench).await?;
            (
                "get",
                drive(bench, workers, duration, move |w, n, _| Some(ApiRequest::get(one(w, n))))
                    .await?,
            )
        }
        Profile::Update | Profile::Patch | Profile::Apply => {
            prepare(bench).await?;
            let (verb, method, query, media) = match profile {
                Profile::Update => ("update", Method::PUT, "", JSON),
                Profile::Patch => ("patch", Method::PATCH, "", MERGE_PATCH),
                _ => ("apply", Method::PATCH, "?fieldManager=bench&force=true", APPLY_PATCH),
            };
            let load = drive(bench, workers, duration, move |worker, number, _| {
                let path = format!("{}{query}", one(worker, number));
                let body = body.fill(&name(worker, number % OBJECTS), number);
                Some(ApiRequest::new(method.clone(), path, media, body))
            });
            (verb, load.await?)
        }
        Profile::Delete => ("delete", deletes(bench).await?),
        _ => ("create", creates(bench, duration).await?),
    };
    report.add_load(&format!("{verb}, {workers} connections, {size} B"), &load);
    clear(bench, &bench.config_maps()).await
}

/// Creates objects for the given time.
async fn creates(bench: &Bench, duration: Duration) -> Result<Load> {
    let path = bench.config_maps();
    let body = config_map(bench.run.size);
    drive(bench, bench.run.connections, duration, move |worker, number, _| {
        Some(ApiRequest::post(&path, body.fill(&name(worker, number), number)))
    })
    .await
}

/// Creates objects for half the time, and measures their deletion.
async fn deletes(bench: &Bench) -> Result<Load> {
    let made = creates(bench, bench.duration() / 2).await?.done;
    let path = bench.config_maps();
    drive(bench, bench.run.connections, UNBOUNDED, move |worker, number, _| {
        let path = format!("{path}/{}", name(worker, number));
        (number < made[worker]).then(|| ApiRequest::delete(path))
    })
    .await
}

/// Returns the request that creates a node's lease (turn 0) or renews it.
pub fn renewal(path: &str, name: &str, turn: u64, last: &[u8]) -> ApiRequest {
    match turn {
        0 => ApiRequest::post(path, lease().fill(name, turn)),
        _ => {
            let body = renewed_lease(name, turn, last);
            ApiRequest::new(Method::PUT, format!("{path}/{name}"), JSON, body)
        }
    }
}

/// Measures lease renewals, with one lease per worker.
pub async fn leases(bench: &Bench, report: &mut Report) -> Result<()> {
    let workers = bench.run.connections;
    let path = bench.leases();
    let load = drive(bench, workers, bench.duration(), move |worker, turn, last| {
        Some(renewal(&path, &format!("node-{worker}"), turn, last))
    });
    report.add_load(&format!("lease renewal, {workers} connections"), &load.await?);
    clear(bench, &bench.leases()).await
}
