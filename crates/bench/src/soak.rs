//! The mixed load for long: memory and latencies minute by minute, and in the end a burst. What it promises:
//! memory does not grow while the data does not, no request fails, and a burst is soon forgotten.

use crate::Bench;
use crate::bodies::{lease_patch, pod};
use crate::client::{Ask, Client, MERGE_PATCH};
use crate::drive::{FILL, KEPT_BYTES_MAX, Load, drive, fill};
use crate::mixed::{Cluster, clean};
use crate::report::Report;
use crate::start::quantile;
use anyhow::{Context, Result};
use http::Method;
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// What is told at once, where the run is long enough for five of it.
const PART: Duration = Duration::from_secs(60);
const PARTS_MIN: u32 = 5;
/// Pods that are there all the time, unless `--objects` says how many.
const STANDING: usize = 1_000;
/// How much memory may grow after the first third of the run, in percent.
const GROWTH_PERCENT_MAX: f64 = 5.0;
/// How much slower the slowest requests may be in the last third of the run than in the first.
const SLOWER_MAX: f64 = 2.0;
/// In a shorter run the history that servers keep, of five minutes, still grows after a third of it: its
/// memory and its latencies are told and not judged.
const JUDGED_MIN: Duration = Duration::from_secs(900);
/// Connections that keep a server busy, and how many times that a burst has.
const CAPACITY: usize = 64;
const BURST: usize = 3;
/// How long the burst lasts at most, and how long is looked before and after it.
const CALM: Duration = Duration::from_secs(5);
/// Clients that ask at a pace, and how often each does: 500 requests a second.
const PROBES: usize = 8;
const PROBE: Duration = Duration::from_millis(16);
/// Latencies are back when the 99th percentile of a second is at most twice what it was.
const BACK: f64 = 2.0;
const SECOND: Duration = Duration::from_secs(1);
/// How exactly the time until then is told.
const STEP: Duration = Duration::from_millis(50);
/// The longest that may take.
const RECOVERY_MAX: Duration = SECOND;

/// A request of a probe: when it was due, from the first one on, and how long after that it was answered.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    took: Duration,
}

/// Runs it for `--seconds`.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (pods, body, standing) = (bench.pods(), pod(1, 0), bench.run.objects.unwrap_or(STANDING));
    let make = move |number| Ask::post(&pods, body.fill(&format!("standing-{number}"), 0));
    fill(bench, standing, bench.run.connections, FILL, make).await?;
    steady(bench, report).await.context("steady load")?;
    clean(bench).await?;
    burst(bench, report).await.context("burst")?;
    clean(bench).await
}

/// The cluster at work, told part by part.
async fn steady(bench: &Bench, report: &mut Report) -> Result<()> {
    let part = (bench.span() / PARTS_MIN).min(PART);
    let parts = bench.span().as_secs_f64() / part.as_secs_f64();
    let mut cluster = Cluster::start(bench, bench.span());
    let (mut memory, mut slowest, mut errors, mut events) = (vec![], vec![], 0, 0);
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
        // A run of twenty minutes is looked at while it runs.
        writeln!(std::io::stderr(), "{line}")?;
    }
    cluster.ended().await?;
    report.add("soak", "errors", "", errors as f64);
    if errors > 0 {
        report.broken.push(format!("{errors} requests of the steady load failed"));
    }
    let is_judged = bench.span() >= JUDGED_MIN;
    if let Some(percent) = growth_percent(&memory) {
        report.add("soak", "memory growth after the first third", "%", percent);
        if percent > GROWTH_PERCENT_MAX && is_judged {
            let limit = format!("at most {GROWTH_PERCENT_MAX} % is allowed");
            report.broken.push(format!("memory grew by {percent:.1} %; {limit}"));
        }
    }
    let times = slower(&slowest);
    report.add("soak", "p99, last third over first", "x", times);
    if times > SLOWER_MAX && is_judged {
        report.broken.push(format!("p99 rose {times:.1} times; at most {SLOWER_MAX} is allowed"));
    }
    Ok(())
}

/// How often the first third's median goes into that of the last third.
fn slower(parts: &[f64]) -> f64 {
    let third = (parts.len() / 3).max(1).min(parts.len());
    quantile(&parts[parts.len() - third..], 0.5) / quantile(&parts[..third], 0.5)
}

/// By how much the last fifth is above what was there after the first third.
fn growth_percent(memory: &[f64]) -> Option<f64> {
    let warm = *memory.get((memory.len() / 3).max(1) - 1)?;
    let last = quantile(&memory[memory.len() - (memory.len() / 5).max(1)..], 0.5);
    Some((last / warm - 1.0) * 100.0)
}

/// Three times the connections that keep the server busy, while others ask at their pace.
async fn burst(bench: &Bench, report: &mut Report) -> Result<()> {
    let (span, began) = (bench.span().min(CALM), Instant::now());
    let mut probes = JoinSet::new();
    for number in 0..PROBES {
        let client = Client::connect(&bench.target).await?;
        probes.spawn(probe(client, bench.leases(), number, began, span * 3));
    }
    let calm = began.elapsed()..began.elapsed() + span;
    tokio::time::sleep(span).await;
    let path = bench.leases();
    let load = drive(bench, CAPACITY * BURST, span, move |worker, turn, _| {
        Some(change(&path, &format!("burst-{worker}"), turn))
    })
    .await?;
    let end = began.elapsed();
    let mut samples = vec![];
    while let Some(probe) = probes.join_next().await {
        samples.extend(probe??);
    }
    let title = format!("soak, burst over {} connections", CAPACITY * BURST);
    report.add_load(&title, &load);
    let before = p99(&samples, calm.start, calm.end).context("no request before the burst")?;
    let during = p99(&samples, calm.end, end).unwrap_or(f64::NAN);
    report.add(&title, "p99 of others before", "ms", before);
    report.add(&title, "p99 of others meanwhile", "ms", during);
    match recovery(&samples, end, before) {
        Some(took) => {
            report.add(&title, "until p99 is back", "s", took.as_secs_f64());
            if took >= RECOVERY_MAX {
                report.broken.push(format!("p99 was back {took:?} after the burst"));
            }
        }
        None => report.broken.push(format!("p99 was not back in {span:?} after the burst")),
    }
    Ok(())
}

/// Makes a lease, and from then on renews it and reads it in turns.
fn change(path: &str, name: &str, turn: u64) -> Ask {
    match turn {
        0 => Ask::post(path, crate::bodies::lease().fill(name, 0)),
        odd if odd % 2 == 1 => {
            let body = lease_patch().fill(name, turn);
            Ask::new(Method::PATCH, format!("{path}/{name}"), MERGE_PATCH, body)
        }
        _ => Ask::get(format!("{path}/{name}")),
    }
}

/// Asks when it is due, however late the answer before was; what fails counts as unanswered.
async fn probe(
    mut client: Client,
    path: String,
    number: usize,
    began: Instant,
    span: Duration,
) -> Result<Vec<Sample>> {
    let name = format!("probe-{number}");
    let shift = PROBE * number as u32 / PROBES as u32;
    let mut ticks = tokio::time::interval_at((began + shift).into(), PROBE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut samples, mut answer, mut turn) = (vec![], vec![], 0);
    loop {
        let due = ticks.tick().await.into_std();
        let at = due.duration_since(began);
        if at >= span {
            return Ok(samples);
        }
        let (status, _) =
            client.skim(&change(&path, &name, turn), KEPT_BYTES_MAX, &mut answer).await?;
        let took = if status < 300 { due.elapsed() } else { Duration::MAX };
        samples.push(Sample { at, took });
        turn += 1;
    }
}

/// The 99th percentile of what was due in this time, in milliseconds.
fn p99(samples: &[Sample], from: Duration, to: Duration) -> Option<f64> {
    let due = samples.iter().filter(|sample| (from..to).contains(&sample.at));
    let took: Vec<f64> = due.map(|sample| sample.took.as_secs_f64() * 1e3).collect();
    (!took.is_empty()).then(|| quantile(&took, 0.99))
}

/// How long after `end` begins the first second in which requests are about as fast as before.
fn recovery(samples: &[Sample], end: Duration, before: f64) -> Option<Duration> {
    let last = samples.iter().map(|sample| sample.at).max()?;
    let steps = (0..).map(|number| STEP * number);
    let mut starts = steps.take_while(|step| end + *step + SECOND <= last);
    starts.find(|step| {
        p99(samples, end + *step, end + *step + SECOND).is_some_and(|now| now <= before * BACK)
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
        assert_eq!(slower(&[2.0, 1.0, 9.0, 5.0, 5.0, 5.0, 3.0, 4.0, 90.0]), 2.0);
        assert_eq!(slower(&[2.0, 3.0]), 1.5);
        assert!(slower(&[]).is_nan());
    }

    /// Requests each 2 ms for ten seconds, slow ones between two times.
    fn samples(slow: std::ops::Range<u64>) -> Vec<Sample> {
        let sample = |ms| {
            let took = if slow.contains(&ms) { 50 } else { 1 };
            Sample { at: Duration::from_millis(ms), took: Duration::from_millis(took) }
        };
        (0..10_000).step_by(2).map(sample).collect()
    }

    #[test]
    fn latencies_are_back_when_a_whole_second_is_as_before() {
        let end = Duration::from_secs(5);
        let check = |slow, want: Option<u64>| {
            let got = recovery(&samples(slow), end, 1.0);
            assert_eq!(got, want.map(Duration::from_millis));
        };
        check(2_000..5_000, Some(0));
        // One percent of a second, five requests, may be slow.
        check(2_000..5_010, Some(0));
        check(2_000..5_300, Some(300));
        check(2_000..9_500, None);
    }

    #[test]
    fn percentiles_are_of_the_time_asked_for() {
        let samples = samples(1_000..2_000);
        let p99 = |from, to| p99(&samples, Duration::from_millis(from), Duration::from_millis(to));
        assert_eq!(p99(0, 1_000), Some(1.0));
        assert_eq!(p99(1_000, 2_000), Some(50.0));
        assert_eq!(p99(0, 2_000), Some(50.0));
        assert_eq!(p99(20_000, 30_000), None);
    }
}
