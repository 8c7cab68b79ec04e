//! The soak test: the mixed load for a long time, with memory and latencies of each minute, and a
//! burst at the end. It verifies that memory does not grow while the data does not, that no request
//! fails, and that latencies recover from the burst.

use crate::Bench;
use crate::bodies::{lease_patch, pod};
use crate::client::{ApiRequest, Client, MERGE_PATCH};
use crate::drive::{BODY_PREFIX_BYTES_MAX, FILL_TIME_MAX, Load, drive, fill};
use crate::mixed::{Cluster, clean};
use crate::report::Report;
use crate::start::quantile;
use anyhow::{Context, Result};
use http::Method;
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Interval of the reports, in runs that are long enough for [`PARTS_MIN`] of them.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
const PARTS_MIN: u32 = 5;
/// Pods that exist during the whole run; default of `--objects`.
const STANDING_PODS: usize = 1_000;
/// Maximum growth of memory after the first third of the run, in percent.
const GROWTH_PERCENT_MAX: f64 = 5.0;
/// Maximum of the last third's p99 over the first third's.
const SLOWDOWN_MAX: f64 = 2.0;
/// Shorter runs do not fail by growth of memory or latencies: the history of five minutes that
/// servers keep is still growing after their first third.
const JUDGED_MIN: Duration = Duration::from_secs(900);
/// Connections that keep a server busy; the burst has [`BURST`] times as many.
const CAPACITY: usize = 64;
const BURST: usize = 3;
/// Maximum duration of the burst, and of the measurements before and after it.
const BURST_TIME_MAX: Duration = Duration::from_secs(5);
/// Clients that send requests at an interval: together 500 per second.
const PROBES: usize = 8;
const PROBE_INTERVAL: Duration = Duration::from_millis(16);
/// Latencies have recovered when the p99 of a second is at most this times the p99 before.
const RECOVERED_RATIO: f64 = 2.0;
const SECOND: Duration = Duration::from_secs(1);
/// Resolution of the recovery time.
const RECOVERY_STEP: Duration = Duration::from_millis(50);
/// Maximum recovery time.
const RECOVERY_MAX: Duration = SECOND;

/// A request of a probe: when it was due, and its latency from then on.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    took: Duration,
}

/// Runs the soak test for `--seconds`.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let pods = bench.pods();
    let body = pod(1, 0);
    let standing = bench.run.objects.unwrap_or(STANDING_PODS);
    let make = move |number| ApiRequest::post(&pods, body.fill(&format!("standing-{number}"), 0));
    fill(bench, standing, bench.run.connections, FILL_TIME_MAX, make).await?;
    steady(bench, report).await.context("steady load")?;
    clean(bench).await?;
    burst(bench, report).await.context("burst")?;
    clean(bench).await
}

/// Runs the mixed load, and reports part by part.
async fn steady(bench: &Bench, report: &mut Report) -> Result<()> {
    let part = (bench.duration() / PARTS_MIN).min(REPORT_INTERVAL);
    let parts = bench.duration().as_secs_f64() / part.as_secs_f64();
    let mut cluster = Cluster::start(bench, bench.duration());
    let mut memory = vec![];
    let mut slowest = vec![];
    let mut errors = 0;
    let mut events = 0;
    for number in 1..=parts.round() as u32 {
        let began = Instant::now();
        tokio::select! {
            ended = cluster.ended() => ended?,
            () = tokio::time::sleep(part) => {}
        }
        let load = Load { seconds: began.elapsed().as_secs_f64(), ..cluster.take() };
        let title = format!("soak, to {:.0} s", part.as_secs_f64() * f64::from(number));
        report.add_load(&title, &load);
        let rate = (cluster.events() - events) as f64 / load.seconds;
        report.add(&title, "events", "/s", rate);
        events = cluster.events();
        errors += load.errors.total();
        slowest.push(load.latency.quantile(0.99));
        let mut line = format!(
            "{title}: {:.0}/s, p99 {:.2} ms, {} errors",
            load.rate(),
            load.latency.quantile(0.99),
            load.errors.total()
        );
        if let Some(server) = &bench.processes {
            let rss = server.memory()?.rss;
            report.add(&title, "RSS", "MB", rss);
            line.push_str(&format!(", {rss:.1} MB"));
            memory.push(rss);
        }
        // Show the progress of a long run.
        writeln!(std::io::stderr(), "{line}")?;
    }
    cluster.ended().await?;
    report.add("soak", "errors", "", errors as f64);
    if errors > 0 {
        report.violations.push(format!("{errors} requests of the steady load failed"));
    }
    let is_judged = bench.duration() >= JUDGED_MIN;
    if let Some(percent) = growth_percent(&memory) {
        report.add("soak", "memory growth after the first third", "%", percent);
        if percent > GROWTH_PERCENT_MAX && is_judged {
            let limit = format!("at most {GROWTH_PERCENT_MAX} % is allowed");
            report.violations.push(format!("memory grew by {percent:.1} %; {limit}"));
        }
    }
    let times = slowdown(&slowest);
    report.add("soak", "p99, last third over first", "x", times);
    if times > SLOWDOWN_MAX && is_judged {
        report
            .violations
            .push(format!("p99 rose {times:.1} times; at most {SLOWDOWN_MAX} is allowed"));
    }
    Ok(())
}

/// Returns the median of the last third over the median of the first third.
fn slowdown(parts: &[f64]) -> f64 {
    let third = (parts.len() / 3).max(1).min(parts.len());
    quantile(&parts[parts.len() - third..], 0.5) / quantile(&parts[..third], 0.5)
}

/// Returns the growth from the end of the first third to the median of the last fifth, in percent.
fn growth_percent(memory: &[f64]) -> Option<f64> {
    let warm = *memory.get((memory.len() / 3).max(1) - 1)?;
    let last = quantile(&memory[memory.len() - (memory.len() / 5).max(1)..], 0.5);
    Some((last / warm - 1.0) * 100.0)
}

/// Overloads the server for a while, and measures the latencies of other clients before, during and
/// after it.
async fn burst(bench: &Bench, report: &mut Report) -> Result<()> {
    let duration = bench.duration().min(BURST_TIME_MAX);
    let mut clients = vec![];
    for _ in 0..PROBES {
        clients.push(Client::connect(&bench.target).await?);
    }
    // Connections take their time on a busy machine; what is measured begins after them.
    let began = Instant::now();
    let mut probes = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        probes.spawn(probe(client, bench.leases(), number, began, duration * 3));
    }
    tokio::time::sleep(duration).await;
    let path = bench.leases();
    let load = drive(bench, CAPACITY * BURST, duration, move |worker, turn, _| {
        Some(lease_request(&path, &format!("burst-{worker}"), turn))
    })
    .await?;
    let end = began.elapsed();
    let mut samples = vec![];
    while let Some(probe) = probes.join_next().await {
        samples.extend(probe??);
    }
    let title = format!("soak, burst over {} connections", CAPACITY * BURST);
    report.add_load(&title, &load);
    let before = p99(&samples, Duration::ZERO, duration).context("no request before the burst")?;
    let during = p99(&samples, duration, end).unwrap_or(f64::NAN);
    report.add(&title, "p99 of others before", "ms", before);
    report.add(&title, "p99 of others meanwhile", "ms", during);
    match recovery(&samples, end, before) {
        Some(took) => {
            report.add(&title, "until p99 is back", "s", took.as_secs_f64());
            if took >= RECOVERY_MAX {
                report.violations.push(format!("p99 was back {took:?} after the burst"));
            }
        }
        None => report.violations.push(format!("p99 was not back in {duration:?} after the burst")),
    }
    Ok(())
}

/// Returns a request of turn `turn`: creates a lease, then renews and gets it alternately.
fn lease_request(path: &str, name: &str, turn: u64) -> ApiRequest {
    match turn {
        0 => ApiRequest::post(path, crate::bodies::lease().fill(name, 0)),
        odd if odd % 2 == 1 => {
            let body = lease_patch().fill(name, turn);
            ApiRequest::new(Method::PATCH, format!("{path}/{name}"), MERGE_PATCH, body)
        }
        _ => ApiRequest::get(format!("{path}/{name}")),
    }
}

/// Sends a request whenever one is due, even if the previous response was late. A failed request
/// counts as one without a response.
async fn probe(
    mut client: Client,
    path: String,
    number: usize,
    began: Instant,
    duration: Duration,
) -> Result<Vec<Sample>> {
    let name = format!("probe-{number}");
    let shift = PROBE_INTERVAL * number as u32 / PROBES as u32;
    let mut ticks = tokio::time::interval_at((began + shift).into(), PROBE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut samples = vec![];
    let mut answer = vec![];
    let mut turn = 0;
    loop {
        let due = ticks.tick().await.into_std();
        let at = due.duration_since(began);
        if at >= duration {
            return Ok(samples);
        }
        let (status, _) = client
            .execute(&lease_request(&path, &name, turn), BODY_PREFIX_BYTES_MAX, &mut answer)
            .await?;
        let took = if status < 300 { due.elapsed() } else { Duration::MAX };
        samples.push(Sample { at, took });
        turn += 1;
    }
}

/// Returns the p99 of the requests that were due in this time, in milliseconds.
fn p99(samples: &[Sample], from: Duration, to: Duration) -> Option<f64> {
    let due = samples.iter().filter(|sample| (from..to).contains(&sample.at));
    let took: Vec<f64> = due.map(|sample| sample.took.as_secs_f64() * 1e3).collect();
    (!took.is_empty()).then(|| quantile(&took, 0.99))
}

/// Returns the time from `end` to the first second whose p99 has recovered.
fn recovery(samples: &[Sample], end: Duration, before: f64) -> Option<Duration> {
    let last = samples.iter().map(|sample| sample.at).max()?;
    let steps = (0..).map(|number| RECOVERY_STEP * number);
    let mut starts = steps.take_while(|step| end + *step + SECOND <= last);
    starts.find(|step| {
        p99(samples, end + *step, end + *step + SECOND)
            .is_some_and(|now| now <= before * RECOVERED_RATIO)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_counted_from_the_end_of_the_first_third() {
        let check = |memory: &[f64], want: Option<f64>| {
            assert_eq!(growth_percent(memory), want, "{memory:?}");
        };
        check(&[], None);
        check(&[100.0], Some(0.0));
        check(&[100.0, 110.0, 105.0, 125.0, 150.0], Some(50.0));
        check(&[1.0, 1.0, 100.0, 1.0, 1.0, 1.0, 1.0, 1.0, 125.0, 125.0], Some(25.0));
    }

    #[test]
    fn thirds_are_compared_by_their_medians() {
        assert_eq!(slowdown(&[2.0, 1.0, 9.0, 5.0, 5.0, 5.0, 3.0, 4.0, 90.0]), 2.0);
        assert_eq!(slowdown(&[2.0, 3.0]), 1.5);
        assert!(slowdown(&[]).is_nan());
    }

    /// Returns a request every 2 ms for ten seconds; those within `slow` take 50 ms.
    fn samples(slow: std::ops::Range<u64>) -> Vec<Sample> {
        let sample = |ms| {
            let took = if slow.contains(&ms) { 50 } else { 1 };
            Sample { at: Duration::from_millis(ms), took: Duration::from_millis(took) }
        };
        (0..10_000).step_by(2).map(sample).collect()
    }

    #[test]
    fn latencies_have_recovered_when_a_whole_second_is_as_before() {
        let end = Duration::from_secs(5);
        let check = |slow, want: Option<u64>| {
            let got = recovery(&samples(slow), end, 1.0);
            assert_eq!(got, want.map(Duration::from_millis));
        };
        check(2_000..5_000, Some(0));
        // Five requests, one percent of a second, may be slow.
        check(2_000..5_010, Some(0));
        check(2_000..5_300, Some(300));
        check(2_000..9_500, None);
    }

    #[test]
    fn percentiles_are_of_the_requested_time() {
        let samples = samples(1_000..2_000);
        let p99 = |from, to| p99(&samples, Duration::from_millis(from), Duration::from_millis(to));
        assert_eq!(p99(0, 1_000), Some(1.0));
        assert_eq!(p99(1_000, 2_000), Some(50.0));
        assert_eq!(p99(0, 2_000), Some(50.0));
        assert_eq!(p99(20_000, 30_000), None);
    }
}
