//! One verb at a time, on small objects.

use crate::bodies::{config_map, lease, renewed_lease};
use crate::client::{APPLY_PATCH, Ask, JSON, MERGE_PATCH};
use crate::drive::{Load, clear, drive, fill};
use crate::report::Report;
use crate::{Bench, Profile};
use anyhow::Result;
use http::Method;
use std::time::Duration;

/// Objects of each worker that are read and changed.
const OBJECTS: u64 = 100;
/// As long as it takes.
const UNBOUNDED: Duration = Duration::from_secs(600);

/// The name of an object of a worker.
fn name(worker: usize, number: u64) -> String {
    format!("bench-{worker}-{number}")
}

/// Makes the objects of each worker.
async fn prepare(bench: &Bench) -> Result<()> {
    let (path, body, workers) = (bench.maps(), config_map(bench.run.size), bench.run.connections);
    fill(bench, workers * OBJECTS as usize, workers, UNBOUNDED, move |number| {
        let (worker, number) = (number % workers, (number / workers) as u64);
        Ask::post(&path, body.fill(&name(worker, number), number))
    })
    .await
    .map(drop)
}

/// Measures one verb.
pub async fn run(bench: &Bench, profile: Profile, report: &mut Report) -> Result<()> {
    let (workers, span, size) = (bench.run.connections, bench.span(), bench.run.size);
    let (path, body) = (bench.maps(), config_map(size));
    let one =
        move |worker: usize, number: u64| format!("{path}/{}", name(worker, number % OBJECTS));
    let (verb, load): (&str, Load) = match profile {
        Profile::Get => {
            prepare(bench).await?;
            ("get", drive(bench, workers, span, move |w, n, _| Some(Ask::get(one(w, n)))).await?)
        }
        Profile::Update | Profile::Patch | Profile::Apply => {
            prepare(bench).await?;
            let (verb, method, query, media) = match profile {
                Profile::Update => ("update", Method::PUT, "", JSON),
                Profile::Patch => ("patch", Method::PATCH, "", MERGE_PATCH),
                _ => ("apply", Method::PATCH, "?fieldManager=bench&force=true", APPLY_PATCH),
            };
            let load = drive(bench, workers, span, move |worker, number, _| {
                let path = format!("{}{query}", one(worker, number));
                let body = body.fill(&name(worker, number % OBJECTS), number);
                Some(Ask::new(method.clone(), path, media, body))
            });
            (verb, load.await?)
        }
        Profile::Delete => ("delete", deletes(bench).await?),
        _ => ("create", creates(bench, span).await?),
    };
    report.add_load(&format!("{verb}, {workers} connections, {size} B"), &load);
    clear(bench, &bench.maps()).await
}

/// Makes as many as there is time for.
async fn creates(bench: &Bench, span: Duration) -> Result<Load> {
    let (path, body) = (bench.maps(), config_map(bench.run.size));
    drive(bench, bench.run.connections, span, move |worker, number, _| {
        Some(Ask::post(&path, body.fill(&name(worker, number), number)))
    })
    .await
}

/// Makes as many as there is time for, and deletes them.
async fn deletes(bench: &Bench) -> Result<Load> {
    let made = creates(bench, bench.span() / 2).await?.done;
    let path = bench.maps();
    drive(bench, bench.run.connections, UNBOUNDED, move |worker, number, _| {
        let path = format!("{path}/{}", name(worker, number));
        (number < made[worker]).then(|| Ask::delete(path))
    })
    .await
}

/// The request that makes a node's lease, or renews it.
pub fn renewal(path: &str, name: &str, turn: u64, last: &[u8]) -> Ask {
    match turn {
        0 => Ask::post(path, lease().fill(name, turn)),
        _ => {
            let body = renewed_lease(name, turn, last);
            Ask::new(Method::PUT, format!("{path}/{name}"), JSON, body)
        }
    }
}

/// Renews leases, each worker one.
pub async fn leases(bench: &Bench, report: &mut Report) -> Result<()> {
    let workers = bench.run.connections;
    let path = bench.leases();
    let load = drive(bench, workers, bench.span(), move |worker, turn, last| {
        Some(renewal(&path, &format!("node-{worker}"), turn, last))
    });
    report.add_load(&format!("lease renewal, {workers} connections"), &load.await?);
    clear(bench, &bench.leases()).await
}
