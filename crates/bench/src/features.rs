//! What priority and fairness, auditing, tracing and encryption at rest cost, each switched on
//! against off; and what one tenant notices when another floods the server.

use crate::accounts;
use crate::bodies::{config_map, pod};
use crate::client::{ApiRequest, Client};
use crate::drive::{BODY_PREFIX_BYTES_MAX, FILL_TIME_MAX, Load, drive, fill};
use crate::histogram::Histogram;
use crate::start::quantile;
use crate::target::Target;
use crate::{Bench, Run};
use anyhow::{Result, ensure};
use keelson_testkit::kms::{FakeKms, KmsBehaviour};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Pairs of servers, one after the other: two processes of the same program and flags differ by up
/// to a tenth, as long as they live, so that many pairs tell more than many rounds.
const PAIRS: u32 = 24;
/// Rounds of both servers of a pair in turn, so that noise of the machine affects both. The first
/// is not counted.
const ROUNDS: u32 = 2;
/// A round lasts the duration of a profile divided by this.
const ROUND_DIVISOR: u32 = 32;
/// Objects that the flooding tenant lists.
const FLOODED: usize = 2_000;
/// Connections of the flooding tenant.
const FLOODERS: usize = 64;
/// Gets of the other tenant a second.
const PACE: Duration = Duration::from_millis(10);

/// Encrypted objects of a start.
const ENCRYPTED: usize = 100_000;
/// Pairs of starts without and with encryption.
const STARTS: usize = 12;

/// What is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Priority and fairness.
    Fairness,
    /// Auditing of all requests at a level, to a file, in batches.
    Audit(&'static str),
    /// Tracing of one request of a hundred. Nobody receives the spans.
    Tracing,
    /// Priority and fairness, auditing and tracing together.
    Watched,
    /// Encryption of Pods at rest.
    Encryption(Provider),
}

/// What a server with a feature needs over what it needs without, as medians of pairs. `None`
/// without a program to start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ratio {
    /// The server's processor time.
    pub cpu: Option<f64>,
    /// Time of a request among others: one over their rate.
    pub time: Option<f64>,
}

/// The same of a get and a create of a small Pod, each and both together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ratios {
    pub get: Ratio,
    pub create: Ratio,
    pub both: Ratio,
}

impl Ratio {
    /// Returns the medians of pairs of without and with.
    fn of(pairs: &[[Took; 2]]) -> Ratio {
        let cpu = |[off, on]: &[Took; 2]| on.cpu_ms.zip(off.cpu_ms).map(|(on, off)| on / off);
        let cpus: Vec<f64> = pairs.iter().filter_map(cpu).collect();
        let times: Vec<f64> = pairs.iter().map(|[off, on]| on.seconds / off.seconds).collect();
        let median = |ratios: &[f64]| (!ratios.is_empty()).then(|| quantile(ratios, 0.5));
        Ratio { cpu: median(&cpus), time: median(&times) }
    }
}

/// What requests took.
#[derive(Clone, Copy, Default)]
struct Took {
    cpu_ms: Option<f64>,
    seconds: f64,
}

impl Took {
    fn of(load: &Load) -> Took {
        Took { cpu_ms: load.server_cpu_ms(), seconds: load.rate().recip() }
    }

    fn plus(self, other: Took) -> Took {
        Took {
            cpu_ms: self.cpu_ms.zip(other.cpu_ms).map(|(one, other)| one + other),
            seconds: self.seconds + other.seconds,
        }
    }
}

/// A provider of an encryption configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    AesGcm,
    Secretbox,
    /// A KMS plug-in of version 2 in this process.
    Kms,
}

impl Provider {
    fn config(self, dir: &Path) -> String {
        // 32 bytes.
        let keys = "keys: [{name: k, secret: \"a2VlbHNvbmtlZWxzb25rZWVsc29ua2VlbHNvbmFhYWE=\"}]";
        let provider = match self {
            Provider::AesGcm => format!("aesgcm: {{{keys}}}"),
            Provider::Secretbox => format!("secretbox: {{{keys}}}"),
            Provider::Kms => {
                let endpoint = format!("unix://{}", socket(dir).display());
                format!("kms: {{apiVersion: v2, name: bench, endpoint: \"{endpoint}\"}}")
            }
        };
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [pods]\n  providers:\n  - {provider}\n  - identity: {{}}\n"
        )
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("kms.sock")
}

impl Feature {
    /// Returns the arguments of a server without and with the feature. Files are written to `dir`.
    fn arguments(self, dir: &Path) -> Result<[String; 2]> {
        let path = |name: &str| dir.join(name);
        let unfair = || "--enable-priority-and-fairness=false".to_owned();
        Ok(match self {
            Feature::Fairness => [unfair(), String::new()],
            Feature::Watched => {
                let [_, audit] = Feature::Audit("Metadata").arguments(dir)?;
                let [_, tracing] = Feature::Tracing.arguments(dir)?;
                [unfair(), format!("{audit} {tracing}")]
            }
            Feature::Audit(level) => {
                let policy = path("policy.yaml");
                let log = path("audit.log");
                let rules = format!(
                    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                     rules:\n- level: {level}\n"
                );
                std::fs::write(&policy, rules)?;
                let on = format!(
                    "--audit-policy-file={} --audit-log-path={} --audit-log-mode=batch",
                    policy.display(),
                    log.display()
                );
                [String::new(), on]
            }
            Feature::Tracing => {
                let config = path("tracing.yaml");
                let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n\
                            samplingRatePerMillion: 10000\n";
                std::fs::write(&config, text)?;
                [String::new(), format!("--tracing-config-file={}", config.display())]
            }
            Feature::Encryption(provider) => {
                let config = path("encryption.yaml");
                std::fs::write(&config, provider.config(dir))?;
                [String::new(), format!("--encryption-provider-config={}", config.display())]
            }
        })
    }
}

/// Returns what a get and a create need with the feature over what they need without, and the
/// merged load. The user is a service account, since administrators are exempt from priority and
/// fairness.
pub async fn ratios(run: &Arc<Run>, feature: Feature) -> Result<(Ratios, Load)> {
    let mut all = Load::default();
    if run.program().is_none() {
        return Ok((Ratios::default(), all));
    }
    let mut took = vec![];
    for number in 0..PAIRS {
        let mut pair = measured(run, feature, number % 2 == 1, &mut all).await?;
        took.append(&mut pair);
    }
    let pairs = |of: fn(&Both) -> Took| -> Vec<[Took; 2]> {
        took.iter().map(|[off, on]| [of(off), of(on)]).collect()
    };
    let get = Ratio::of(&pairs(|took| took.get));
    let create = Ratio::of(&pairs(|took| took.create));
    let both = Ratio::of(&pairs(|took| took.get.plus(took.create)));
    Ok((Ratios { get, create, both }, all))
}

/// What a get and a create took.
struct Both {
    get: Took,
    create: Took,
}

/// Starts a server without and one with the feature, the latter first if `on_first`. Returns what
/// was measured in each round, without and with.
async fn measured(
    run: &Arc<Run>,
    feature: Feature,
    on_first: bool,
    all: &mut Load,
) -> Result<Vec<[Both; 2]>> {
    let dir = TempDir::new()?;
    let uses_kms = feature == Feature::Encryption(Provider::Kms);
    let _kms = uses_kms.then(|| FakeKms::start(&socket(dir.path()), KmsBehaviour::default()));
    let mut arguments = feature.arguments(dir.path())?;
    if on_first {
        arguments.reverse();
    }
    let mut servers = vec![];
    for more in arguments {
        let bench = open_with(run, &more).await?;
        let account = accounts::account(&bench).await?;
        servers.push((bench.with(account), bench));
    }
    let mut rounds = vec![];
    for round in 0..ROUNDS {
        let mut took = vec![];
        for (bench, _) in &servers {
            let create = creates(bench, round, all).await?;
            took.push(Both { get: gets(bench, all).await?, create });
        }
        if on_first {
            took.reverse();
        }
        if let Ok(pair) = <[Both; 2]>::try_from(took)
            && round > 0
        {
            rounds.push(pair);
        }
    }
    for (_, bench) in servers {
        bench.close().await?;
    }
    Ok(rounds)
}

/// Starts a server with more arguments.
pub async fn open_with(run: &Arc<Run>, more: &str) -> Result<Bench> {
    let mut run = Run::clone(run);
    run.spawn_args = format!("{} {more}", run.spawn_args);
    Bench::open(&Arc::new(run)).await
}

async fn gets(bench: &Bench, all: &mut Load) -> Result<Took> {
    let duration = bench.duration() / ROUND_DIVISOR;
    let path = format!("{}/{}", bench.pods(), accounts::POD);
    let get = move |_: usize, _: u64, _: &[u8]| Some(ApiRequest::get(&path));
    let load = drive(bench, bench.run.connections, duration, get).await?;
    all.merge(&load);
    Ok(Took::of(&load))
}

async fn creates(bench: &Bench, round: u32, all: &mut Load) -> Result<Took> {
    let duration = bench.duration() / ROUND_DIVISOR;
    let path = bench.pods();
    let body = pod(1, 0);
    let create = move |worker: usize, number: u64, _: &[u8]| {
        Some(ApiRequest::post(&path, body.fill(&format!("made-{round}-{worker}-{number}"), number)))
    };
    let load = drive(bench, bench.run.connections, duration, create).await?;
    all.merge(&load);
    Ok(Took::of(&load))
}

/// Returns the time of a start with 100,000 Pods that are encrypted over that with as many in
/// clear, as the median of pairs, in turns. While one server starts, the other one does not run: it
/// would still be folding what it loaded. `None` without a program to start.
pub async fn encrypted_start(run: &Arc<Run>) -> Result<Option<f64>> {
    if run.program().is_none() {
        return Ok(None);
    }
    let dir = TempDir::new()?;
    let mut stopped = vec![];
    for more in Feature::Encryption(Provider::AesGcm).arguments(dir.path())? {
        let mut bench = open_with(run, &more).await?;
        let path = bench.pods();
        let body = pod(1, 0);
        let make = move |number| ApiRequest::post(&path, body.fill(&format!("kept-{number}"), 0));
        let is_full = fill(&bench, run.scaled(ENCRYPTED), FLOODERS, FILL_TIME_MAX, make).await?;
        ensure!(is_full, "the pods were not there after {FILL_TIME_MAX:?}");
        if let Some(server) = bench.server.take() {
            // Its place in a pair.
            stopped.push((stopped.len(), server.stop().await?));
        }
    }
    let mut ratios = vec![];
    for _ in 0..STARTS {
        let mut ready = [0.0; 2];
        let mut again = vec![];
        for (place, server) in stopped {
            let server = server.start().await?;
            ready[place] = server.ready.as_secs_f64();
            again.push((place, server.stop().await?));
        }
        // The one that was last is the first of the next pair.
        again.reverse();
        stopped = again;
        ratios.push(ready[1] / ready[0]);
    }
    Ok(Some(quantile(&ratios, 0.5)))
}

/// What a tenant notices.
pub struct Flooded {
    /// Latency of gets while nobody else asks.
    pub alone: Histogram,
    /// Latency during the flood.
    pub during: Histogram,
    /// The load of both tenants.
    pub load: Load,
}

/// Measures gets of one service account, a hundred a second, first alone and then while another one
/// lists all it can on many connections. The gets have a thread of their own: they are those of
/// another process, and must not wait until this one has read a list.
pub async fn flood(bench: &Bench) -> Result<Flooded> {
    let victim = bench.with(accounts::account(bench).await?);
    let flooder = bench.with(accounts::account_of(bench, "flooder").await?);
    let path = bench.config_maps();
    let body = config_map(1024);
    let make = move |number| ApiRequest::post(&path, body.fill(&format!("listed-{number}"), 0));
    fill(bench, bench.run.scaled(FLOODED), FLOODERS, FILL_TIME_MAX, make).await?;
    let mut load = Load::default();
    let (alone, own) = paced_gets(&victim, Duration::ZERO).await?;
    load.merge(&own);
    let list = bench.config_maps();
    let flooding = drive(&flooder, FLOODERS, bench.duration() * 2, move |_, _, _| {
        Some(ApiRequest::get(&list))
    });
    // By then the flood has begun.
    let during = paced_gets(&victim, bench.duration() / 4);
    let (flooded, during) = tokio::join!(flooding, during);
    // Lists that are refused with 429 are what the flood deserves.
    flooded?;
    let (during, own) = during?;
    load.merge(&own);
    Ok(Flooded { alone, during, load })
}

/// Gets a Pod at a steady pace on one connection, from a thread of its own.
async fn paced_gets(bench: &Bench, delay: Duration) -> Result<(Histogram, Load)> {
    let path = format!("{}/{}", bench.pods(), accounts::POD);
    let target = bench.target.clone();
    let duration = bench.duration();
    let gets = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::time::sleep(delay).await;
            get_at_pace(&target, path, duration).await
        })
    });
    gets.await?
}

async fn get_at_pace(
    target: &Arc<Target>,
    path: String,
    duration: Duration,
) -> Result<(Histogram, Load)> {
    let mut client = Client::connect(target).await?;
    let mut latency = Histogram::default();
    let mut load = Load::default();
    let end = Instant::now() + duration;
    let mut body = vec![];
    while Instant::now() < end {
        let begun = Instant::now();
        let request = ApiRequest::get(&path);
        let answer = client.execute(&request, BODY_PREFIX_BYTES_MAX, &mut body).await;
        let took = begun.elapsed();
        latency.add(took);
        load.add(&request, took, &answer, &body);
        tokio::time::sleep(PACE.saturating_sub(begun.elapsed())).await;
    }
    Ok((latency, load))
}
