//! Growth: the cost of requests while the store grows a thousandfold, and of events with more and
//! more watchers. Ideally the costs stay constant.

use crate::bodies::{Template, config_map, padded};
use crate::client::{ApiRequest, Client, JSON};
use crate::drive::{Load, drive, fill};
use crate::report::Report;
use crate::watches::{FanOutPlan, Measure, fan_out, numbered_config_map};
use crate::{Bench, Run};
use anyhow::{Context, Result};
use http::Method;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OBJECTS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const WATCHERS: [usize; 3] = [10, 100, 1_000];
/// Above this number of objects lists are not measured.
const LISTED_OBJECTS_MAX: usize = 100_000;
/// Size of a stored object.
const SIZE: usize = 500;
/// Workers, and writers of watched objects: enough for many events to be sent at once.
const WORKERS: usize = 64;
/// Timeout of creating all objects; larger stores are then left out.
const FILL_TIME_MAX: Duration = Duration::from_secs(200);
/// Size of a watched object.
const EVENT_BYTES: usize = 1_000;

/// Measures both kinds of growth.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    objects(run, report).await.context("with objects")?;
    watchers(run, report).await.context("with watchers")
}

fn object(number: usize) -> String {
    format!("growth-{number}")
}

/// Returns the index of the object for a turn of a worker. All objects are used, in an order that
/// defeats CPU caches.
fn any(worker: usize, turn: u64, objects: usize) -> usize {
    let number = (turn.wrapping_mul(WORKERS as u64) + worker as u64).wrapping_mul(2_654_435_761);
    (number % objects as u64) as usize
}

async fn objects(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let bench = Bench::open(run).await?;
    let mut client = Client::connect(&bench.target).await?;
    let body = padded(&mut client, &bench.config_maps(), SIZE, config_map).await?;
    let began = Instant::now();
    let mut filling = Duration::ZERO;
    let mut there = 0;
    for size in OBJECTS.into_iter().filter(|size| *size <= run.objects.unwrap_or(usize::MAX)) {
        let objects = run.scaled(size);
        let path = bench.config_maps();
        let made = body.clone();
        let before = there;
        let make = move |number| ApiRequest::post(&path, made.fill(&object(before + number), 0));
        let filled = Instant::now();
        let left = FILL_TIME_MAX.saturating_sub(filling);
        if !fill(&bench, objects.saturating_sub(there), WORKERS, left, make).await? {
            report.add("growth", &format!("no time left to make {objects} objects"), "", 0.0);
            break;
        }
        there = there.max(objects);
        filling += filled.elapsed();
        for (what, load) in [
            ("get", gets(&bench, there).await?),
            ("update", updates(&bench, body.clone(), there).await?),
            ("create and delete", pairs(&bench, body.clone(), there).await?),
        ] {
            add(report, there, what, &load);
        }
        if there <= LISTED_OBJECTS_MAX {
            let path = bench.config_maps();
            let list = move |_, _, _: &[u8]| Some(ApiRequest::get(&path));
            let load = drive(&bench, 1, bench.duration(), list).await?;
            let each = load.latency.quantile(0.5) * 1e3 / there as f64;
            report.add_step(NAME, there, "list, p50, per object", "us", each);
            report.add_errors(&format!("growth, list of {there}"), &load.errors);
        }
    }
    report.add("growth", "took", "s", began.elapsed().as_secs_f64());
    bench.close().await
}

const NAME: &str = "growth with objects";

fn add(report: &mut Report, objects: usize, what: &str, load: &Load) {
    report.add_step(NAME, objects, &format!("{what}, rate"), "/s", load.rate());
    let half = load.latency.quantile(0.5);
    report.add_step(NAME, objects, &format!("{what}, p50"), "ms", half);
    if let Some(cpu) = load.server_cpu_ms() {
        report.add_step(NAME, objects, &format!("{what}, server CPU"), "ms", cpu);
    }
    report.add_errors(&format!("growth, {what} of {objects}"), &load.errors);
}

async fn gets(bench: &Bench, objects: usize) -> Result<Load> {
    let path = bench.config_maps();
    drive(bench, WORKERS, bench.duration(), move |worker, turn, _| {
        Some(ApiRequest::get(format!("{path}/{}", object(any(worker, turn, objects)))))
    })
    .await
}

async fn updates(bench: &Bench, body: Template, objects: usize) -> Result<Load> {
    let path = bench.config_maps();
    drive(bench, WORKERS, bench.duration(), move |worker, turn, _| {
        let name = object(any(worker, turn, objects));
        // Turn 0 is the created object: writing it again would be no change.
        let body = body.fill(&name, turn + 1);
        Some(ApiRequest::new(Method::PUT, format!("{path}/{name}"), JSON, body))
    })
    .await
}

/// Creates and deletes objects in turn, so that the store does not grow.
async fn pairs(bench: &Bench, body: Template, objects: usize) -> Result<Load> {
    let path = bench.config_maps();
    drive(bench, WORKERS, bench.duration(), move |worker, turn, _| {
        // The previous size may have ended between a create and its delete: names must differ.
        let name = format!("pair-{objects}-{worker}-{}", turn / 2);
        Some(if turn.is_multiple_of(2) {
            ApiRequest::post(&path, body.fill(&name, 0))
        } else {
            ApiRequest::delete(format!("{path}/{name}"))
        })
    })
    .await
}

async fn watchers(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let name = "growth with watchers";
    let bench = Bench::open(run).await?;
    let mut client = Client::connect(&bench.target).await?;
    let body = padded(&mut client, &bench.config_maps(), EVENT_BYTES, numbered_config_map).await?;
    for count in WATCHERS {
        let watchers = run.scaled(count);
        let pace = None;
        let measure = Measure::Count;
        let duration = bench.duration();
        let plan = FanOutPlan { watchers, writers: WORKERS, pace, measure, duration };
        let result = fan_out(&bench, body.clone(), plan).await?;
        report.add_step(name, watchers, "events", "/s", result.rate());
        report.add_step(name, watchers, "writes", "/s", result.writes.rate());
        for (what, cost) in result.costs() {
            if let Some(cost) = cost {
                report.add_step(name, watchers, what, "us", cost);
            }
        }
        report.add_errors(&format!("growth, {watchers} watchers"), &result.missing());
    }
    bench.close().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn workers_use_all_objects() {
        let taken = |workers: usize, turns: u64| {
            let all = (0..workers).flat_map(|w| (0..turns).map(move |turn| any(w, turn, 1000)));
            all.collect::<HashSet<usize>>().len()
        };
        assert_eq!(taken(64, 1000), 1000);
        // The objects of one turn differ.
        assert_eq!(taken(64, 1), 64);
    }
}
