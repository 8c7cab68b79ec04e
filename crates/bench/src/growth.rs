//! Growth: what requests cost while the store grows a thousandfold, and events while watchers become more.
//! What a server does well stays flat.

use crate::bodies::{Template, config_map, padded};
use crate::client::{Ask, Client, JSON};
use crate::drive::{Load, drive, fill};
use crate::report::Report;
use crate::watches::{Plan, See, fan_out, numbered_map};
use crate::{Bench, Run};
use anyhow::{Context, Result};
use http::Method;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OBJECTS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const WATCHERS: [usize; 3] = [10, 100, 1_000];
/// A larger store is not listed whole.
const LISTED_OBJECTS_MAX: usize = 100_000;
/// Bytes of an object as the server keeps it.
const SIZE: usize = 500;
/// Workers that ask, and that write what watchers hear of: enough for many events to go out at once.
const WORKERS: usize = 64;
/// How long all objects together may take to be made; a larger store is then left out.
const FILL: Duration = Duration::from_secs(200);
/// What a watch event is long.
const EVENT_BYTES: usize = 1_000;

/// Measures both.
pub async fn run(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    objects(run, report).await.context("with objects")?;
    watchers(run, report).await.context("with watchers")
}

fn object(number: usize) -> String {
    format!("growth-{number}")
}

/// The object that a worker takes at a turn: all of them, in no order that a cache would like.
fn any(worker: usize, turn: u64, objects: usize) -> usize {
    let number = (turn.wrapping_mul(WORKERS as u64) + worker as u64).wrapping_mul(2_654_435_761);
    (number % objects as u64) as usize
}

async fn objects(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let bench = Bench::open(run).await?;
    let mut client = Client::connect(&bench.target).await?;
    let body = padded(&mut client, &bench.maps(), SIZE, config_map).await?;
    let began = Instant::now();
    let mut filling = Duration::ZERO;
    let mut there = 0;
    for size in OBJECTS.into_iter().filter(|size| *size <= run.objects.unwrap_or(usize::MAX)) {
        let objects = run.scaled(size);
        let (path, made, before) = (bench.maps(), body.clone(), there);
        let make = move |number| Ask::post(&path, made.fill(&object(before + number), 0));
        let filled = Instant::now();
        let left = FILL.saturating_sub(filling);
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
            let path = bench.maps();
            let list = move |_, _, _: &[u8]| Some(Ask::get(&path));
            let load = drive(&bench, 1, bench.span(), list).await?;
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
    if let Some(cpu) = load.cpu_each() {
        report.add_step(NAME, objects, &format!("{what}, server CPU"), "ms", cpu);
    }
    report.add_errors(&format!("growth, {what} of {objects}"), &load.errors);
}

async fn gets(bench: &Bench, objects: usize) -> Result<Load> {
    let path = bench.maps();
    drive(bench, WORKERS, bench.span(), move |worker, turn, _| {
        Some(Ask::get(format!("{path}/{}", object(any(worker, turn, objects)))))
    })
    .await
}

async fn updates(bench: &Bench, body: Template, objects: usize) -> Result<Load> {
    let path = bench.maps();
    drive(bench, WORKERS, bench.span(), move |worker, turn, _| {
        let name = object(any(worker, turn, objects));
        // Not what the object was made with, which would be no change.
        let body = body.fill(&name, turn + 1);
        Some(Ask::new(Method::PUT, format!("{path}/{name}"), JSON, body))
    })
    .await
}

/// Each object that is made is deleted next, so that the store does not grow by it.
async fn pairs(bench: &Bench, body: Template, objects: usize) -> Result<Load> {
    let path = bench.maps();
    drive(bench, WORKERS, bench.span(), move |worker, turn, _| {
        // The time may have been over between the two with fewer objects.
        let name = format!("pair-{objects}-{worker}-{}", turn / 2);
        Some(if turn.is_multiple_of(2) {
            Ask::post(&path, body.fill(&name, 0))
        } else {
            Ask::delete(format!("{path}/{name}"))
        })
    })
    .await
}

async fn watchers(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    let name = "growth with watchers";
    let bench = Bench::open(run).await?;
    let mut client = Client::connect(&bench.target).await?;
    let body = padded(&mut client, &bench.maps(), EVENT_BYTES, numbered_map).await?;
    for count in WATCHERS {
        let watchers = run.scaled(count);
        let (pace, see, span) = (None, See::Count, bench.span());
        let plan = Plan { watchers, writers: WORKERS, pace, see, span };
        let heard = fan_out(&bench, body.clone(), plan).await?;
        report.add_step(name, watchers, "events", "/s", heard.rate());
        report.add_step(name, watchers, "writes", "/s", heard.writes.rate());
        for (what, cost) in heard.costs() {
            if let Some(cost) = cost {
                report.add_step(name, watchers, what, "us", cost);
            }
        }
        report.add_errors(&format!("growth, {watchers} watchers"), &heard.missing());
    }
    bench.close().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn workers_take_all_objects_alike() {
        let taken = |workers: usize, turns: u64| {
            let all = (0..workers).flat_map(|w| (0..turns).map(move |turn| any(w, turn, 1000)));
            all.collect::<HashSet<usize>>().len()
        };
        assert_eq!(taken(64, 1000), 1000);
        // Those of one turn are far apart and differ.
        assert_eq!(taken(64, 1), 64);
    }
}
