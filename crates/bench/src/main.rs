//! `keelson-bench`: a load generator that measures any Kubernetes API server over its API.

mod accounts;
mod api_request;
mod bodies;
mod budget;
mod chart;
mod client;
mod definitions;
mod drive;
mod etcd;
mod far;
mod features;
mod growth;
mod histogram;
mod http1;
mod lists;
mod mixed;
mod process;
mod report;
mod scale;
mod server;
mod simulation;
mod soak;
mod start;
mod table;
mod target;
mod watches;
mod webhooks;
mod writes;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use process::Processes;
use report::Report;
use server::{Program, SpawnedServer};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use target::Target;

/// Maximum of `--seconds`: a week.
const SECONDS_MAX: f64 = 7.0 * 86_400.0;
/// Idle time before memory is measured, unless the run is shorter.
const SETTLE: Duration = Duration::from_secs(2);

/// A load generator for Kubernetes API servers.
#[derive(Debug, Parser)]
#[command(name = "keelson-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a server.
    Run(Box<Run>),
    /// Show a result that was saved as JSON.
    Show(Show),
    /// Draw two results side by side, as SVG.
    Chart(Chart),
}

/// Flags of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// Profiles to measure, in this order [default: all except scale and soak].
    #[arg(value_enum)]
    profiles: Vec<Profile>,
    /// URL of the server.
    #[arg(long)]
    server: Option<String>,
    /// Bearer token.
    #[arg(long)]
    token: Option<String>,
    /// Kubeconfig with the server, its authority and the credentials.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    kubeconfig: Option<PathBuf>,
    /// Accept any server certificate.
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// CA bundle for the server's certificate.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Server program to start for this run, on an empty folder; `start` and `etcd` need one.
    /// `budget`, `growth` and `etcd` start one for each store that they fill.
    #[arg(long, value_name = "PROGRAM")]
    spawn: Option<PathBuf>,
    /// Arguments of that program; {dir}, {port}, {tokens}, {key} and {public-key} stand for a
    /// folder, a port, a token file and a key pair.
    #[arg(
        long,
        value_name = "ARGS",
        allow_hyphen_values = true,
        default_value = "serve --data-dir {dir} --secure-port {port} --bind-address 127.0.0.1 \
                         --token-auth-file {tokens}"
    )]
    spawn_args: String,
    /// etcd program that the profile `etcd` starts; its server also gets `--etcd-servers URL`.
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    etcd: PathBuf,
    /// Processes of the server, to measure their memory and CPU time; not needed with --spawn.
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Send all requests over one HTTP/2 connection, instead of one HTTP/1.1 connection per worker.
    #[arg(long)]
    http2: bool,
    /// Number of workers; each has one request in flight.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Threads of the load generator [default: the number of cores].
    #[arg(long)]
    threads: Option<usize>,
    /// Duration of each profile; in `budget`, `growth` and `etcd` of each load.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Bytes of data in each object that is written.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Objects of `list` [default: 5,000], maximum of `growth` [default: 1,000,000], and standing
    /// pods of `soak` [default: 1,000].
    #[arg(long)]
    objects: Option<usize>,
    /// Scales down the stores of `budget`, `growth` and `etcd`, for a trial run.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Measures only the rows of `budget` that belong to this, such as "features" or "lists".
    #[arg(long, value_name = "GROUP")]
    only: Option<budget::Group>,
    /// Watchers of `watch`.
    #[arg(long, default_value_t = 100)]
    watchers: usize,
    /// Writes per second of `watch` [default: as many as possible].
    #[arg(long, value_name = "WRITES")]
    pace: Option<u32>,
    /// Nodes of `mixed` and `soak`; each renews a lease every second.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Number of starts of `start`.
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// Note on this run: commit, date.
    #[arg(long, default_value = "")]
    note: String,
    /// Another result as JSON, to compare with.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table")]
    output: table::Format,
}

#[derive(Debug, clap::Args)]
struct Chart {
    /// Result of Keelson as JSON.
    ours: PathBuf,
    /// Result of kube-apiserver as JSON.
    theirs: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Result as JSON.
    file: PathBuf,
    /// Another result as JSON, to compare with.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table")]
    output: table::Format,
}

impl Run {
    /// Returns the server program to start, if `--spawn` is set.
    fn program(&self) -> Option<Program> {
        let args = self.spawn_args.clone();
        let http2 = self.http2;
        self.spawn.clone().map(|path| Program { path, args, http2 })
    }

    /// Scales a number of objects or watchers by `--scale`.
    fn scaled(&self, count: usize) -> usize {
        ((count as f64 * self.scale) as usize).max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Everything that has a budget, compared to it. Takes about three minutes.
    Budget,
    /// Cost of requests with 1,000 to 1,000,000 objects, and of events with 10 to 1,000 watchers.
    /// Takes about five minutes.
    Growth,
    /// Memory and CPU time per object, watch and node, with up to 2,000,000, 100,000 and 5,000 of
    /// them; see docs/scale.md. Takes about ten minutes and 5 GB of memory.
    Scale,
    /// The budget of a server with its data in an etcd on the same machine. Takes about a minute.
    Etcd,
    /// Time from the start of the process to the first 200 of /readyz, and idle memory.
    Start,
    /// Create ConfigMaps.
    Create,
    /// Get ConfigMaps.
    Get,
    /// Update ConfigMaps.
    Update,
    /// Patch ConfigMaps with a merge patch.
    Patch,
    /// Patch ConfigMaps with server-side apply.
    Apply,
    /// Delete ConfigMaps.
    Delete,
    /// Renew Leases.
    Lease,
    /// List ConfigMaps: whole, by page, by label; JSON and protobuf; cached and consistent.
    List,
    /// Send the events of writes to many watchers.
    Watch,
    /// Get a Pod as a service account with RBAC, compared to the administrator; call an admission
    /// webhook.
    Access,
    /// Nodes renew leases, pods are created and deleted, controllers list and watch.
    Mixed,
    /// The mixed load for `--seconds` (1200 for 20 minutes), with memory and latencies of each
    /// minute, and a burst at the end. Fails when memory or latencies grow, a request fails, or
    /// latencies take more than a second to recover from the burst.
    Soak,
}

impl Profile {
    const ALL: [Profile; 15] = [
        Profile::Budget,
        Profile::Growth,
        Profile::Etcd,
        Profile::Start,
        Profile::Create,
        Profile::Get,
        Profile::Update,
        Profile::Patch,
        Profile::Apply,
        Profile::Delete,
        Profile::Lease,
        Profile::List,
        Profile::Watch,
        Profile::Access,
        Profile::Mixed,
    ];

    /// Whether the profile opens its own servers instead of sharing one.
    fn is_standalone(self) -> bool {
        matches!(
            self,
            Profile::Budget | Profile::Growth | Profile::Scale | Profile::Etcd | Profile::Start
        )
    }
}

/// A server to measure, and a namespace on it.
pub struct Bench {
    target: Arc<Target>,
    run: Arc<Run>,
    /// The server's processes, if they are known.
    processes: Option<Processes>,
    namespace: String,
    /// The server, if it was started for this.
    server: Option<SpawnedServer>,
}

impl Bench {
    /// Starts a new server if there is a program to start; otherwise uses the server of the flags.
    /// Creates a new namespace.
    async fn open(run: &Arc<Run>) -> Result<Bench> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("bench-{}-{number}", std::process::id());
        let named = (!run.pid.is_empty()).then(|| Processes(run.pid.clone()));
        let (target, processes, server) = match run.program() {
            Some(program) => {
                let server = SpawnedServer::start(&program).await?;
                (server.target.clone(), Some(server.processes()), Some(server))
            }
            None => (Arc::new(Target::from_flags(run)?), named, None),
        };
        let bench = Bench { target, run: run.clone(), processes, namespace, server };
        drive::make_namespace(&bench).await?;
        Ok(bench)
    }

    /// Deletes the namespace, or kills the server.
    async fn close(self) -> Result<()> {
        if self.server.is_none() { drive::drop_namespace(&self).await } else { Ok(()) }
    }

    /// Returns the same server over HTTP/1.1 or HTTP/2. It must not outlive this one.
    fn over(&self, http2: bool) -> Bench {
        self.with(self.target.over(http2))
    }

    /// Returns the same server with another target, such as another user. It must not outlive this
    /// one.
    fn with(&self, target: Target) -> Bench {
        let run = self.run.clone();
        let namespace = self.namespace.clone();
        let processes = self.processes.clone();
        Bench { target: Arc::new(target), run, processes, namespace, server: None }
    }

    /// Measures the server's processes; `None` when they are not known.
    fn sample<T>(&self, measure: impl Fn(&Processes) -> Result<T>) -> Result<Option<T>> {
        self.processes.as_ref().map(measure).transpose()
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.run.seconds)
    }

    /// Returns the idle time before memory is measured.
    fn settle_time(&self) -> Duration {
        SETTLE.min(self.duration())
    }

    /// Returns the path of a resource in the namespace of this run.
    fn path(&self, prefix: &str, resource: &str) -> String {
        format!("{prefix}/namespaces/{}/{resource}", self.namespace)
    }

    fn config_maps(&self) -> String {
        self.path("/api/v1", "configmaps")
    }

    fn pods(&self) -> String {
        self.path("/api/v1", "pods")
    }

    fn leases(&self) -> String {
        self.path("/apis/coordination.k8s.io/v1", "leases")
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Run(run) => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            run.threads.map(|threads| builder.worker_threads(threads.max(1)));
            let runtime = builder.enable_all().build().context("start the runtime")?;
            runtime.block_on(measure(*run))
        }
        Command::Show(show) => {
            let ours = Report::load(&show.file)?;
            let other = show.compare.as_deref().map(Report::load).transpose()?;
            write(&table::render(&ours, show.output, other.as_ref())?)
        }
        Command::Chart(files) => {
            write(&chart::draw(&Report::load(&files.ours)?, &Report::load(&files.theirs)?)?)
        }
    }
}

fn write(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("write to standard output")
}

async fn measure(mut run: Run) -> Result<()> {
    if run.profiles.is_empty() {
        run.profiles = Profile::ALL.to_vec();
    }
    ensure!((0.01..=SECONDS_MAX).contains(&run.seconds), "--seconds: {}", run.seconds);
    ensure!(run.scale > 0.0 && run.scale <= 1.0, "--scale: {}", run.scale);
    let other = run.compare.as_deref().map(Report::load).transpose()?;
    let mut report = Report::new(&run.note);
    let form = run.output;
    let measured = profiles(&Arc::new(run), &mut report).await;
    // What was measured before an error took minutes, too.
    write(&table::render(&report, form, other.as_ref())?)?;
    measured?;
    ensure!(
        report.violations.is_empty(),
        "promises that did not hold: {}",
        report.violations.join("; ")
    );
    Ok(())
}

async fn profiles(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    // Profiles that do not fill the store share a server.
    let mut shared = None;
    for profile in run.profiles.iter().copied() {
        // All profiles together take ten minutes.
        let name = profile.to_possible_value().map(|value| value.get_name().to_owned());
        writeln!(std::io::stderr(), "measuring {}", name.unwrap_or_default())?;
        if profile.is_standalone() {
            run_standalone(run, profile, report).await?;
            continue;
        }
        let bench = match shared.take() {
            Some(bench) => bench,
            None => Bench::open(run).await?,
        };
        match profile {
            Profile::Budget | Profile::Growth | Profile::Scale | Profile::Etcd | Profile::Start => {
            }
            Profile::Create
            | Profile::Get
            | Profile::Update
            | Profile::Patch
            | Profile::Apply
            | Profile::Delete => writes::run(&bench, profile, report).await?,
            Profile::Lease => writes::leases(&bench, report).await?,
            Profile::List => lists::run(&bench, report).await?,
            Profile::Watch => watches::run(&bench, report).await?,
            Profile::Access => {
                accounts::run(&bench, report).await?;
                webhooks::run(&bench, report).await?;
            }
            Profile::Mixed => mixed::run(&bench, report).await?,
            Profile::Soak => soak::run(&bench, report).await?,
        }
        shared = Some(bench);
    }
    match shared {
        Some(bench) => bench.close().await,
        None => Ok(()),
    }
}

async fn run_standalone(run: &Arc<Run>, profile: Profile, report: &mut Report) -> Result<()> {
    match profile {
        Profile::Budget => budget::run(run, report).await,
        Profile::Growth => growth::run(run, report).await,
        Profile::Scale => scale::run(run, report).await,
        Profile::Etcd => etcd::run(run, report).await,
        _ => {
            let Some(program) = run.program() else {
                bail!("start: --spawn names the program to start")
            };
            start::run(&program, run.starts, report).await
        }
    }
}
