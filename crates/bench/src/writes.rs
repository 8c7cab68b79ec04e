//! One verb at a time, on small objects.

use crate::client::{Ask, JSON};
use crate::drive::{Load, clear, drive};
use crate::report::Report;
use crate::{Bench, Profile};
use anyhow::Result;
use http::Method;
use serde_json::json;
use std::time::Duration;

/// Objects of each worker that are read and changed.
const OBJECTS: u64 = 100;
/// As long as it takes.
const UNBOUNDED: Duration = Duration::from_secs(600);

/// The name of an object of a worker.
fn name(worker: usize, number: u64) -> String {
    format!("bench-{worker}-{number}")
}

/// A ConfigMap with so many bytes of data, and something that differs each time.
pub fn config_map(name: &str, size: usize, turn: u64) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"turn": turn.to_string()}},
        "data": {"payload": "x".repeat(size)}})
    .to_string()
}

/// Makes `count` objects for each worker.
async fn fill(bench: &Bench, count: u64) -> Result<()> {
    let (path, size) = (bench.maps(), bench.run.size);
    let made = drive(bench, bench.run.connections, UNBOUNDED, move |worker, number, _| {
        let body = config_map(&name(worker, number), size, number);
        (number < count).then(|| Ask::new(Method::POST, &path, JSON, body))
    });
    made.await.map(drop)
}

/// Measures one verb.
pub async fn run(bench: &Bench, profile: Profile, report: &mut Report) -> Result<()> {
    let (workers, span, size) = (bench.run.connections, bench.span(), bench.run.size);
    let path = bench.maps();
    let one =
        move |worker: usize, number: u64| format!("{path}/{}", name(worker, number % OBJECTS));
    let (verb, load): (&str, Load) = match profile {
        Profile::Get => {
            fill(bench, OBJECTS).await?;
            ("get", drive(bench, workers, span, move |w, n, _| Some(Ask::get(one(w, n)))).await?)
        }
        Profile::Update | Profile::Patch | Profile::Apply => {
            fill(bench, OBJECTS).await?;
            let (verb, method, query, media) = match profile {
                Profile::Update => ("update", Method::PUT, "", JSON),
                Profile::Patch => ("patch", Method::PATCH, "", "application/merge-patch+json"),
                _ => {
                    let query = "?fieldManager=bench&force=true";
                    ("apply", Method::PATCH, query, "application/apply-patch+yaml")
                }
            };
            let load = drive(bench, workers, span, move |worker, number, _| {
                let path = format!("{}{query}", one(worker, number));
                let body = config_map(&name(worker, number % OBJECTS), size, number);
                Some(Ask::new(method.clone(), path, media, body))
            });
            (verb, load.await?)
        }
        Profile::Delete => ("delete", deletes(bench).await?),
        _ => {
            let path = bench.maps();
            let load = drive(bench, workers, span, move |worker, number, _| {
                let body = config_map(&name(worker, number), size, number);
                Some(Ask::new(Method::POST, &path, JSON, body))
            });
            ("create", load.await?)
        }
    };
    let title = format!("{verb}, {workers} connections, {size} B");
    report.add_load(&title, load.rate(), &load.latency, load.errors);
    clear(bench, &bench.maps()).await
}

/// Makes as many as there is time for, and deletes them.
async fn deletes(bench: &Bench) -> Result<Load> {
    let (workers, span, size) = (bench.run.connections, bench.span() / 2, bench.run.size);
    let path = bench.maps();
    let made = drive(bench, workers, span, move |worker, number, _| {
        Some(Ask::new(Method::POST, &path, JSON, config_map(&name(worker, number), size, number)))
    });
    let made = made.await?.done;
    let path = bench.maps();
    drive(bench, workers, UNBOUNDED, move |worker, number, _| {
        let path = format!("{path}/{}", name(worker, number));
        (number < made[worker]).then(|| Ask::new(Method::DELETE, path, JSON, ""))
    })
    .await
}

/// A lease as a kubelet renews it: over the revision that the last answer told.
fn lease(name: &str, turn: u64, last: &[u8]) -> String {
    let (hours, minutes, seconds) = (turn / 3600 % 24, turn / 60 % 60, turn % 60);
    let time = format!("2026-01-01T{hours:02}:{minutes:02}:{seconds:02}.000000Z");
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "resourceVersion": revision(last)},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time}})
    .to_string()
}

/// The revision of an object in JSON; cheaper than to parse it, so that the server is what is measured.
fn revision(text: &[u8]) -> &str {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let rest = text.split_once("\"resourceVersion\":\"").map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or_default()
}

/// The request that makes a node's lease, or renews it.
pub fn renewal(path: &str, name: &str, turn: u64, last: &[u8]) -> Ask {
    let body = lease(name, turn, last);
    match turn {
        0 => Ask::new(Method::POST, path, JSON, body),
        _ => Ask::new(Method::PUT, format!("{path}/{name}"), JSON, body),
    }
}

/// The leases of a run.
pub fn lease_path(bench: &Bench) -> String {
    bench.path("/apis/coordination.k8s.io/v1", "leases")
}

/// Renews leases, each worker one.
pub async fn leases(bench: &Bench, report: &mut Report) -> Result<()> {
    let workers = bench.run.connections;
    let path = lease_path(bench);
    let load = drive(bench, workers, bench.span(), move |worker, turn, last| {
        Some(renewal(&path, &format!("node-{worker}"), turn, last))
    });
    let load = load.await?;
    let title = format!("lease renewal, {workers} connections");
    report.add_load(&title, load.rate(), &load.latency, load.errors);
    clear(bench, &lease_path(bench)).await
}
